// Package meta is cluster metadata: typed records in a transactional KV, watches folded into an immutable Image.
//
// It does not decide anything: placement, elections and retention belong to its callers. A change is one guarded
// transaction, or a chain of them of which only the last is visible; a crash between two leaves nothing that a reader
// of an Image sees, and Sweep collects it. Keys and records are in format.md.
package meta

import (
	"context"
	"errors"

	"github.com/varvelog/varve/manifest"
)

var (
	ErrConflict      = errors.New("metadata changed meanwhile")
	ErrTopicExists   = errors.New("topic exists")
	ErrUnknownTopic  = errors.New("unknown topic")
	ErrUnavailable   = errors.New("metadata store unavailable") // outcome of a write unknown
	ErrBrokerIDInUse = errors.New("broker id is registered by a living broker")
	ErrIncarnation   = errors.New("cluster has another incarnation") // a restore took over: this process is of the past
	ErrLeaseLost     = errors.New("lease lost")
	ErrTooManyOps    = errors.New("too many operations in one transaction")
	ErrUnsupported   = errors.New("record of a newer major version")
	ErrInvalid       = errors.New("invalid argument")
)

// KV is a transactional key-value store with revisions and leases, as etcd's v3 API has it.
// All methods may be called concurrently. Returned bytes belong to the caller; Op.Value is only read until Txn returns.
// A store that cannot be reached is ErrUnavailable after a bounded time. A context that ends is its own error, and
// ErrUnavailable too where a write's outcome is unknown.
type KV interface {
	// Range returns the pairs with the prefix in key order, and the store's revision. Linearizable.
	Range(ctx context.Context, prefix string) ([]Pair, int64, error)
	Get(ctx context.Context, key string) (Pair, bool, error)
	// Txn applies all ops if all guards hold, else none: ok tells. At most MaxOps ops and as many guards, of different
	// keys each. rev is the store's revision after it, the ModRev of what was put.
	Txn(ctx context.Context, guards []Guard, ops []Op) (ok bool, rev int64, err error)
	// Watch yields batches of events after revision from, in order, until ctx ends. ErrCompacted: Range again.
	// A batch without events says that everything up to its Rev has been delivered.
	Watch(ctx context.Context, prefix string, from int64) <-chan WatchBatch
	// Grant makes a lease of ttlMs (rounded up to what the store can); KeepAlive blocks, renewing, until ctx ends or the
	// lease is lost (ErrLeaseLost). Revoke deletes the keys of the lease; a lease that is gone is no error.
	Grant(ctx context.Context, ttlMs int64) (LeaseID, error)
	KeepAlive(ctx context.Context, id LeaseID) error
	Revoke(ctx context.Context, id LeaseID) error
	Close() error
}

// MaxOps bounds the ops (and the guards) of one Txn; etcd's default.
const MaxOps = 128

// ErrCompacted: the watch's revision is gone.
var ErrCompacted = errors.New("revision compacted")

type LeaseID int64

// Pair is a key with its value and revisions.
type Pair struct {
	Key       string
	Value     []byte
	CreateRev int64
	ModRev    int64
	Lease     LeaseID
}

// Progresser is what a KV may offer besides: Progress asks that watches tell soon how far they have come, by a batch
// without events. Without it Sync waits for the next event.
type Progresser interface {
	Progress(ctx context.Context) error
}

// Guard holds if the key's mod revision is ModRev; 0 means: the key does not exist.
type Guard struct {
	Key    string
	ModRev int64
}

// Op puts or deletes a key.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	Lease  LeaseID
}

// WatchBatch is all events of one revision, or an error after which the channel closes.
type WatchBatch struct {
	Rev    int64
	Events []Event
	Err    error
}

// Event is a put or, with Deleted, the removal of a key.
type Event struct {
	Pair
	Deleted bool
}

// Broker is a registered broker. Epoch is the mod revision of its registration: a new one for each process.
type Broker struct {
	ID        int32
	Epoch     int64
	Rack      string
	Listeners []Listener // advertised
	Admin     string     // HTTP host:port
	// Directory is the random id that the broker keeps in its data directory, whose lock tells that no other process
	// uses it: a registration with the same one is a dead predecessor's. "" is like nobody's.
	Directory string
	// Previous is the epoch of the process that last closed all logs of this directory in order, as its clean-shutdown mark
	// says; 0 without one. Only where the cluster knows the broker by that very epoch nothing can have been lost.
	Previous int64
	// Process is a random name of this process, and Continues those of predecessors in its directory, newest first, that each ended in
	// order without being followed by another: what they had is there. Unlike epochs a process knows these also where it never heard
	// whether it was registered, so that the cluster may know it by any of them.
	Process   string
	Continues []string

	// Fenced says that the controller has not dealt with this registration yet, while the cluster knows, or has forgotten, a former one: it
	// must not lead nor join an ISR. In Image.Known it is set where the broker is not registered.
	Fenced   bool
	Draining bool // it is about to stop: its leaderships are to be moved away

	lease LeaseID
}

