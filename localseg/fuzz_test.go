package localseg

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/record"
)

func FuzzSnapshot(f *testing.F) {
	p := newProducers()
	e := newProducer()
	e.epoch, e.txnStart = 3, 9
	e.push(sequence{lastSeq: 4, delta: 1, lastOffset: 12})
	p.byID[7] = &e
	f.Add(p.encode())
	f.Add(newProducers().encode())
	f.Add([]byte{0, 1, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodeSnapshot(b)
		if err != nil {
			return
		}
		again, err := decodeSnapshot(p.encode())
		if err != nil || !bytes.Equal(again.encode(), p.encode()) {
			t.Fatalf("not stable: %v", err)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	f.Add(checkpoint{recovery: 5, base: 2, pos: 90, logStart: 1, lastAppendMs: 1e12, snapshot: 5}.encode())
	f.Add(checkpoint{snapshot: -1, reset: resetClear}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := decodeCheckpoint(b); err == nil && !bytes.Equal(c.encode(), b) {
			t.Fatalf("%+v encodes to other bytes", c)
		}
	})
}

func FuzzEpochs(f *testing.F) {
	f.Add([]byte("0\n2\n1 0\n4 100\n"))
	f.Add([]byte("0\n0\n"))
	f.Add([]byte("0\n99999999999\n1 0\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := decodeEpochs(b)
		if err != nil {
			return
		}
		h := epochHistory{list: list}
		for e := int32(-2); e < 6; e++ {
			h.endOffset(e, 1<<40)
		}
		if again, err := decodeEpochs(encodeEpochs(list)); err != nil || len(again) != len(list) {
			t.Fatalf("not stable: %v", err)
		}
	})
}

func FuzzIndexes(f *testing.F) {
	f.Add(encodeOffsets(nil, []offsetEntry{{3, 100}, {9, 300}}), int64(20), int64(400))
	f.Add(encodeTimes(nil, []timeEntry{{1000, 3}, {2000, 9}}), int64(20), int64(400))
	f.Add(encodeAppends(nil, []appendEntry{{1000, 19, 3}, {1020, 0, 9}}), int64(20), int64(400))
	f.Add(encodeAborted(nil, []AbortedTxn{{ProducerID: 1, First: 2, Last: 5, LastStable: 6}}), int64(20), int64(400))
	f.Fuzz(func(t *testing.T, b []byte, end, size int64) {
		if list, err := decodeOffsets(b, end, size); err == nil && !bytes.Equal(encodeOffsets(nil, list), b) {
			t.Fatal("offsets are not stable")
		}
		if list, err := decodeTimes(b, end); err == nil && !bytes.Equal(encodeTimes(nil, list), b) {
			t.Fatal("times are not stable")
		}
		var list []appendEntry
		good, err := scanAppends(bytes.NewReader(b), 0, len(b)/appendEntrySize, appendEntry{}, func(e appendEntry) bool {
			list = append(list, e)
			return true
		})
		if err != nil || good != len(list) || !bytes.HasPrefix(b, encodeAppends(nil, list)) {
			t.Fatalf("append times are not stable: %d good, %v", good, err)
		}
		if list, err := decodeAborted(b, 0, end); err == nil && !bytes.Equal(encodeAborted(nil, list), b) {
			t.Fatal("aborted transactions are not stable")
		}
		for _, ext := range []string{extIndex, extTimeIndex, extTxnIndex} {
			clip(b, ext, end, size, end)
		}
	})
}

// Whatever follows the good batches of a segment: Open keeps the good ones, a prefix of good batches, and can go on.
func FuzzTail(f *testing.F) {
	good, err := record.Build(nil, record.BatchOptions{ProducerID: 3, BaseSequence: 0}, []record.Record{{Timestamp: 5, Value: []byte("x")}})
	if err != nil {
		f.Fatal(err)
	}
	next := bytes.Clone(good)
	record.Batch(next).SetOffset(1)
	f.Add([]byte(nil))
	f.Add(next)
	f.Add(next[:60])
	f.Add(append(bytes.Clone(next), make([]byte, 600)...))
	f.Add([]byte(record.BuildMarker(nil, 3, 0, 5, record.Marker{})))
	f.Fuzz(func(t *testing.T, tail []byte) {
		m := vfs.NewMem()
		m.MkdirAll("/d", 0o755)
		w, _ := m.OpenFile(fileName("/d", 0, extLog), os.O_CREATE|os.O_RDWR, 0o644)
		w.Write(good)
		if n := len(tail); n > 61 && n%2 == 0 { // also what only a checksum would keep out
			sealed := bytes.Clone(tail)
			binary.BigEndian.PutUint32(sealed[8:], uint32(n-12))
			sealed[16] = 2
			binary.BigEndian.PutUint32(sealed[17:], crc32.Checksum(sealed[21:], castagnoli))
			w.Write(sealed)
		}
		w.Write(tail)
		l, err := Open(m, "/d", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if l.LEO() < 1 || l.SizeBytes() < int64(len(good)) || l.SizeBytes() > int64(len(good)+2*len(tail)) {
			t.Fatalf("LEO %d, %d bytes", l.LEO(), l.SizeBytes())
		}
		leo := l.LEO()
		for off := int64(0); off < leo; {
			s, err := l.Read(off, leo, 1<<20)
			if err != nil || s.Next <= off {
				t.Fatalf("read at %d: %+v, %v", off, s, err)
			}
			off = s.Next
			s.Release()
		}
		b := bytes.Clone(good)
		if l.LEO() > 1<<62 {
			return
		}
		if _, err := l.Append([]record.Batch{b}, 1<<30, OriginInternal); err != nil && l.offline.Load() != nil {
			t.Fatal(err)
		}
	})
}
