package e2e

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// garbage is what connections are greeted with that no client sends.
func garbage() map[string][]byte {
	rnd := rand.New(rand.NewPCG(1, 2))
	random := make([]byte, 64<<10)
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	frame := func(size uint32, body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, size), body...)
	}
	request := func(r kmsg.Request, version int16, tail []byte) []byte {
		r.SetVersion(version)
		b := kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)
		b = append(b, tail...)
		binary.BigEndian.PutUint32(b, uint32(len(b)-4))
		return b
	}
	zeros := make([]byte, 1<<20)
	list := map[string][]byte{
		"random":                         random,
		"HTTP":                           []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":                            []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		"size 2^31-1":                    frame(1<<31-1, random[:100]...),
		"negative size":                  frame(1<<32-1, random[:100]...),
		"size 0":                         frame(0),
		"size 100 MiB, nothing more":     frame(100<<20, random[:100]...),
		"a frame of zeros":               append(frame(1<<20), zeros...),
		"unknown API":                    frame(10, 0x7f, 0x7f, 0, 0, 0, 0, 0, 1, 0xff, 0xff),
		"a header that ends too soon":    frame(3, 0, 3, 0),
		"metadata of zeros":              request(kmsg.NewPtrMetadataRequest(), 12, zeros[:60_000]),
		"metadata of 2^31 topics":        frame(14, 0, 3, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff),
		"produce of random":              request(kmsg.NewPtrProduceRequest(), 9, random),
		"fetch of random":                request(kmsg.NewPtrFetchRequest(), 12, random),
		"join of random":                 request(kmsg.NewPtrJoinGroupRequest(), 9, random),
		"version far too new":            request(kmsg.NewPtrMetadataRequest(), 99, nil),
		"half a frame, then nothing":     frame(1000, random[:500]...),
		"create topics with 2^30 topics": frame(14, 0, 19, 0, 4, 0, 0, 0, 1, 0xff, 0xff, 0x3f, 0xff, 0xff, 0xff),
	}
	return list
}

// hit sends bytes and reads until the peer ends the connection or is silent.
func hit(addr string, b []byte) error {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	c.Write(b)
	io.Copy(io.Discard, c)
	return nil
}

func TestGarbageNeitherKillsNorFillsTheProcess(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("calm", 1)
	c.write(numbered("calm", 0, 0, 10)...)
	before := resident(t, n)
	for name, b := range garbage() {
		for _, addr := range []string{n.Listen, n.Admin} {
			var over sync.WaitGroup
			for range 20 {
				over.Go(func() {
					if err := hit(addr, b); err != nil {
						t.Errorf("%s to %s: %v", name, addr, err)
					}
				})
			}
			over.Wait()
		}
		if n.Ended() {
			t.Fatalf("the process ended after %q", name)
		}
		if now := resident(t, n); now > before+300<<20 {
			t.Errorf("%q: resident memory went from %d to %d MiB", name, before>>20, now>>20)
		}
	}
	c.write(numbered("calm", 0, 10, 10)...)
	dense(t, c.read("calm")[0], 0, 20)
	resp, err := http.Get("http://" + n.Admin + "/readyz")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("readyz: %v, %v", resp, err)
	}
	if strings.Contains(n.Output(), "panic") || strings.Contains(n.Output(), "goroutine ") {
		t.Errorf("the log shows a panic")
	}
}

func TestManyIdleConnectionsCostLittle(t *testing.T) {
	t.Parallel()
	n := start(t)
	before := resident(t, n)
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for range 1000 {
		c, err := net.Dial("tcp", n.Listen)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		c.Write([]byte{0, 0}) // half a size
	}
	c := connect(t, n.Listen)
	c.create("a", 1)
	c.write(numbered("a", 0, 0, 10)...)
	if now := resident(t, n); now > before+100<<20 {
		t.Errorf("resident memory went from %d to %d MiB", before>>20, now>>20)
	}
}

func resident(t *testing.T, n *node) int64 {
	t.Helper()
	b, err := n.ResidentBytes()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
