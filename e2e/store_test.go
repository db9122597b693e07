package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/objstore/objtest"
)

// s3 is the S3 server that all tests share; each has a prefix or a bucket of its own.
var s3 struct {
	once   sync.Once
	server *objtest.Server
	dir    string
	err    error
}

func s3Server(t *testing.T) *objtest.Server {
	t.Helper()
	s3.once.Do(func() {
		if s3.dir, s3.err = os.MkdirTemp("", "varve-e2e-s3-"); s3.err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 9*time.Minute) // it may have to be built
		defer cancel()
		s3.server, s3.err = objtest.RunS3(ctx, s3.dir)
	})
	if s3.err != nil {
		t.Fatalf("S3 server: %v", s3.err)
	}
	return s3.server
}

func stopS3() {
	if s3.server != nil {
		s3.server.Stop()
	}
	if s3.dir != "" {
		os.RemoveAll(s3.dir)
	}
}

// prepareS3 makes a node whose archive is at the URL, with the server's credentials.
func prepareS3(t *testing.T, archive string, set ...string) *node {
	t.Helper()
	n := prepare(t, append([]string{"archive.url=" + archive}, set...)...)
	n.archive = archive
	n.Env = s3Server(t).Env()
	return n
}

func startS3(t *testing.T, archive string, set ...string) *node {
	t.Helper()
	n := prepareS3(t, archive, set...)
	n.start()
	return n
}

// proxy stands before the S3 server at an address of its own, and can be a store in trouble.
type proxy struct {
	t      *testing.T
	addr   string
	to     *httputil.ReverseProxy
	server *http.Server

	trouble  atomic.Pointer[trouble]
	requests atomic.Int64

	mu   sync.Mutex
	puts map[string]int // guarded by mu; successful ones by path
}

// trouble answers a request in the store's place, or returns false.
type trouble func(w http.ResponseWriter, r *http.Request) bool

func startProxy(t *testing.T) *proxy {
	t.Helper()
	target, err := url.Parse(s3Server(t).Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{t: t, puts: map[string]int{}}
	p.to = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is signed
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodPut && r.StatusCode == http.StatusOK {
				p.mu.Lock()
				p.puts[r.Request.URL.Path]++
				p.mu.Unlock()
			}
			return nil
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
	}
	p.addr = freeAddr(t)
	p.up()
	t.Cleanup(p.down)
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.requests.Add(1)
	if f := p.trouble.Load(); f != nil && *f != nil && (*f)(w, r) {
		return
	}
	p.to.ServeHTTP(w, r)
}

// down is a store that is stopped: its connections end and new ones are refused.
func (p *proxy) down() { p.server.Close() }

// up starts it again at the same address.
func (p *proxy) up() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	p.server = &http.Server{Handler: p, ErrorLog: silent}
	go p.server.Serve(l)
}

// in puts the store into trouble, nil ends it.
func (p *proxy) in(f trouble) { p.trouble.Store(&f) }

// url is the archive's URL through the proxy.
func (p *proxy) url(prefix, client string) string {
	s := s3Server(p.t)
	return strings.Replace(s.URL(prefix, client), url.QueryEscape(s.Endpoint), url.QueryEscape("http://"+p.addr), 1)
}

// uploadedTwice lists the segment objects that were put more than once with success.
func (p *proxy) uploadedTwice() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for path, n := range maps.All(p.puts) {
		if strings.Contains(path, "/s/") && n > 1 {
			list = append(list, fmt.Sprintf("%s %d times", path, n))
		}
	}
	return list
}

// cut ends the connection without an answer.
func cut(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }

// status answers with a code and, where body is set, an S3 error.
func status(code int, body string) trouble {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if body != "" && r.Method != http.MethodHead {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(code)
			fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>e2e</Message></Error>`, body)
			return true
		}
		w.WriteHeader(code)
		return true
	}
}
