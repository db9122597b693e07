package broker

import (
	"encoding/binary"
	"sync"
)

// outbox writes the responses of a connection in the order of their requests.
//
// Usually the reader writes: responses collect in out, which is flushed before the reader waits for the socket. A response that is
// not known yet (a Produce that waits for acks=all) starts the writer: from then on every response goes into the queue, and the
// writer goroutine completes and writes them in order. When the queue is empty it ends, and the reader writes again. So there is
// no hand-over between goroutines where nothing waits.
type outbox struct {
	c   *conn
	out []byte // owned by the reader; empty while the writer is active

	mu     sync.Mutex
	cond   sync.Cond // room in the queue, or the writer has ended
	queue  []reply   // guarded by mu; in order
	bytes  int       // guarded by mu; of the queue
	active bool      // guarded by mu; set by the reader, cleared by the writer
	err    error     // guarded by mu; the first failure to write
}

// reply is one queued response: its bytes, bytes with file ranges between, or a function that waits and makes the bytes.
type reply struct {
	buf   []byte
	fetch *fetchReply
	wait  func() []byte
}

const (
	maxOutBytes    = 64 << 10 // out is flushed from here on
	maxQueuedBytes = 16 << 20 // of one connection's queue
	keepOutBytes   = 1 << 20  // a larger out is not kept
)

func (o *outbox) init(c *conn) {
	o.c = c
	o.cond.L = &o.mu
}

// begin returns the slice to append the next response to; pass it to end.
func (o *outbox) begin() []byte {
	if o.queued() {
		return nil
	}
	return o.out
}

// queued tells whether the writer is active. Only the reader starts it, so false stays false for the reader.
func (o *outbox) queued() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.active
}

// end takes the response that begins at start of dst, patching its length.
func (o *outbox) end(dst []byte, start int) error {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	if start == 0 && o.queued() {
		return o.push(reply{buf: dst})
	}
	o.out = dst
	if len(o.out) >= maxOutBytes {
		return o.flush()
	}
	return nil
}

// endFetch takes a Fetch response, now owned by the outbox.
func (o *outbox) endFetch(r *fetchReply) error {
	if o.queued() {
		return o.push(reply{fetch: r.detach()})
	}
	err := o.c.send.fetch(o.out, r)
	o.out = o.out[:0]
	return err
}

// later queues a response that wait makes; the writer calls it. It starts the writer.
func (o *outbox) later(wait func() []byte) error {
	if !o.queued() {
		if err := o.flush(); err != nil {
			return err
		}
	}
	return o.push(reply{wait: wait})
}

// flush writes what has collected; for the reader, before it waits.
func (o *outbox) flush() error {
	if len(o.out) == 0 {
		return nil
	}
	err := o.c.send.bytes(o.out)
	o.out = o.out[:0]
	if cap(o.out) > keepOutBytes {
		o.out = nil
	}
	return err
}

// push appends to the queue, waiting for room, and starts the writer if it is not there.
func (o *outbox) push(r reply) error {
	o.mu.Lock()
	for o.err == nil && (len(o.queue) >= o.c.s.Options.MaxInFlight || o.bytes > maxQueuedBytes) {
		o.cond.Wait()
	}
	if o.err != nil {
		err := o.err
		o.mu.Unlock()
		r.release()
		return err
	}
	o.queue = append(o.queue, r)
	o.bytes += r.size()
	start := !o.active
	o.active = true
	o.mu.Unlock()
	if start {
		go o.write()
	}
	return nil
}

// write is the writer: it ends when the queue is empty or a write has failed.
func (o *outbox) write() {
	for {
		o.mu.Lock()
		if len(o.queue) == 0 || o.err != nil {
			for _, r := range o.queue {
				r.release()
			}
			o.queue, o.bytes, o.active = nil, 0, false
			o.cond.Broadcast()
			o.mu.Unlock()
			return
		}
		r := o.queue[0]
		o.mu.Unlock()

		err := o.writeOne(r)

		o.mu.Lock()
		o.queue = o.queue[1:]
		o.bytes -= r.size()
		if err != nil {
			o.err = err
			o.c.nc.Close() // the reader must not go on
		}
		o.cond.Broadcast()
		o.mu.Unlock()
	}
}

func (o *outbox) writeOne(r reply) error {
	switch {
	case r.fetch != nil:
		return o.c.send.fetch(nil, r.fetch)
	case r.wait != nil:
		if buf := r.wait(); buf != nil {
			return o.c.send.bytes(buf)
		}
		return nil
	}
	return o.c.send.bytes(r.buf)
}

// finish waits until all responses are written or one has failed.
func (o *outbox) finish() error {
	o.mu.Lock()
	for o.active {
		o.cond.Wait()
	}
	err := o.err
	o.mu.Unlock()
	if err != nil {
		return err
	}
	return o.flush()
}

func (r *reply) size() int {
	if r.fetch != nil {
		return len(r.fetch.buf)
	}
	return len(r.buf)
}

// release gives back what an unwritten response holds.
func (r *reply) release() {
	if r.fetch != nil {
		r.fetch.release()
	}
}
