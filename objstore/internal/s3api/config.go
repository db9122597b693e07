// Package s3api is what the two S3 clients share: how a store is addressed and trusted, how its errors are classified,
// and an objstore.Bucket over single requests. The clients add only the requests themselves.
package s3api

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/credentials/endpointcreds"
	"github.com/aws/smithy-go/logging"

	"github.com/varvelog/varve/objstore"
)

// Config addresses a bucket of an S3 store. Each zero value is the default said.
type Config struct {
	Bucket string // required
	Prefix string // of all keys, without slashes at its ends; default none

	Endpoint  string // http://host:port or https://host:port; default AWS's of the region, or AWS_ENDPOINT_URL_S3
	Region    string // default AWS_REGION or the profile's; with an endpoint us-east-1
	PathStyle bool   // http://host/bucket/key instead of http://bucket.host/key
	CAFile    string // PEM file, trusted besides the system's authorities by every call, those for credentials too

	// AccessKey and SecretKey are for tests and tools. Default: the AWS chain of environment, profile, web identity,
	// container and instance, from which credentials are fetched again before they expire.
	AccessKey, SecretKey string

	PartSize       int64         // of multipart uploads; default 64 MiB, more where an object would have above 10,000 parts
	MultipartAbove int64         // larger bodies are uploaded in parts; default 100 MiB
	UploadParts    int           // at the same time for one object; default 4
	StallTimeout   time.Duration // a body from which nothing came for so long is ErrUnavailable; default 30 s
	PageKeys       int           // objects a List request, at most 1000; default 1000
}

// String has no credentials.
func (c Config) String() string {
	return "s3://" + path.Join(c.Bucket, c.Prefix) + " at " + c.Endpoint
}

// GoString keeps credentials out of %#v too.
func (c Config) GoString() string { return c.String() }

const minPart = 5 << 20 // S3's limit for all parts but the last

func (c *Config) fill() error {
	if len(c.Bucket) < 3 || len(c.Bucket) > 63 || strings.Contains(c.Bucket, "/") { // the stores' own bounds; a client that checks them fails as if the store were away
		return fmt.Errorf("open S3 bucket: bad bucket name %q: it has 3 to 63 characters", c.Bucket)
	}
	if err := objstore.CheckPrefix(c.Prefix); err != nil || strings.HasSuffix(c.Prefix, "/") {
		return fmt.Errorf("open S3 bucket %s: bad prefix %q", c.Bucket, c.Prefix)
	}
	if c.Endpoint != "" {
		u, err := url.Parse(c.Endpoint)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Path != "" && u.Path != "/" || u.RawQuery != "" {
			return fmt.Errorf("open S3 bucket %s: the endpoint is not of the form http://host:port or https://host:port", c.Bucket)
		}
	}
	if c.PartSize <= 0 {
		c.PartSize = 64 << 20
	}
	c.PartSize = max(c.PartSize, minPart)
	if c.MultipartAbove <= 0 {
		c.MultipartAbove = 100 << 20
	}
	if c.UploadParts <= 0 {
		c.UploadParts = 4
	}
	if c.StallTimeout <= 0 {
		c.StallTimeout = 30 * time.Second
	}
	if c.PageKeys <= 0 || c.PageKeys > 1000 {
		c.PageKeys = 1000
	}
	return nil
}

// Loaded is a configuration with what the environment added.
type Loaded struct {
	Config
	AWS         aws.Config
	HTTP        *http.Client // for requests to the store; see Answer
	Credentials *Credentials
}

// Load completes and checks c and reads the AWS configuration of the environment. It makes no requests.
func Load(ctx context.Context, c Config) (*Loaded, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	transport, err := newTransport(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket %s: %w", c.Bucket, err)
	}
	// The SDK adds AWS_CA_BUNDLE to the pool of a BuildableClient and fails on any other client. Every credential
	// provider of the chain gets this client too: one trust store for all calls.
	opts := []func(*config.LoadOptions) error{
		config.WithHTTPClient(transport),
		// The container provider alone has a client of its own. This one shares its pool, and so AWS_CA_BUNDLE.
		config.WithEndpointCredentialOptions(func(o *endpointcreds.Options) { o.HTTPClient = transport }),
		config.WithLogger(logging.Nop{}),
	}
	if c.Region != "" {
		opts = append(opts, config.WithRegion(c.Region))
	}
	if c.AccessKey != "" {
		opts = append(opts, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, "")))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("open S3 bucket %s: load AWS configuration: %w", c.Bucket, err)
	}
	if c.Endpoint == "" {
		c.Endpoint = os.Getenv("AWS_ENDPOINT_URL_S3")
	}
	if c.Endpoint == "" {
		c.Endpoint = os.Getenv("AWS_ENDPOINT_URL")
	}
	if cfg.Region == "" {
		if c.Endpoint == "" {
			return nil, fmt.Errorf("open S3 bucket %s: no region: give region= or AWS_REGION", c.Bucket)
		}
		cfg.Region = "us-east-1"
	}
	c.Region = cfg.Region
	l := &Loaded{Config: c, AWS: cfg, Credentials: &Credentials{below: cfg.Credentials}}
	rt := http.RoundTripper(http.DefaultTransport)
	if built, ok := cfg.HTTPClient.(*awshttp.BuildableClient); ok {
		rt = built.GetTransport()
	}
	l.HTTP = &http.Client{
		Transport: recorder{rt},
		// The clients follow no redirect either: the signature is for one host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return l, nil
}

func newTransport(caFile string) (*awshttp.BuildableClient, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if caFile != "" {
		pem, err := os.ReadFile(caFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read ca_file: %w", errors.New("no certificate in "+caFile))
		}
	}
	return awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = 4 * time.Second }).
		WithTransportOptions(func(t *http.Transport) {
			t.TLSClientConfig.RootCAs = pool
			t.TLSHandshakeTimeout = 5 * time.Second
			t.ResponseHeaderTimeout = time.Minute
			t.ExpectContinueTimeout = time.Second
			t.MaxIdleConns = 256
			t.MaxIdleConnsPerHost = 128
			t.ReadBufferSize = 64 << 10
			t.WriteBufferSize = 64 << 10
			t.DisableCompression = true // a body must have the length that was asked for
		}), nil
}
