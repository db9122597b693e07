package localseg

import (
	"log/slog"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/record"
)

// Stub door: replaced by the real files; signatures are the contract.

// Options of one log. FS is required; Logger may be nil.
type Options struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Config    Config
	Clean     bool // the broker was shut down cleanly: no recovery scan
	Logger    *slog.Logger
	Files     *FileCache  // shared bound on open segment files; nil: no bound
	OnError   func(error) // called once when the log goes offline
}

// FileCache bounds the open segment files of all logs of a broker.
type FileCache struct{}

func NewFileCache(maxOpen int) *FileCache { panic("stub") }

// Log is one partition's local log. Append, Truncate*, Retain, StartAt have one caller at a time; all else is concurrent.
type Log struct{}

// Open recovers the log in dir; the directory is made at the first append only. Cost: proportional to what the last
// checkpoint or clean shutdown has not covered, not to the data.
func Open(fs vfs.FS, dir string, o Options) (*Log, error) { panic("stub") }

// Append stamps the batches (already validated by record.Validate) with offsets, epoch and append time, in place, and
// writes them with one write. Sequences of idempotent producers are checked for OriginClient.
func (l *Log) Append(batches []record.Batch, epoch int32, from Origin) (Appended, error) {
	panic("stub")
}

// Read returns a file range that begins with the batch holding off, or the next one after it, ends before end, and has at most
// max bytes but always one whole batch. Empty if off == end or off == LEO. ErrOffsetOutOfRange, ErrBelowLocal.
func (l *Log) Read(off, end int64, max int) (Span, error) { panic("stub") }

// Span is a refcounted file range of whole batches. Release must be called once; until then the file stays readable even
// if its segment is deleted.
type Span struct {
	File vfs.File
	Pos  int64
	Size int64
	Base int64 // base offset of the first batch
	Next int64 // offset after the last record in it
}

func (s Span) ReadAt(p []byte, off int64) (int, error) { panic("stub") }
func (s Span) Release()                                { panic("stub") }

func (l *Log) LogStart() int64   { panic("stub") } // first readable offset, archive included
func (l *Log) LocalStart() int64 { panic("stub") } // first offset that is on this disk
func (l *Log) LEO() int64        { panic("stub") }
func (l *Log) SizeBytes() int64  { panic("stub") }

// FirstUnstable is the first offset of the oldest open transaction, or LEO.
func (l *Log) FirstUnstable() int64 { panic("stub") }

func (l *Log) Config() Config     { panic("stub") }
func (l *Log) SetConfig(c Config) { panic("stub") }

// Segments lists the segments, oldest first; the slice is the caller's.
func (l *Log) Segments() []SegmentInfo { panic("stub") }

// Roll closes the active segment if it is not empty.
func (l *Log) Roll() error { panic("stub") }

// Retain deletes what retention allows now: for a Tiered log local segments below archivedThrough by local.retention.*, without
// moving the log start; else by retention.*, moving it. Also rolls by segment.ms and deletes what is below the log start.
func (l *Log) Retain(nowMs, archivedThrough int64) (deletedBytes int64, err error) { panic("stub") }

// SetLogStart raises the log start (DeleteRecords, total retention); durable when it returns.
func (l *Log) SetLogStart(off int64) error { panic("stub") }

// Truncate removes records at and above off. TruncateFully empties the log; the next offset is off.
func (l *Log) Truncate(off int64) error      { panic("stub") }
func (l *Log) TruncateFully(off int64) error { panic("stub") }

// StartAt makes an empty log begin at off with this history: a replica or a restored partition whose past is in the archive.
// logStart is the first offset that the archive has.
func (l *Log) StartAt(logStart, off int64, epochs []Epoch, producers []byte, lastAppendMs int64) error {
	panic("stub")
}

// Epochs returns the leader epoch history, oldest first, local and known archived part.
func (l *Log) Epochs() []Epoch { panic("stub") }

// AssignEpoch records that epoch begins at the LEO (a new leader does so before its first append).
func (l *Log) AssignEpoch(epoch int32) error { panic("stub") }

// EndOffset answers OffsetForLeaderEpoch (KIP-101, 320): (-1, -1) for an unknown or future epoch.
func (l *Log) EndOffset(epoch int32) (foundEpoch int32, end int64) { panic("stub") }

// OffsetForTime finds the first local record with timestamp >= ts. MaxTimestamp the first record with the largest one.
func (l *Log) OffsetForTime(ts int64) (TimestampOffset, error) { panic("stub") }
func (l *Log) MaxTimestamp() (TimestampOffset, error)          { panic("stub") }

// AppendTimes lists the append time entries that cover [from, to).
func (l *Log) AppendTimes(from, to int64) ([]AppendTime, error) { panic("stub") }

// Aborted lists the aborted transactions that overlap [from, to), searched up to the last stable offset.
func (l *Log) Aborted(from, to int64) ([]AbortedTxn, error) { panic("stub") }

// ProducersAt returns the producer snapshot (Kafka's format) at off, which lies in [LocalStart, LEO].
func (l *Log) ProducersAt(off int64) ([]byte, error) { panic("stub") }

// ActiveProducer describes one producer of the log (DescribeProducers).
type ActiveProducer struct {
	ID               int64
	Epoch            int16
	LastSequence     int32
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnStart         int64 // -1: none
}

func (l *Log) Producers() []ActiveProducer { panic("stub") }

// Flush makes everything appended so far durable and advances the recovery point.
func (l *Log) Flush() error         { panic("stub") }
func (l *Log) RecoveryPoint() int64 { panic("stub") }

// Close flushes nothing; call Flush before for a clean shutdown. CloseClean = Flush, snapshots, Close.
func (l *Log) Close() error      { panic("stub") }
func (l *Log) CloseClean() error { panic("stub") }

// Remove closes the log and deletes its directory (renamed to <name>.<uuid>-delete first, as Kafka does).
func (l *Log) Remove() error { panic("stub") }
