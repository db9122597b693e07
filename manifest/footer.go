package manifest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/internal/invariants"
	"github.com/varvelog/varve/record"
)

// IndexEntry: the batch at byte Pos of the object begins at Offset; MaxTimestamp is the largest up to and with it.
type IndexEntry struct {
	Offset       int64
	Pos          int64
	MaxTimestamp int64
}

// Chunk is a run of whole batches in a segment object, the unit of checking and caching.
type Chunk struct {
	Pos    int64
	Size   int64
	First  int64 // base offset of its first batch
	CRC32C uint32
}

// Footer makes a segment object understandable alone. The object is: batches, footer, trailer.
//
// Chunks cover the data without a hole. Base is the base offset of the first batch and End the offset after the last
// record; offsets between may be missing. Index, Chunks, AppendTimes and Epochs are ascending.
type Footer struct {
	Cluster            string
	Partition          PartitionID
	TopicName          string
	Base, End          int64
	LeaderEpoch        int32 // of the uploader
	Incarnation        uint32
	DataBytes          int64
	Records            int64
	MaxTimestamp       record.AppendTime // Ms = the largest record timestamp, Offset = the first record that has it
	Index              []IndexEntry
	Chunks             []Chunk
	AppendTimes        []record.AppendTime // each ends, in time too, before the next one begins
	AppendResolutionMs int64               // stretches of append times are shorter, but where times were lost
	Aborted            []record.AbortedTxn
	Epochs             []record.Epoch // whole history up to End
	Producers          []byte         // Kafka's producer snapshot at End
	SHA256             [32]byte       // of the data part
}

const (
	footerVersion  = 1
	indexSize      = 3 * 8
	chunkSize      = 3*8 + 4
	appendTimeSize = 2*8 + 4
	abortedSize    = 4 * 8

	// TrailerLen is the size of the trailer, the last bytes of a segment object.
	TrailerLen     = 16
	trailerVersion = 1
)

// Encode makes the footer and the trailer, to be written after the data. The footer must pass Check.
func (f *Footer) Encode() []byte {
	if err := f.Check(); err != nil {
		invariants.Assert(false, "encode footer of %v [%d, %d): %v", f.Partition, f.Base, f.End, err)
	}
	size := 256 + len(f.Index)*indexSize + len(f.Chunks)*chunkSize + len(f.AppendTimes)*appendTimeSize +
		len(f.Aborted)*abortedSize + len(f.Epochs)*epochSize + len(f.Producers) + TrailerLen
	e := newEncoder(magicFooter, footerVersion, size)
	e.str(f.Cluster)
	e.raw(f.Partition.Topic[:])
	e.i32(f.Partition.Partition)
	e.str(f.TopicName)
	e.i64(f.Base)
	e.i64(f.End)
	e.i32(f.LeaderEpoch)
	e.u32(f.Incarnation)
	e.i64(f.DataBytes)
	e.i64(f.Records)
	e.i64(f.MaxTimestamp.Ms)
	e.i64(f.MaxTimestamp.Offset)
	e.u32(uint32(len(f.Index)))
	for _, x := range f.Index {
		e.i64(x.Offset)
		e.i64(x.Pos)
		e.i64(x.MaxTimestamp)
	}
	e.u32(uint32(len(f.Chunks)))
	for _, c := range f.Chunks {
		e.i64(c.Pos)
		e.i64(c.Size)
		e.i64(c.First)
		e.u32(c.CRC32C)
	}
	e.i64(f.AppendResolutionMs)
	e.u32(uint32(len(f.AppendTimes)))
	for _, a := range f.AppendTimes {
		e.i64(a.Ms)
		e.i64(a.Offset)
		e.u32(a.SpanMs)
	}
	e.u32(uint32(len(f.Aborted)))
	for _, a := range f.Aborted {
		e.i64(a.ProducerID)
		e.i64(a.First)
		e.i64(a.Last)
		e.i64(a.LastStable)
	}
	appendEpochs(e, f.Epochs)
	e.bytes(f.Producers)
	e.raw(f.SHA256[:])
	return appendTrailer(e.finish())
}

