package open_test

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// stub is as much of an S3 server as the tests of failures need: path-style, one object map, and a hook that may answer
// first. What a real server does is tested with a real one.
type stub struct {
	mu      sync.Mutex
	objects map[string][]byte                                 // guarded by mu; by /bucket/key
	hook    func(w http.ResponseWriter, r *http.Request) bool // guarded by mu; true if it has answered
	seen    []string                                          // guarded by mu; method and host of each request
	clock   time.Duration                                     // guarded by mu; ahead of ours
}

func newStub() *stub { return &stub{objects: make(map[string][]byte)} }

func (s *stub) setHook(h func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hook = h
}

func (s *stub) setClock(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = ahead
}

func (s *stub) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

func fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	if code != "" {
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>stub</Message></Error>`, code)
	}
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.Host+r.URL.Path)
	hook, now := s.hook, time.Now().Add(s.clock)
	s.mu.Unlock()
	w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
	body, _ := io.ReadAll(r.Body)
	if hook != nil && hook(w, r) {
		return
	}
	if at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date")); err != nil || at.Sub(now).Abs() > 15*time.Minute {
		fail(w, http.StatusForbidden, "RequestTimeTooSkewed")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch q := r.URL.Query(); {
	case q.Has("list-type"):
		s.list(w, r, q)
	case r.Method == http.MethodPut:
		s.put(w, r, body)
	case r.Method == http.MethodDelete:
		delete(s.objects, r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		data, ok := s.objects[r.URL.Path]
		if !ok {
			fail(w, http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", etag(data))
		w.Header().Set("Last-Modified", now.UTC().Format(http.TimeFormat))
		http.ServeContent(w, r, "", now, strings.NewReader(string(data)))
	default:
		fail(w, http.StatusNotImplemented, "NotImplemented")
	}
}

func etag(p []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(p)) }

func (s *stub) put(w http.ResponseWriter, r *http.Request, body []byte) {
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	_, exists := s.objects[r.URL.Path]
	switch {
	case r.Header.Get("x-amz-checksum-crc32c") != base64.StdEncoding.EncodeToString(sum):
		fail(w, http.StatusBadRequest, "BadDigest")
	case r.Header.Get("If-None-Match") == "*" && exists:
		fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		s.objects[r.URL.Path] = body
		w.Header().Set("ETag", etag(body))
	}
}

func (s *stub) list(w http.ResponseWriter, r *http.Request, q url.Values) {
	type content struct {
		Key          string
		Size         int
		ETag         string
		LastModified string
	}
	var out struct {
		XMLName      xml.Name `xml:"ListBucketResult"`
		IsTruncated  bool
		EncodingType string
		Contents     []content
	}
	bucket := r.URL.Path
	if !strings.HasSuffix(bucket, "/") {
		bucket += "/"
	}
	for path, data := range s.objects {
		key, ok := strings.CutPrefix(path, bucket)
		if ok && strings.HasPrefix(key, q.Get("prefix")) && key > q.Get("start-after") {
			out.Contents = append(out.Contents, content{key, len(data), etag(data), "2026-01-02T03:04:05.000Z"})
		}
	}
	slices.SortFunc(out.Contents, func(a, b content) int { return strings.Compare(a.Key, b.Key) })
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out)
}

// chain gives the AWS chain nothing but what the test sets.
func chain(t *testing.T, env map[string]string) {
	t.Helper()
	none := t.TempDir() + "/none"
	clean := map[string]string{
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_REGION": "us-east-1",
		"AWS_CONFIG_FILE": none, "AWS_SHARED_CREDENTIALS_FILE": none, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CA_BUNDLE": "",
		"AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_ROLE_ARN": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "", "AWS_ENDPOINT_URL_STS": "",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "HTTP_PROXY": "", "HTTPS_PROXY": "",
	}
	for name, value := range env {
		clean[name] = value
	}
	for name, value := range clean {
		t.Setenv(name, value)
	}
}

var keys = map[string]string{"AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE", "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}

var clients = []string{"aws", "minio"}
