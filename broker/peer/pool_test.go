package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// far is the other broker: it answers each request with its own bytes, after the wait that the first byte asks for, in seconds.
type far struct {
	mu      sync.Mutex
	refuses bool
	epoch   int64
	dials   int
	down    []int32
	conns   []net.Conn
}

func (f *far) options() Options {
	return Options{
		MaxResponseBytes: 100,
		Address: func(id int32) (string, int64, bool) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return "far", f.epoch, id == 7
		},
		Dial: func(context.Context, string) (net.Conn, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.refuses {
				return nil, errors.New("refused")
			}
			f.dials++
			near, there := net.Pipe()
			f.conns = append(f.conns, there)
			go serve(there)
			return near, nil
		},
		OnDown: func(id int32) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.down = append(f.down, id)
		},
	}
}

func serve(nc net.Conn) {
	var head [4]byte
	for {
		if _, err := io.ReadFull(nc, head[:]); err != nil {
			return
		}
		b := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(nc, b); err != nil {
			return
		}
		time.Sleep(time.Duration(b[0]) * time.Second) // in a bubble
		if b[1] == 'L' {
			b = make([]byte, 101)
		}
		binary.BigEndian.PutUint32(head[:], uint32(len(b)))
		if _, err := nc.Write(append(head[:], b...)); err != nil {
			return
		}
	}
}

func TestPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{epoch: 1}
		p := New(f.options())
		ask := func(ctx context.Context, id int32, lane int, b string) error {
			got, err := p.Do(ctx, id, lane, []byte(b))
			if err == nil && string(got) != b {
				t.Errorf("answer %q to %q", got, b)
			}
			return err
		}
		state := func(what string, dials int, down ...int32) {
			t.Helper()
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.dials != dials || !slices.Equal(f.down, down) {
				t.Errorf("%s: %d dials, down %v, want %d, %v", what, f.dials, f.down, dials, down)
			}
		}
		if err := ask(t.Context(), 8, 0, "\x00abc"); !errors.Is(err, ErrUnknown) {
			t.Errorf("unknown broker: %v", err)
		}
		for range 3 {
			if err := ask(t.Context(), 7, 0, "\x00abc"); err != nil {
				t.Fatal(err)
			}
		}
		state("one connection serves many requests", 1)

		var wg sync.WaitGroup
		began := time.Now()
		for lane := range 3 {
			wg.Go(func() { ask(t.Context(), 7, lane, "\x01abc") })
		}
		wg.Wait()
		if d := time.Since(began); d != time.Second {
			t.Errorf("three lanes took %s, want a second", d)
		}
		state("each lane has its connection", 3)

		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := ask(ctx, 7, 0, "\x05abc"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up: %v", err)
		}
		cancel()
		if err := ask(t.Context(), 7, 0, "\x00abc"); err != nil {
			t.Fatal(err)
		}
		state("a request that is given up says nothing about the broker", 4)

		f.mu.Lock()
		f.epoch = 2
		f.mu.Unlock()
		if err := ask(t.Context(), 7, 0, "\x00abc"); err != nil {
			t.Fatal(err)
		}
		state("another process of the broker is dialled anew", 5)

		if err := ask(t.Context(), 7, 0, "\x00Larger than allowed"); err == nil {
			t.Error("a response above the limit was read")
		}
		state("it ends the connection", 5, 7)

		f.mu.Lock()
		f.refuses = true
		f.mu.Unlock()
		if err := ask(t.Context(), 7, 0, "\x00abc"); err == nil {
			t.Error("refused, but no error")
		}
		state("a refusal is told", 5, 7, 7)

		f.mu.Lock()
		f.refuses = false
		f.mu.Unlock()
		failed := make(chan error)
		go func() { failed <- ask(t.Context(), 7, 1, "\x09abc") }()
		synctest.Wait()
		p.Close()
		if err := <-failed; err == nil {
			t.Error("a request outlived the pool")
		}
		if err := ask(t.Context(), 7, 1, "\x00abc"); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, c := range f.conns {
			c.Close()
		}
		time.Sleep(10 * time.Second) // until all that slept has ended
	})
}