func appendTrailer(footer []byte) []byte {
	at := len(footer)
	b := binary.BigEndian.AppendUint32(footer, uint32(at))
	b = binary.BigEndian.AppendUint16(b, trailerVersion)
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint32(b, crc32c(b[at:at+8]))
	return append(b, magicTrailer[:]...)
}

// ParseTrailer says where the footer of a segment object lies: n bytes at pos, which is also the size of the data. The
// tail is the object's end, at least TrailerLen bytes of it, size the size of the object.
func ParseTrailer(tail []byte, size int64) (pos, n int64, err error) {
	if len(tail) < TrailerLen || int64(len(tail)) > size {
		return 0, 0, &CorruptError{Offset: max(size, 0), Err: fmt.Errorf("%d bytes of an object of %d hold no trailer", len(tail), size)}
	}
	at := size - TrailerLen
	t := tail[len(tail)-TrailerLen:]
	if magic(t[12:]) != magicTrailer {
		return 0, 0, &CorruptError{Offset: at + 12, Err: fmt.Errorf("trailer magic %q, want %q", t[12:], magicTrailer[:])}
	}
	if got, want := crc32c(t[:8]), binary.BigEndian.Uint32(t[8:]); got != want {
		return 0, 0, &CorruptError{Offset: at + 8, Err: fmt.Errorf("trailer CRC-32C %08x, want %08x", got, want)}
	}
	switch v := binary.BigEndian.Uint16(t[4:]); {
	case v > trailerVersion:
		return 0, 0, fmt.Errorf("trailer version %d, known up to %d: %w", v, trailerVersion, ErrUnsupported)
	case v == 0 || binary.BigEndian.Uint16(t[6:]) != 0:
		return 0, 0, &CorruptError{Offset: at + 4, Err: errors.New("trailer version 0 or reserved field set")}
	}
	n = int64(binary.BigEndian.Uint32(t))
	if n < envelopeLen || n >= at {
		return 0, 0, &CorruptError{Offset: at, Err: fmt.Errorf("footer of %d bytes in an object of %d", n, size)}
	}
	return at - n, n, nil
}

// DecodeFooter decodes the footer's bytes, without the trailer; what it returns passes Check. The caller compares
// DataBytes with the position that ParseTrailer gave, and Partition and Base with the object's key.
func DecodeFooter(b []byte) (*Footer, error) {
	d, err := openEnvelope(b, magicFooter, footerVersion)
	if err != nil {
		return nil, err
	}
	f := &Footer{}
	f.Cluster = d.str()
	copy(f.Partition.Topic[:], d.next(16))
	f.Partition.Partition = d.i32()
	f.TopicName = d.str()
	f.Base = d.i64()
	f.End = d.i64()
	f.LeaderEpoch = d.i32()
	f.Incarnation = d.u32()
	f.DataBytes = d.i64()
	f.Records = d.i64()
	f.MaxTimestamp = record.AppendTime{Ms: d.i64(), Offset: d.i64()}
	if n := d.count(indexSize); n > 0 {
		f.Index = make([]IndexEntry, n)
		for i := range f.Index {
			f.Index[i] = IndexEntry{d.i64(), d.i64(), d.i64()}
		}
	}
	if n := d.count(chunkSize); n > 0 {
		f.Chunks = make([]Chunk, n)
		for i := range f.Chunks {
			f.Chunks[i] = Chunk{d.i64(), d.i64(), d.i64(), d.u32()}
		}
	}
	f.AppendResolutionMs = d.i64()
	if n := d.count(appendTimeSize); n > 0 {
		f.AppendTimes = make([]record.AppendTime, n)
		for i := range f.AppendTimes {
			f.AppendTimes[i] = record.AppendTime{Ms: d.i64(), Offset: d.i64(), SpanMs: d.u32()}
		}
	}
	if n := d.count(abortedSize); n > 0 {
		f.Aborted = make([]record.AbortedTxn, n)
		for i := range f.Aborted {
			f.Aborted[i] = record.AbortedTxn{ProducerID: d.i64(), First: d.i64(), Last: d.i64(), LastStable: d.i64()}
		}
	}
	f.Epochs = d.epochs()
	f.Producers = d.field()
	f.SHA256 = d.sum()
	if err := d.close(); err != nil {
		return nil, err
	}
	if err := f.Check(); err != nil {
		return nil, corruptf(envelopeLen, "%w", err)
	}
	return f, nil
}

