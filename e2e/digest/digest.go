// Package digest tells whether two readings of a topic are the same: offsets, timestamps, keys, values, headers.
package digest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Digest is a hash per partition over offset, timestamp, key, value and headers of every record, in the order in which they are
// added. The same digest means the same records. One goroutine uses it.
type Digest struct {
	Records, Bytes int64 // bytes of keys and values
	parts          map[int32]hash.Hash
}

// New returns that of no records.
func New() *Digest { return &Digest{parts: map[int32]hash.Hash{}} }

// Add adds the next record of its partition.
func (d *Digest) Add(r *kgo.Record) {
	h := d.parts[r.Partition]
	if h == nil {
		h = sha256.New()
		d.parts[r.Partition] = h
	}
	var b []byte
	num := func(v int64) { b = binary.BigEndian.AppendUint64(b, uint64(v)) }
	text := func(p []byte) {
		if p == nil {
			num(-1)
			return
		}
		num(int64(len(p)))
		b = append(b, p...)
	}
	num(r.Offset)
	num(r.Timestamp.UnixMilli())
	text(r.Key)
	text(r.Value)
	for _, hd := range r.Headers {
		text([]byte(hd.Key))
		text(hd.Value)
	}
	h.Write(b)
	d.Records++
	d.Bytes += int64(len(r.Key) + len(r.Value))
}

// Sum is a short text of the whole.
func (d *Digest) Sum() string {
	all := sha256.New()
	for p, left := int32(0), len(d.parts); left > 0; p++ {
		if h := d.parts[p]; h != nil {
			left--
			all.Write(binary.BigEndian.AppendUint32(nil, uint32(p)))
			all.Write(h.Sum(nil))
		}
	}
	return hex.EncodeToString(all.Sum(nil))[:16]
}

// Same is an error if got differs from d.
func (d *Digest) Same(got *Digest) error {
	if d.Records != got.Records || d.Sum() != got.Sum() {
		return fmt.Errorf("%d records with digest %s, want %d with %s", got.Records, got.Sum(), d.Records, d.Sum())
	}
	return nil
}
