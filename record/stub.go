package record

import "errors"

// Stub door: replaced by the real files; signatures are the contract.

const HeaderSize = 61 // bytes before the first record

type Codec uint8 // 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd

var (
	ErrShort       = errors.New("batch is cut short") // torn: the size field says more than is there
	ErrCorrupt     = errors.New("corrupt batch")
	ErrUnsupported = errors.New("unsupported batch version or codec")
	ErrInvalid     = errors.New("invalid record") // well formed but not acceptable: INVALID_RECORD
)

// Next splits the first batch off b. ErrShort if it is not whole.
func Next(b []byte) (first Batch, rest []byte, err error) { panic("stub") }

func (b Batch) BaseOffset() int64            { panic("stub") }
func (b Batch) LastOffset() int64            { panic("stub") } // inclusive
func (b Batch) NextOffset() int64            { panic("stub") }
func (b Batch) LeaderEpoch() int32           { panic("stub") }
func (b Batch) Magic() int8                  { panic("stub") }
func (b Batch) CRC() uint32                  { panic("stub") }
func (b Batch) Attributes() int16            { panic("stub") }
func (b Batch) Codec() Codec                 { panic("stub") }
func (b Batch) LogAppendTime() bool          { panic("stub") }
func (b Batch) Transactional() bool          { panic("stub") }
func (b Batch) Control() bool                { panic("stub") }
func (b Batch) DeleteHorizon() (int64, bool) { panic("stub") }
func (b Batch) BaseTimestamp() int64         { panic("stub") }
func (b Batch) MaxTimestamp() int64          { panic("stub") }
func (b Batch) ProducerID() int64            { panic("stub") }
func (b Batch) ProducerEpoch() int16         { panic("stub") }
func (b Batch) BaseSequence() int32          { panic("stub") }
func (b Batch) LastSequence() int32          { panic("stub") } // wraps at 2^31
func (b Batch) Count() int32                 { panic("stub") }

// Check verifies size field, magic, CRC-32C, counts: structure without decompressing.
func (b Batch) Check() error { panic("stub") }

// SetOffset and SetLeaderEpoch patch fields outside the CRC. SetMaxTimestamp patches timestamp type and max timestamp and
// the CRC.
func (b Batch) SetOffset(base int64)                         { panic("stub") }
func (b Batch) SetLeaderEpoch(e int32)                       { panic("stub") }
func (b Batch) SetMaxTimestamp(ms int64, logAppendTime bool) { panic("stub") }

// Record is one decoded record; its slices alias the (decompressed) batch.
type Record struct {
	Offset    int64
	Timestamp int64  // ms; the batch's max timestamp where LogAppendTime
	Key       []byte // nil: null
	Value     []byte // nil: null
	Headers   []Header
}

type Header struct {
	Key   string
	Value []byte
}

// Records walks the records of a batch, decompressing into a pooled buffer of at most limit bytes.
// for it := b.Records(limit); it.Next(); { r := it.Record() }; it.Err(); it.Close()
func (b Batch) Records(limit int64) *Iter { panic("stub") }

type Iter struct{}

func (it *Iter) Next() bool     { panic("stub") }
func (it *Iter) Record() Record { panic("stub") }
func (it *Iter) Err() error     { panic("stub") }
func (it *Iter) Close()         { panic("stub") }

// BatchOptions are the header fields of a batch to build.
type BatchOptions struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Codec         Codec
	ProducerID    int64 // -1: none
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
	Control       bool
	LogAppendTime bool
}

// Build encodes one batch, appended to dst. Record offsets are taken as given, relative to BaseOffset.
func Build(dst []byte, o BatchOptions, recs []Record) (Batch, error) { panic("stub") }

// Truncate re-encodes b with only its records below end, same codec, offsets and timestamps. Nil if none is left.
func Truncate(b Batch, end int64) (Batch, error) { panic("stub") }

// ValidateOptions is what a topic demands of a produced batch.
type ValidateOptions struct {
	Codec             Codec // target codec; FromProducer keeps the producer's
	FromProducer      bool
	CompactedTopic    bool // keys required
	LogAppendTime     bool
	NowMs             int64
	TimestampBeforeMs int64 // message.timestamp.before.max.ms
	TimestampAfterMs  int64
	MaxBytes          int64 // max.message.bytes
	MaxDecompressed   int64 // max.decompressed.message.bytes
	ClientWrite       bool  // refuse control batches
	AllowZstd         bool  // Produce v7+
}

// RecordError points at one refused record (KIP-467).
type RecordError struct {
	Index  int32
	Reason string
}

// Validated is the outcome: Batch may be b itself, patched in place, or a re-encoded one.
type Validated struct {
	Batch            Batch
	MaxTimestamp     int64
	OffsetOfMaxDelta int32 // of the first record with MaxTimestamp, relative to the base offset
}

// Validate checks one produced batch as Kafka's LogValidator does. Errors wrap ErrCorrupt, ErrInvalid, ErrUnsupported,
// ErrTooLarge or ErrTimestamp; recErrs are KIP-467's.
func Validate(b Batch, o ValidateOptions) (v Validated, recErrs []RecordError, err error) {
	panic("stub")
}

var (
	ErrTooLarge  = errors.New("batch larger than max.message.bytes")
	ErrTimestamp = errors.New("timestamp out of the accepted range")
)

// Marker is the content of a control batch that ends a transaction.
type Marker struct {
	Commit           bool
	CoordinatorEpoch int32
}

func ParseMarker(b Batch) (Marker, error) { panic("stub") }
func BuildMarker(dst []byte, producerID int64, producerEpoch int16, tsMs int64, m Marker) Batch {
	panic("stub")
}
