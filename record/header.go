package record

import (
	"encoding/binary"
	"hash/crc32"
	"math"
)

// HeaderSize is the number of bytes before the first record.
const HeaderSize = 61

// Positions of the header fields; see format.md.
const (
	atBaseOffset    = 0
	atSize          = 8
	atLeaderEpoch   = 12
	atMagic         = 16
	atCRC           = 17
	atAttributes    = 21 // the CRC covers all from here on
	atLastDelta     = 23
	atBaseTimestamp = 27
	atMaxTimestamp  = 35
	atProducerID    = 43
	atProducerEpoch = 51
	atBaseSequence  = 53
	atCount         = 57

	sizeOverhead = 12 // the size field counts the bytes after itself
	magicV2      = 2
)

// Bits of the attributes; the lowest three are the codec.
const (
	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// castagnoli is the polynomial of the batch checksum.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (b Batch) u32(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
func (b Batch) u64(at int) uint64 { return binary.BigEndian.Uint64(b[at:]) }

// BaseOffset is the offset of the batch's first offset, whether or not a record is left there.
func (b Batch) BaseOffset() int64 { return int64(b.u64(atBaseOffset)) }

// LastOffset is the last offset the batch covers, inclusive; a compacted batch may have no record there.
func (b Batch) LastOffset() int64 { return b.BaseOffset() + int64(b.lastDelta()) }

// NextOffset is the offset after the batch: LastOffset + 1.
func (b Batch) NextOffset() int64 { return b.LastOffset() + 1 }

func (b Batch) lastDelta() int32 { return int32(b.u32(atLastDelta)) }

// LeaderEpoch is the epoch of the leader that appended the batch; not covered by the CRC.
func (b Batch) LeaderEpoch() int32 { return int32(b.u32(atLeaderEpoch)) }

// Magic is the version of the format: 2.
func (b Batch) Magic() int8 { return int8(b[atMagic]) }

// CRC is the stored CRC-32C of everything from the attributes on.
func (b Batch) CRC() uint32 { return b.u32(atCRC) }

// Attributes are the flag bits, see format.md.
func (b Batch) Attributes() int16 { return int16(binary.BigEndian.Uint16(b[atAttributes:])) }

// Codec is how the records are compressed; values above Zstd are unknown and refused by Check.
func (b Batch) Codec() Codec { return Codec(b.Attributes() & attrCodec) }

// LogAppendTime says that every record has the batch's max timestamp, stamped by the broker.
func (b Batch) LogAppendTime() bool { return b.Attributes()&attrLogAppendTime != 0 }

// Transactional says that the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.Attributes()&attrTransactional != 0 }

// Control says that the batch holds a control record (a marker), not data.
func (b Batch) Control() bool { return b.Attributes()&attrControl != 0 }

// DeleteHorizon is the time in ms after which the cleaner may drop the batch's tombstones and markers (KIP-534), if set.
func (b Batch) DeleteHorizon() (int64, bool) {
	if b.Attributes()&attrDeleteHorizon == 0 {
		return 0, false
	}
	return b.BaseTimestamp(), true
}

// BaseTimestamp in ms is what the records' timestamp deltas count from.
func (b Batch) BaseTimestamp() int64 { return int64(b.u64(atBaseTimestamp)) }

// MaxTimestamp in ms is the largest timestamp of the records, or the append time; -1 where no record has one.
func (b Batch) MaxTimestamp() int64 { return int64(b.u64(atMaxTimestamp)) }

// ProducerID is that of an idempotent or transactional producer, else -1.
func (b Batch) ProducerID() int64 { return int64(b.u64(atProducerID)) }

// ProducerEpoch is -1 where there is no producer id.
func (b Batch) ProducerEpoch() int16 { return int16(binary.BigEndian.Uint16(b[atProducerEpoch:])) }

// BaseSequence is the sequence number of the first offset; -1 where there is none.
func (b Batch) BaseSequence() int32 { return int32(b.u32(atBaseSequence)) }

// LastSequence is the sequence number of the last offset; it wraps at 2^31. -1 where there is no base sequence.
func (b Batch) LastSequence() int32 {
	base := b.BaseSequence()
	if base < 0 {
		return -1
	}
	return int32((int64(base) + int64(b.lastDelta())) & math.MaxInt32)
}

// Count is the number of records; compaction makes it smaller than the number of offsets.
func (b Batch) Count() int32 { return int32(b.u32(atCount)) }

// SetOffset patches the base offset, which the CRC does not cover.
func (b Batch) SetOffset(base int64) { binary.BigEndian.PutUint64(b[atBaseOffset:], uint64(base)) }

// SetLeaderEpoch patches the leader epoch, which the CRC does not cover.
func (b Batch) SetLeaderEpoch(e int32) { binary.BigEndian.PutUint32(b[atLeaderEpoch:], uint32(e)) }

// SetMaxTimestamp patches timestamp type, max timestamp and the CRC.
func (b Batch) SetMaxTimestamp(ms int64, logAppendTime bool) {
	a := b.Attributes() &^ attrLogAppendTime
	if logAppendTime {
		a |= attrLogAppendTime
	}
	b.setAttributes(a)
	b.setMaxTimestamp(ms)
	b.seal()
}

func (b Batch) setAttributes(a int16) { binary.BigEndian.PutUint16(b[atAttributes:], uint16(a)) }
func (b Batch) setMaxTimestamp(ms int64) {
	binary.BigEndian.PutUint64(b[atMaxTimestamp:], uint64(ms))
}

// seal writes the CRC that the bytes have now.
func (b Batch) seal() { binary.BigEndian.PutUint32(b[atCRC:], b.checksum()) }

func (b Batch) checksum() uint32 { return crc32.Checksum(b[atAttributes:], castagnoli) }
