// Package open makes a bucket of a URL, and puts the decorators on it that a server wants. It is the only package that
// knows all the stores; what works on a bucket imports objstore alone.
//
//	file:///dir/of/objects
//	s3://bucket/prefix?endpoint=http://127.0.0.1:7070&use_path_style=true&region=us-east-1&client=minio
//	mem://name                                                     in this process only
//
// Parameters of s3: endpoint, region, use_path_style, client (aws, the default, or minio) and ca_file. Credentials come
// from the AWS chain and never stand in a URL.
package open

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/budget"
	"github.com/varvelog/varve/objstore/file"
	"github.com/varvelog/varve/objstore/mem"
	"github.com/varvelog/varve/objstore/metrics"
	"github.com/varvelog/varve/objstore/minio"
	"github.com/varvelog/varve/objstore/retry"
	"github.com/varvelog/varve/objstore/s3"
)

// Options add to a URL. The zero value adds nothing.
type Options struct {
	Client string // aws or minio, for an s3 URL that does not say; default aws
	CAFile string // for an s3 URL that does not say; default the system's authorities

	Budget budget.Options
	Retry  retry.Options
	// Registerer takes the metrics of one bucket; wrap it with a label for each where there are several. Default: no metrics.
	Registerer prometheus.Registerer
}

// Open returns the bucket with its decorators: repetition over a budget over metrics, so that metrics see each request
// and a pause between two tries holds no share of the budget. It makes no requests to a store; objstore.Probe does.
func Open(ctx context.Context, rawURL string, o Options) (objstore.Bucket, error) {
	b, err := Plain(ctx, rawURL, o)
	if err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		b = metrics.New(b, o.Registerer)
		o.Budget.Registerer, o.Retry.Registerer = o.Registerer, o.Registerer
	}
	return retry.New(budget.New(b, o.Budget), o.Retry), nil
}

// Plain returns the bucket without decorators.
func Plain(ctx context.Context, rawURL string, o Options) (objstore.Bucket, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		// The parser's error quotes the whole text, and there may be a password in it.
		return nil, errors.New("object store URL cannot be parsed: want s3://bucket/prefix, file:///dir or mem://name")
	}
	if u.User != nil {
		return nil, fmt.Errorf("object store URL %s://...: credentials do not belong into a URL: the AWS chain has them", u.Scheme)
	}
	if u.Fragment != "" || u.Opaque != "" {
		return nil, fmt.Errorf("object store URL %q: want s3://bucket/prefix, file:///dir or mem://name", u.Redacted())
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("object store URL %s://%s: bad parameters", u.Scheme, u.Host)
	}
	switch u.Scheme {
	case "s3":
		return openS3(ctx, u, q, o)
	case "file":
		return openFile(u, q)
	case "mem":
		return openMem(u, q)
	}
	return nil, fmt.Errorf("object store URL: scheme %q is none of s3, file, mem", u.Scheme)
}

// refuse names the parameters that are not allowed, never their values.
func refuse(scheme string, q url.Values, allowed ...string) error {
	for _, name := range slices.Sorted(maps.Keys(q)) {
		switch {
		case !slices.Contains(allowed, name) && len(allowed) == 0:
			return fmt.Errorf("%s URL: unknown parameter %q: it has none", scheme, name)
		case !slices.Contains(allowed, name):
			return fmt.Errorf("%s URL: unknown parameter %q: allowed are %s", scheme, name, strings.Join(allowed, ", "))
		case len(q[name]) > 1:
			return fmt.Errorf("%s URL: parameter %q is given %d times", scheme, name, len(q[name]))
		}
	}
	return nil
}

func openS3(ctx context.Context, u *url.URL, q url.Values, o Options) (objstore.Bucket, error) {
	if err := refuse("s3", q, "ca_file", "client", "endpoint", "region", "use_path_style"); err != nil {
		return nil, err
	}
	c := s3.Config{
		Bucket: u.Host, Prefix: strings.Trim(u.Path, "/"),
		Endpoint: strings.TrimSuffix(q.Get("endpoint"), "/"), Region: q.Get("region"), CAFile: q.Get("ca_file"),
	}
	if c.CAFile == "" {
		c.CAFile = o.CAFile
	}
	if v := q.Get("use_path_style"); v != "" {
		var err error
		if c.PathStyle, err = strconv.ParseBool(v); err != nil {
			return nil, errors.New("s3 URL: use_path_style is neither true nor false")
		}
	}
	client := q.Get("client")
	if client == "" {
		client = o.Client
	}
	switch client {
	case "", "aws":
		return s3.New(ctx, c)
	case "minio":
		return minio.New(ctx, c)
	}
	return nil, fmt.Errorf("s3 client %q is none of aws, minio", client)
}

func openFile(u *url.URL, q url.Values) (objstore.Bucket, error) {
	if err := refuse("file", q); err != nil {
		return nil, err
	}
	if u.Host != "" && u.Host != "localhost" || !filepath.IsAbs(filepath.FromSlash(u.Path)) {
		return nil, errors.New("file URL: want file:///absolute/path, with three slashes")
	}
	return file.New(filepath.FromSlash(u.Path))
}

func openMem(u *url.URL, q url.Values) (objstore.Bucket, error) {
	if err := refuse("mem", q); err != nil {
		return nil, err
	}
	if u.Host == "" || u.Path != "" {
		return nil, errors.New("mem URL: want mem://name")
	}
	return mem.Named(u.Host), nil
}
