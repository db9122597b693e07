package e2e

import (
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

var silent = log.New(io.Discard, "", 0)

func freeAddr(t *testing.T) string {
	t.Helper()
	a, err := proc.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

var bothClients = []string{"aws", "minio"}

// tiering is the configuration of a topic whose log leaves the broker at once.
var tiering = []string{"segment.bytes", "1048576", "local.retention.bytes", "1"}

func TestS3WhatIsEvictedIsReadBackIdentical(t *testing.T) {
	t.Parallel()
	for _, lib := range bothClients {
		t.Run(lib, func(t *testing.T) {
			t.Parallel()
			n := startS3(t, s3Server(t).URL("identical-"+lib, lib))
			c := connect(t, n.Listen)
			c.create("orders", 2, tiering...)
			d := c.fill("orders", 2, 8000, 1000)
			for p := range int32(2) {
				c.untilTiered("orders", p, 4000)
				c.untilEvicted("orders", p, 2000)
			}
			c.same("orders", d)
			if o, _ := c.offset("orders", 0, earliest); o != 0 {
				t.Errorf("earliest is %d", o)
			}
			n.stop()
			if err := os.RemoveAll(filepath.Join(n.Dir, "orders-1")); err != nil {
				t.Fatal(err)
			}
			n.start()
			c.same("orders", d)
			want(t, verb(t, n.Env, "archive", "verify", "--repo", n.archive), 0)
		})
	}
}

// BUG-105.
func TestS3BucketNamesWithDotsAreAddressedByPath(t *testing.T) {
	t.Parallel()
	s := s3Server(t)
	if err := s.MakeBucket(minute(t), "my.bucket.v1"); err != nil {
		t.Fatal(err)
	}
	for _, lib := range bothClients {
		t.Run(lib, func(t *testing.T) {
			t.Parallel()
			n := startS3(t, strings.Replace(s.URL("dots-"+lib, lib), "s3://"+s.Bucket+"/", "s3://my.bucket.v1/", 1))
			c := connect(t, n.Listen)
			c.create("a", 1, tiering...)
			d := c.fill("a", 1, 1500, 1000)
			c.untilEvicted("a", 0, 500)
			c.same("a", d)
			want(t, verb(t, n.Env, "archive", "verify", "--repo", n.archive), 0)
		})
	}
}

// BUG-105, BUG-112: what can never work is told, soon and by name.
func TestS3WrongAddressesAndCredentialsAreToldSoon(t *testing.T) {
	t.Parallel()
	s := s3Server(t)
	for _, lib := range bothClients {
		good := s.URL("wrong", lib)
		noOne := url.QueryEscape("http://" + freeAddr(t))
		unsigned := httptest.NewTLSServer(http.NotFoundHandler())
		unsigned.Config.ErrorLog = silent
		t.Cleanup(unsigned.Close)
		for name, x := range map[string]struct {
			url  string
			env  []string
			says string
		}{
			"virtual host":  {strings.Replace(strings.Replace(good, "use_path_style=true", "use_path_style=false", 1), url.QueryEscape(s.Endpoint), url.QueryEscape("http://s3.invalid:9000"), 1), s.Env(), "s3.invalid"},
			"no server":     {strings.Replace(good, url.QueryEscape(s.Endpoint), noOne, 1), s.Env(), "refused"},
			"no bucket":     {strings.Replace(good, "s3://"+s.Bucket, "s3://no-such-bucket", 1), s.Env(), "no-such-bucket"},
			"wrong secret":  {good, append(s.Env(), "AWS_SECRET_ACCESS_KEY=wrong"), "Signature"},
			"unknown CA":    {strings.Replace(good, url.QueryEscape(s.Endpoint), url.QueryEscape(unsigned.URL), 1), s.Env(), "x509"},
			"no such param": {good + "&pathstyle=true", s.Env(), "pathstyle"},
		} {
			t.Run(lib+" "+name, func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				r := want(t, verb(t, x.env, "dev", "--data-dir", filepath.Join(t.TempDir(), "d"), "--listen", freeAddr(t), "--admin", "", "--set", "archive.url="+x.url), 1)
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("told after %s", took)
				}
				if !strings.Contains(r.Stderr, x.says) {
					t.Errorf("the error does not say %q: %s", x.says, r.Stderr)
				}
			})
		}
	}
}

