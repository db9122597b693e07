package localseg

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

const (
	snapshotHeader = 2 + 4 + 4                     // version, crc, count
	snapshotEntry  = 8 + 2 + 4 + 8 + 4 + 8 + 4 + 8 // see format.md
	noSequence     = int32(-1)                     // of a batch that is not idempotent
	noTxn          = int64(-1)                     // no open transaction
)

// encode writes Kafka's producer snapshot, version 1, entries by producer id so that equal states are equal bytes.
func (p *producers) encode() []byte {
	ids := make([]int64, 0, len(p.byID))
	for id := range p.byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	b := make([]byte, 0, snapshotHeader+len(ids)*snapshotEntry)
	b = binary.BigEndian.AppendUint16(b, 1)
	b = append(b, 0, 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(len(ids)))
	for _, id := range ids {
		e := p.byID[id]
		last := e.last()
		b = binary.BigEndian.AppendUint64(b, uint64(id))
		b = binary.BigEndian.AppendUint16(b, uint16(e.epoch))
		b = binary.BigEndian.AppendUint32(b, uint32(last.lastSeq))
		b = binary.BigEndian.AppendUint64(b, uint64(last.lastOffset))
		b = binary.BigEndian.AppendUint32(b, uint32(last.delta))
		b = binary.BigEndian.AppendUint64(b, uint64(e.lastMs))
		b = binary.BigEndian.AppendUint32(b, uint32(e.coordinatorEpoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.txnStart))
	}
	binary.BigEndian.PutUint32(b[2:], crc32.Checksum(b[6:], castagnoli))
	return b
}

func decodeSnapshot(b []byte) (*producers, error) {
	if len(b) < snapshotHeader || binary.BigEndian.Uint16(b) != 1 ||
		binary.BigEndian.Uint32(b[2:]) != crc32.Checksum(b[6:], castagnoli) {
		return nil, fmt.Errorf("producer snapshot: %w", errFormat)
	}
	n := int64(int32(binary.BigEndian.Uint32(b[6:])))
	if b = b[snapshotHeader:]; n < 0 || n*snapshotEntry != int64(len(b)) {
		return nil, fmt.Errorf("producer snapshot: count %d: %w", n, errFormat)
	}
	p := newProducers()
	for ; len(b) > 0; b = b[snapshotEntry:] {
		e := newProducer()
		id := int64(binary.BigEndian.Uint64(b))
		e.epoch = int16(binary.BigEndian.Uint16(b[8:]))
		s := sequence{
			lastSeq:    int32(binary.BigEndian.Uint32(b[10:])),
			lastOffset: int64(binary.BigEndian.Uint64(b[14:])),
			delta:      int32(binary.BigEndian.Uint32(b[22:])),
		}
		e.lastMs = int64(binary.BigEndian.Uint64(b[26:]))
		e.coordinatorEpoch = int32(binary.BigEndian.Uint32(b[34:]))
		e.txnStart = max(noTxn, int64(binary.BigEndian.Uint64(b[38:])))
		if p.byID[id] != nil {
			return nil, fmt.Errorf("producer snapshot: producer %d twice: %w", id, errFormat)
		}
		if s.lastOffset >= 0 {
			e.push(s)
		}
		p.byID[id] = &e
		if e.txnStart != noTxn {
			p.begin(e.txnStart, id)
		}
	}
	return p, nil
}
