package fault

import (
	"fmt"
	"io"

	"github.com/varvelog/varve/objstore"
)

// badBody breaks off or has a bit flipped at rule.At, counted from the first byte that was asked for.
type badBody struct {
	io.ReadCloser
	rule Rule
	key  string
	read int64
}

func (b *badBody) ObjectInfo() objstore.Info {
	info, _ := objstore.InfoOf(b.ReadCloser)
	return info
}

func (b *badBody) Read(p []byte) (int, error) {
	if b.rule.Effect == Truncate {
		if b.read >= b.rule.At {
			return 0, fmt.Errorf("read %s: injected: %w: %w", b.key, objstore.ErrUnavailable, io.ErrUnexpectedEOF)
		}
		p = p[:min(int64(len(p)), b.rule.At-b.read)]
	}
	n, err := b.ReadCloser.Read(p)
	if i := b.rule.At - b.read; b.rule.Effect == Flip && i >= 0 && i < int64(n) {
		p[i] ^= 1
	}
	b.read += int64(n)
	return n, err
}