// localNeverAheadOfArchive polls until stop is closed that the broker has not deleted what is not archived.
func localNeverAheadOfArchive(t *testing.T, c *client, topic string) (stop func()) {
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		for {
			local, _, err := c.tryOffset(topic, 0, earliestLocal) // first the local start, which only grows, then what is archived
			if err == nil {
				tiered, _, err2 := c.tryOffset(topic, 0, latestTiered)
				if err2 == nil && local > max(tiered+1, 0) {
					t.Errorf("the local log starts at %d, but the archive ends with %d", local, tiered)
					return
				}
			}
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() { close(done); over.Wait() }
}

// The shape of BUG-080, with the store stopped: produce and hot reads go on, uploads resume, nothing is lost or uploaded twice.
func TestS3OutageStopsNothingButUploads(t *testing.T) {
	t.Parallel()
	for _, lib := range bothClients {
		t.Run(lib, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t)
			n := startS3(t, p.url("outage-"+lib, lib))
			c := connect(t, n.Listen)
			c.create("a", 1, tiering...)
			l := startLoad(t, n.Listen, "a", 1, 5000)
			stopWatch := localNeverAheadOfArchive(t, c, "a")
			l.more(1000)
			c.untilEvicted("a", 0, 200)

			p.down()
			from, _ := c.offset("a", 0, latest)
			l.more(2000)
			hot := c.readFrom("a", from)[0]
			if len(hot) < 1500 {
				t.Errorf("%d records read while the store is down", len(hot))
			}
			if slowest := time.Duration(l.slowest.Load()); slowest > 5*time.Second {
				t.Errorf("the slowest acknowledgement took %s", slowest)
			}
			p.up()
			l.more(500)
			l.stop()
			end, _ := c.offset("a", 0, latest)
			c.untilTiered("a", 0, end)
			c.untilEvicted("a", 0, from)
			stopWatch()
			l.check(c)
			if twice := p.uploadedTwice(); len(twice) > 0 {
				t.Errorf("uploaded more than once: %v", twice)
			}
			want(t, verb(t, n.Env, "archive", "verify", "--repo", n.archive), 0)
		})
	}
}

// BUG-080: a store that answers with errors is not hammered, and a broker starts while it does.
func TestS3StoreThatSaysSlowDownIsAskedSlowly(t *testing.T) {
	t.Parallel()
	p := startProxy(t)
	n := startS3(t, p.url("slowdown", "aws"))
	c := connect(t, n.Listen)
	c.create("a", 1, tiering...)
	c.fill("a", 1, 1000, 1000)
	end := int64(1000)
	c.untilTiered("a", 0, end)
	for name, f := range map[string]trouble{"503 without body": status(503, ""), "429": status(429, "TooManyRequests")} {
		p.in(f)
		for range 4 { // several partitions' worth of reasons to ask
			c.write(numbered("a", 0, int(end), 200)...)
			end += 200
		}
		proc.Pause(time.Second) // the back-off has begun
		before := p.requests.Load()
		const window = 2 * time.Second
		proc.Pause(window)
		if got := p.requests.Load() - before; got > 10*int64(window/time.Second) {
			t.Errorf("%s: %d requests in %s", name, got, window)
		}
		p.in(nil)
		c.untilTiered("a", 0, end)
	}
	if got := c.read("a")[0]; int64(len(got)) != end {
		t.Errorf("%d records, want %d", len(got), end)
	}
	if twice := p.uploadedTwice(); len(twice) > 0 {
		t.Errorf("uploaded more than once: %v", twice)
	}
}

func TestS3BrokerStartsWhileItsStoreIsAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(p *proxy) (back func()){
		"503":     func(p *proxy) func() { p.in(status(503, "")); return func() { p.in(nil) } },
		"stopped": func(p *proxy) func() { p.down(); return p.up },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t)
			n := startS3(t, p.url("away-"+name, "aws"))
			c := connect(t, n.Listen)
			c.create("a", 1, "segment.bytes", "1048576")
			d := c.fill("a", 1, 1000, 1000)
			c.untilTiered("a", 0, 1000)
			n.Kill()
			back := away(p)
			n.start()
			c.same("a", d)
			c.write(numbered("a", 0, 1000, 100)...)
			back()
			c.untilTiered("a", 0, 1100)
			dense(t, c.read("a")[0], 0, 1100)
			want(t, verb(t, n.Env, "archive", "verify", "--repo", n.archive), 0)
		})
	}
}

// A third of all requests fail, each in another way, while a topic is written, evicted and read.
func TestS3FlakyStoreLosesNothing(t *testing.T) {
	t.Parallel()
	for _, lib := range bothClients {
		t.Run(lib, func(t *testing.T) {
			t.Parallel()
			p := startProxy(t)
			n := startS3(t, p.url("flaky-"+lib, lib), "archive.cache.memory.bytes=8388608")
			c := connect(t, n.Listen)
			c.create("a", 1, tiering...)
			p.in(flaky())
			l := startLoad(t, n.Listen, "a", 1, 5000)
			l.more(2500)
			l.stop()
			end, _ := c.offset("a", 0, latest)
			c.untilTiered("a", 0, end)
			c.untilEvicted("a", 0, end/2)
			l.check(c)
			p.in(nil)
			l.check(c)
			want(t, verb(t, n.Env, "archive", "verify", "--repo", n.archive), 0)
		})
	}
}

// flaky fails every third request or so: refused, cut off before or after it has been done, late, or broken off in its answer.
func flaky() trouble {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(3, 5))
	return func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		kind := rnd.IntN(18)
		mu.Unlock()
		switch kind {
		case 0:
			return status(503, "SlowDown")(w, r)
		case 1:
			return status(503, "")(w, r)
		case 2:
			return status(500, "InternalError")(w, r)
		case 3:
			return cut(w, r)
		case 4:
			<-time.After(200 * time.Millisecond)
			return false
		case 5:
			w.Header().Set("Content-Length", "1000000") // and then an end
			w.WriteHeader(http.StatusOK)
			w.Write(make([]byte, 100))
			return cut(w, r)
		}
		return false
	}
}