// Check tells what is wrong with the footer by itself.
func (f *Footer) Check() error {
	switch {
	case len(f.Cluster) > maxNameBytes || len(f.TopicName) > maxNameBytes:
		return errors.New("cluster or topic has too long a name")
	case f.Base < 0 || f.End <= f.Base || f.Partition.Partition < 0 || f.LeaderEpoch < 0:
		return fmt.Errorf("partition %d, records [%d, %d), leader epoch %d", f.Partition.Partition, f.Base, f.End, f.LeaderEpoch)
	case f.DataBytes <= 0 || f.Records < 0 || f.Records > f.End-f.Base:
		return fmt.Errorf("%d records [%d, %d) in %d bytes", f.Records, f.Base, f.End, f.DataBytes)
	case len(f.Chunks) == 0:
		return errors.New("no chunks")
	}
	var pos int64
	for i, c := range f.Chunks {
		if c.Pos != pos || c.Size <= 0 || c.Size > f.DataBytes-pos {
			return fmt.Errorf("chunk %d of %d bytes at %d, want at %d of %d", i, c.Size, c.Pos, pos, f.DataBytes)
		}
		if c.First < f.Base || c.First >= f.End || i == 0 && c.First != f.Base || i > 0 && c.First <= f.Chunks[i-1].First {
			return fmt.Errorf("chunk %d begins with offset %d", i, c.First)
		}
		pos += c.Size
	}
	if pos != f.DataBytes {
		return fmt.Errorf("chunks end at %d, data at %d", pos, f.DataBytes)
	}
	for i, x := range f.Index {
		if x.Offset < f.Base || x.Offset >= f.End || x.Pos < 0 || x.Pos >= f.DataBytes {
			return fmt.Errorf("index entry %d: offset %d at %d", i, x.Offset, x.Pos)
		}
		if i > 0 && (x.Offset <= f.Index[i-1].Offset || x.Pos <= f.Index[i-1].Pos || x.MaxTimestamp < f.Index[i-1].MaxTimestamp) {
			return fmt.Errorf("index entry %d is out of order", i)
		}
	}
	if f.AppendResolutionMs < 0 {
		return fmt.Errorf("append times to %d ms", f.AppendResolutionMs)
	}
	for i, a := range f.AppendTimes {
		if a.Offset < f.Base || a.Offset >= f.End {
			return fmt.Errorf("append time %d of offset %d", i, a.Offset)
		}
		if i > 0 && (a.Offset <= f.AppendTimes[i-1].Offset || a.Ms < f.AppendTimes[i-1].LastMs()) {
			return fmt.Errorf("append time %d is out of order", i)
		}
	}
	for i, a := range f.Aborted {
		if a.First < 0 || a.Last < a.First {
			return fmt.Errorf("aborted transaction %d: records %d to %d", i, a.First, a.Last)
		}
	}
	return checkEpochs(f.Epochs)
}

// ChunkAt is the number of the chunk that has the batch with offset, or the next one after it if the offset is missing
// at the chunk's end. The offset lies in [Base, End).
func (f *Footer) ChunkAt(offset int64) int {
	i, found := slices.BinarySearchFunc(f.Chunks, offset, func(c Chunk, off int64) int { return cmp.Compare(c.First, off) })
	if !found && i > 0 {
		i--
	}
	return i
}
