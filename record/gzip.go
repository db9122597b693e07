package record

import (
	"bytes"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// gunzipper is a reusable gzip decoder and its source.
type gunzipper struct {
	src bytes.Reader
	z   gzip.Reader
}

var gunzippers = sync.Pool{New: func() any { return new(gunzipper) }}

func gunzip(dst, src []byte, limit int) ([]byte, error) {
	g := gunzippers.Get().(*gunzipper)
	defer func() {
		g.src.Reset(nil)
		gunzippers.Put(g)
	}()
	g.src.Reset(src)
	if err := g.z.Reset(&g.src); err != nil {
		return dst, err
	}
	return readAll(dst, &g.z, limit)
}

// gzippers are pools of encoders by level; 0 is the default level.
var gzippers [gzip.BestCompression + 1]sync.Pool

// appender is an io.Writer that appends.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

func gzipTo(dst, src []byte, level int) ([]byte, error) {
	if level < 0 || level > gzip.BestCompression {
		level = 0
	}
	w, _ := gzippers[level].Get().(*gzip.Writer)
	if w == nil {
		at := level
		if at == 0 {
			at = gzip.DefaultCompression
		}
		var err error
		if w, err = gzip.NewWriterLevel(nil, at); err != nil {
			return dst, err
		}
	}
	a := &appender{dst}
	w.Reset(a)
	_, err := w.Write(src)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	w.Reset(nil)
	gzippers[level].Put(w)
	return a.b, err
}
