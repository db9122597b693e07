// Package objtest has the conformance suite that every store passes, and a real S3 server to run it against: versitygw,
// built from the module internal/s3server, started on a free port.
//
// The server is needed: where it cannot be built or started the test fails, it is never skipped.
package objtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const serverPackage = "github.com/versity/versitygw/cmd/versitygw"

// Server is a running S3 server with an empty bucket.
type Server struct {
	Endpoint  string // http://127.0.0.1:port
	AccessKey string
	SecretKey string
	Bucket    string

	dir    string // where objects are
	cmd    *exec.Cmd
	stdin  io.Closer
	log    *logTail
	ended  chan struct{}
	client *s3.Client
}

// StartS3 starts a server for the test, stops it at the test's end, and sets the environment so that the AWS chain has
// its credentials.
func StartS3(t testing.TB) (endpoint, accessKey, secretKey, bucket string) {
	t.Helper()
	s := Start(t)
	return s.Endpoint, s.AccessKey, s.SecretKey, s.Bucket
}

// Start is StartS3 for a test that wants the server itself.
func Start(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute)
	defer cancel()
	s, err := RunS3(ctx, t.TempDir())
	if err != nil {
		t.Fatalf("start S3 server: %v", err)
	}
	t.Cleanup(func() { s.Stop() })
	for _, e := range s.Env() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	return s
}

// RunS3 starts a server that keeps its objects below dir, for programs that are no tests. It is stopped by Stop, and
// when this process ends, however it does. ctx bounds building and starting.
func RunS3(ctx context.Context, dir string) (*Server, error) {
	bin, err := build(ctx)
	if err != nil {
		return nil, err
	}
	objects := filepath.Join(dir, "objects")
	if err := os.MkdirAll(objects, 0o755); err != nil {
		return nil, err
	}
	var last error
	for range 3 { // the free port may be taken by the time the server binds it
		s, err := start(ctx, bin, objects)
		if err == nil {
			return s, nil
		}
		last = err
	}
	return nil, last
}

func start(ctx context.Context, bin, dir string) (*Server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	s := &Server{
		Endpoint: "http://" + addr, AccessKey: "varvetest", SecretKey: "varvetestsecret", Bucket: "varve-test",
		dir: dir, log: &logTail{}, ended: make(chan struct{}),
	}
	// The shell ends the server when its standard input is closed, by Stop or by the death of this process. A gentle
	// signal would have the server wait for idle connections.
	s.cmd = exec.Command("/bin/sh", "-c", `"$@" & p=$!; read _; kill -9 $p; wait $p`, "sh",
		bin, "-p", addr, "-q", "--keep-alive", "posix", dir)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if s.stdin, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(s.ended)
		_ = s.cmd.Wait()
	}()
	s.client = s3.New(s3.Options{
		BaseEndpoint: &s.Endpoint, Region: "us-east-1", UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(s.AccessKey, s.SecretKey, ""),
	})
	if err := s.ready(ctx); err != nil {
		s.Stop()
		return nil, fmt.Errorf("%w; its output: %s", err, s.log)
	}
	return s, nil
}

func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Endpoint+"/", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			return s.MakeBucket(ctx, s.Bucket)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("S3 server is not ready: %w", err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// MakeBucket makes another bucket.
func (s *Server) MakeBucket(ctx context.Context, name string) error {
	_, err := s.client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: aws.String(name)})
	if err != nil {
		return fmt.Errorf("make bucket %s: %w", name, err)
	}
	return nil
}

// Client returns an SDK client of the server, for looking behind varve's back.
func (s *Server) Client() *s3.Client { return s.client }

// Dir is the directory that holds the buckets.
func (s *Server) Dir() string { return s.dir }

// URL is the s3 URL of the server's bucket below prefix for a client, aws or minio.
func (s *Server) URL(prefix, client string) string {
	q := url.Values{"endpoint": {s.Endpoint}, "use_path_style": {"true"}, "region": {"us-east-1"}, "client": {client}}
	return "s3://" + s.Bucket + "/" + prefix + "?" + q.Encode()
}

// Env is the environment with which the AWS chain has the server's credentials, as NAME=value.
func (s *Server) Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_SESSION_TOKEN=", "AWS_PROFILE=", "AWS_EC2_METADATA_DISABLED=true",
	}
}

// Stop ends the server and waits for it.
func (s *Server) Stop() {
	_ = s.stdin.Close()
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
}

// freeAddr is of a port below those that systems choose for outgoing connections, which might take it before the server does.
func freeAddr() (string, error) {
	for range 1000 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 11000+rand.IntN(21000)))
		if err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", errors.New("no free port found")
}

// build returns the server's binary, from the cache or built now. Concurrent test processes build once.
func build(ctx context.Context) (string, error) {
	module, err := moduleDir(ctx)
	if err != nil {
		return "", err
	}
	key := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		key.Write(b)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "varve", "s3server")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	bin := filepath.Join(dir, fmt.Sprintf("versitygw-%x", key.Sum(nil)[:8]))
	unlock, err := lockFile(bin + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if st, err := os.Stat(bin); err == nil && st.Mode().IsRegular() {
		return bin, nil
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-C", module, "-o", bin+".new", serverPackage)
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", serverPackage, err, out)
	}
	return bin, os.Rename(bin+".new", bin)
}

func lockFile(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// moduleDir is internal/s3server of the module that the process was started in.
func moduleDir(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find module: %w", err)
	}
	mod := string(bytes.TrimSpace(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("find module: start this below the repository")
	}
	return filepath.Join(filepath.Dir(mod), "internal", "s3server"), nil
}

// logTail keeps the last lines of the server's output.
type logTail struct {
	mu  sync.Mutex
	buf []byte // guarded by mu
}

func (l *logTail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = append(l.buf, p...)
	if over := len(l.buf) - 8<<10; over > 0 {
		l.buf = append(l.buf[:0], l.buf[over:]...)
	}
	return len(p), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.buf)
}