type Listener struct {
	Name string // PLAINTEXT, ...
	Host string
	Port int32
}

// Topic is a topic with its partitions, index = partition number. Immutable once in an Image.
type Topic struct {
	Name       string
	ID         manifest.TopicID
	Internal   bool
	Configs    map[string]string // dynamic topic configs only
	CreatedMs  int64
	Version    uint64 // rises with each change of name, configs, partition count; n of the topic's record in the bucket
	Archived   uint64 // newest Version that is in the bucket
	ChangedMs  int64  // when Version last rose
	BehindMs   int64  // when the oldest change was made that the bucket may not have, or earlier; 0: it has all
	DeletedMs  int64  // 0 while it lives; deleted topics stay, outside Image.Topics, until collected
	Collecting bool   // its window has passed and its objects are being deleted: it cannot be undeleted any more
	Partitions []*Partition
}

// Partition is a partition's record. Immutable once in an Image.
type Partition struct {
	ID             manifest.PartitionID
	Replicas       []int32
	ISR            []int32
	Leader         int32 // -1: none
	LeaderEpoch    int32
	PartitionEpoch int32
	// A reassignment under way: Adding are those of Replicas that are new, Removing those that leave once the new ones are
	// in sync. The target is Replicas without Removing.
	Adding, Removing []int32
	// Offline are those of Replicas whose log met an error of the disk: their brokers live, but do not serve it.
	Offline []int32
	// Recovering says that the leader was elected uncleanly, and has not compared its log with the archive since (Kafka's leader
	// recovery state): it must not serve before that.
	Recovering bool
	// Undeleted says that the topic was brought back, and no leader has committed a manifest since: who collected it may have left a newer
	// one in the bucket.
	Undeleted bool
	Pointer   Pointer
	ModRev    int64
}

// Pointer is the archive's part of a partition record (PROTOCOLS 1.2).
type Pointer struct {
	Manifest    string
	N           uint64
	Through     int64
	ThroughTime int64
	Pins        []Pin
}

type Pin struct {
	ID, Reason string
}

// Attached is another cluster's archive that this cluster reads under a lease.
type Attached struct {
	Archive string // its id
	URL     string
	LeaseID string
	TTLMs   int64
}

// Image is all metadata at one revision. Immutable; swapped whole.
type Image struct {
	Rev         int64
	Cluster     string
	Incarnation uint32
	Controller  int32
	Term        int64             // of the controller: the revision of its election
	Brokers     map[int32]*Broker // registered ones
	// Known are the brokers that a controller has admitted, living or not, with the epoch of the registration that it last
	// dealt with.
	Known map[int32]*Broker
	// Forgotten are brokers that were known, and whom nothing is expected of any more: neither registered since, or not admitted yet.
	Forgotten  map[int32]bool
	Topics     map[string]*Topic           // living ones
	TopicsByID map[manifest.TopicID]*Topic // living ones
	Deleted    map[manifest.TopicID]*Topic
	Configs    map[string]map[string]string // "broker/<id>", "broker/" (cluster default), "group/<id>", ...
	Attached   map[string]*Attached

	draining map[int32]int64 // epochs of registrations that said so
}

// Alive says that the broker is registered and the controller has dealt with that.
func (i *Image) Alive(id int32) bool {
	b := i.Brokers[id]
	return b != nil && !b.Fenced
}

// Eligible says that the broker may become leader or join an ISR (KIP-841): alive, and not about to stop.
func (i *Image) Eligible(id int32) bool {
	b := i.Brokers[id]
	return b != nil && !b.Fenced && !b.Draining
}

// Admitted says that the controller has dealt with this registration of the broker: each election that it needs is in
// the image. Before that a broker must not take up what the image says that it leads (PROTOCOLS 7.3).
func (i *Image) Admitted(id int32, epoch int64) bool {
	b, k := i.Brokers[id], i.Known[id]
	return b != nil && k != nil && b.Epoch == epoch && k.Epoch == epoch
}
