// Package manifest is what is in the bucket, as values: keys, segment footers, manifests and edits, topic records,
// claims, seals and leases. No I/O, no goroutine, no clock. Formats are in format.md.
package manifest

import (
	"encoding/base64"

	"github.com/varvelog/varve/record"
)

// TopicID is Kafka's topic id (KIP-516). Its text form is Kafka's: URL-safe base64 without padding, 22 characters.
type TopicID [16]byte

func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// PartitionID names a partition for its whole life, through renames of nothing: names never identify data.
type PartitionID struct {
	Topic     TopicID
	Partition int32
}

// State of an entry. Only PROTOCOLS 3 moves it, and only forward.
type State uint8

const (
	Live   State = iota
	Dead         // retention, deletion or a superseding object: restorable until the window has passed
	Doomed       // irrevocably released; restorers treat it as gone
)

// Reason says why an entry died.
type Reason uint8

const (
	NoReason        Reason = iota
	RetentionTime          // retention.ms
	RetentionSize          // retention.bytes
	RecordsDeleted         // DeleteRecords moved the log start
	TopicDeleted           // the topic was deleted
	Superseded             // a live entry holds the same records
	RetentionUpload        // expired before it was uploaded (gaps only)
)

// Entry is one segment object as a manifest lists it: records [Base, End). A restore may list an object trimmed:
// then [Base, End) is narrower than the object's own range.
type Entry struct {
	Base, End    int64
	Archive      string // id of the archive that holds the object, "" for the manifest's own
	Object       string // key below that archive's prefix
	SizeBytes    int64  // of the whole object
	DataBytes    int64  // of the batches in it
	LeaderEpoch  int32  // of the uploader
	MaxTimestamp int64  // of its records, ms
	FirstAppend  int64  // append time of its first batch, ms
	LastAppend   int64  // append time of its last batch, ms
	Tail         bool   // uploaded by time from an active segment, a rolled one will supersede it
	State        State
	DeadAt       int64 // ms by the store's clock, when State is not Live
	Reason       Reason
	SHA256       [32]byte // of the data part
}

// Group is an immutable object with a run of consecutive entries, so that a manifest stays small.
type Group struct {
	Object       string
	Base, End    int64
	Count        int32 // entries in it
	LiveBytes    int64
	MaxTimestamp int64 // of live entries
	FirstAppend  int64
	LastAppend   int64
	Dead, Doomed int32 // entries in that state
	OldestDeadAt int64
	SHA256       [32]byte // of the group object
}

// Gap is [From, To) that will never be in the archive, and why.
type Gap struct {
	From, To int64
	Reason   Reason
	Time     int64 // ms
}

// Manifest is the root of one partition's archive, self-contained but for its groups (PROTOCOLS 1 and 3).
type Manifest struct {
	Cluster     string
	Incarnation uint32
	LeaderEpoch int32
	N           uint64
	Prev        string // key of the predecessor, "" for the first
	Partition   PartitionID
	Time        int64 // ms, the store's clock as last seen by the writer
	LogStart    int64 // first offset that may be read
	Through     int64 // archived-through, exclusive: next offset to archive
	ThroughTime int64 // append time up to which everything is archived, ms
	Epochs      []record.Epoch
	Groups      []Group // older entries, ascending
	Entries     []Entry // newer entries, ascending by (Base, End); dead ones stay listed
	Gaps        []Gap
}

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
type Footer struct {
	Cluster      string
	Partition    PartitionID
	TopicName    string
	Base, End    int64
	LeaderEpoch  int32 // of the uploader
	Incarnation  uint32
	DataBytes    int64
	Records      int64
	MaxTimestamp record.AppendTime // Ms = the largest record timestamp, Offset = the first record that has it
	Index        []IndexEntry
	Chunks       []Chunk
	AppendTimes  []record.AppendTime
	Aborted      []record.AbortedTxn
	Epochs       []record.Epoch // whole history up to End
	Producers    []byte         // Kafka's producer snapshot at End
	SHA256       [32]byte       // of the data part
}

// TopicEvent is what happened to a topic at a time.
type TopicEvent uint8

const (
	TopicCreated TopicEvent = iota + 1
	TopicAltered            // configs or partition count
	TopicDropped
	TopicUndropped
)

// TopicRecord is `t/<topic id>/topic.<n>`: a topic's whole metadata from Time on. n rises by one.
type TopicRecord struct {
	Cluster     string
	Incarnation uint32
	N           uint64
	Event       TopicEvent
	Time        int64 // ms
	ID          TopicID
	Name        string
	Partitions  int32
	Configs     map[string]string // dynamic topic configs only
	Internal    bool
}

// ArchiveInfo is archive.json.
type ArchiveInfo struct {
	Format  int    `json:"format"`
	ID      string `json:"archive_id"`
	Cluster string `json:"cluster_id"`
	Created string `json:"created"` // RFC 3339
}

// Lease is `lease/<id>`: a cluster that reads this archive without owning it. It expires TTLMs after the object's
// Last-Modified (PROTOCOLS 2.5).
type Lease struct {
	ID      string `json:"id"`
	Cluster string `json:"cluster_id"`
	TTLMs   int64  `json:"ttl_ms"`
	Renewal int64  `json:"renewal"` // counts up, so that a renewal differs from the one before
}
