package broker

import (
	"io"
	"net"
	"time"

	"github.com/varvelog/varve/broker/replica"
)

// sender writes to a connection: bytes as they are, file ranges by sendfile where that is cheaper. It has one caller at a time: the
// reader, or the outbox's writer.
type sender struct {
	nc      net.Conn
	timeout time.Duration // a peer that takes nothing for so long is cut
	raw     rawSender     // sendfile; not available on everything
	vec     net.Buffers   // scratch
}

// sendfileBytes is the size from which on a file range goes out by sendfile. Below it one pread into the buffer that holds the
// header, and one write, cost less.
const sendfileBytes = 96 << 10

// gatherBytes is how much is gathered into one write.
const gatherBytes = 256 << 10

func (s *sender) init(nc net.Conn, timeout time.Duration) {
	s.nc, s.timeout = nc, timeout
	s.raw.init(nc)
}

// bytes writes b.
func (s *sender) bytes(b []byte) error {
	s.nc.SetWriteDeadline(time.Now().Add(s.timeout))
	_, err := s.nc.Write(b)
	return err
}

// fetch writes prefix, earlier responses, then the response r: its bytes with the record ranges between. It releases r, also after
// an error.
func (s *sender) fetch(prefix []byte, r *fetchReply) error {
	defer r.release()
	s.nc.SetWriteDeadline(time.Now().Add(s.timeout))
	g := gather{s: s, buf: getBuffer(min(gatherBytes, len(prefix)+len(r.buf)+r.dataBytes()))}
	defer func() { g.buf.free() }()
	g.buf.b = g.buf.b[:0]
	g.add(prefix)
	at := 0
	for i := range r.cuts {
		cut := &r.cuts[i]
		g.add(r.buf[at:cut.at])
		at = cut.at
		g.slice(&cut.slice)
	}
	g.add(r.buf[at:])
	g.flush(false)
	return g.err
}

// gather collects bytes in a pooled buffer and writes it when it is full, or before a range that is not copied.
type gather struct {
	s   *sender
	buf *buffer
	err error
}

func (g *gather) room() int { return cap(g.buf.b) - len(g.buf.b) }

func (g *gather) add(b []byte) {
	for g.err == nil && len(b) > 0 {
		if g.room() == 0 {
			g.flush(true)
			continue
		}
		n := copy(g.buf.b[len(g.buf.b):cap(g.buf.b)], b)
		g.buf.b = g.buf.b[:len(g.buf.b)+n]
		b = b[n:]
	}
}

// flush writes what is gathered; more says that bytes follow at once.
func (g *gather) flush(more bool) {
	if g.err != nil || len(g.buf.b) == 0 {
		return
	}
	if more && g.s.raw.usable() {
		g.err = g.s.raw.more(g.buf.b)
	} else {
		_, g.err = g.s.nc.Write(g.buf.b)
	}
	g.buf.b = g.buf.b[:0]
}

func (g *gather) slice(sl *replica.Slice) {
	switch {
	case sl.Size == 0 || g.err != nil:
	case len(sl.Cold) > 0:
		g.cold(sl.Cold)
	default:
		g.hot(sl)
	}
}

// hot sends a file range.
func (g *gather) hot(sl *replica.Slice) {
	span := sl.Hot
	if f := span.File; sl.Size >= sendfileBytes && g.s.raw.usable() && f != nil && f.OS() != nil {
		g.flush(true)
		if g.err == nil {
			g.err = g.s.raw.sendFile(f.OS(), span.Pos, span.Size)
		}
		return
	}
	for off := int64(0); off < span.Size && g.err == nil; {
		if g.room() == 0 {
			g.flush(true)
			continue
		}
		n := min(int64(g.room()), span.Size-off)
		old := len(g.buf.b)
		read, err := span.ReadAt(g.buf.b[old:old+int(n)], off)
		if int64(read) < n {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			g.err = err // the length is promised: only cutting the connection is left
			return
		}
		g.buf.b = g.buf.b[:old+read]
		off += n
	}
}

// cold sends parts that lie in memory: copied if all fit into what is gathered, else by writev.
func (g *gather) cold(parts [][]byte) {
	size := 0
	for _, p := range parts {
		size += len(p)
	}
	if size <= g.room() && size < sendfileBytes {
		for _, p := range parts {
			g.add(p)
		}
		return
	}
	g.flush(true)
	if g.err != nil {
		return
	}
	g.s.vec = append(g.s.vec[:0], parts...)
	v := g.s.vec
	_, g.err = v.WriteTo(g.s.nc)
	clear(g.s.vec)
}
