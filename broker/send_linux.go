package broker

import (
	"io"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// rawSender calls sendmsg with MSG_MORE, and sendfile, on a TCP socket: header and range leave in full packets, and the range is
// never copied to user space. The closure is made once a connection.
type rawSender struct {
	rc   syscall.RawConn
	step func(fd uintptr) bool

	// state of one call
	buf  []byte
	file int // -1: send buf
	pos  int64
	left int64
	err  error
}

func (r *rawSender) init(nc net.Conn) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	rc, err := tcp.SyscallConn()
	if err != nil {
		return
	}
	r.rc = rc
	r.step = r.once
}

func (r *rawSender) usable() bool { return r.rc != nil }

// more sends b and tells the kernel that more follows.
func (r *rawSender) more(b []byte) error {
	r.buf, r.file, r.err = b, -1, nil
	return r.run()
}

// sendFile sends [pos, pos+n) of f.
func (r *rawSender) sendFile(f *os.File, pos, n int64) error {
	r.buf, r.file, r.pos, r.left, r.err = nil, int(f.Fd()), pos, n, nil
	err := r.run()
	runtime.KeepAlive(f)
	return err
}

func (r *rawSender) run() error {
	err := r.rc.Write(r.step)
	r.buf = nil
	if r.err != nil {
		return r.err
	}
	return err
}

// once sends until all is sent or the socket is full: then false makes the runtime wait for room.
func (r *rawSender) once(fd uintptr) bool {
	for r.file < 0 && len(r.buf) > 0 || r.file >= 0 && r.left > 0 {
		n, err := r.send(int(fd))
		switch {
		case err == unix.EAGAIN:
			return false
		case err == unix.EINTR:
			continue
		case err != nil:
			r.err = os.NewSyscallError("send", err)
			return true
		case n == 0:
			r.err = io.ErrUnexpectedEOF // the file is shorter than the range
			return true
		}
		if r.file < 0 {
			r.buf = r.buf[n:]
		} else {
			r.left -= int64(n)
		}
	}
	return true
}

// maxSendfile keeps one call short, so that a deadline is met.
const maxSendfile = 4 << 20

func (r *rawSender) send(fd int) (int, error) {
	if r.file < 0 {
		return unix.SendmsgN(fd, r.buf, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
	}
	return unix.Sendfile(fd, r.file, &r.pos, int(min(r.left, maxSendfile)))
}
