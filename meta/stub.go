package meta

import (
	"context"
	"log/slog"

	"github.com/varvelog/varve/manifest"
)

// Stub door: replaced by the real files; signatures are the contract.

type Options struct {
	Logger *slog.Logger
}

// Store is one broker's view of the metadata: it reads, changes and watches.
type Store struct{}

// Open makes or finds the cluster (id, incarnation) under kv: clusterID "" takes what is there or makes a new random one.
func Open(ctx context.Context, kv KV, clusterID string, o Options) (*Store, error) { panic("stub") }

// Run watches and swaps the image until ctx ends.
func (s *Store) Run(ctx context.Context) error { panic("stub") }

// Image is the newest one; never nil after Open.
func (s *Store) Image() *Image { panic("stub") }

// Subscribe calls f with (old, new) after each swap, in order, from one goroutine; f must not block.
func (s *Store) Subscribe(f func(old, new *Image)) { panic("stub") }

// Sync waits until the image has reached revision rev.
func (s *Store) Sync(ctx context.Context, rev int64) error { panic("stub") }

// Register leases the broker's registration; it returns its epoch and a func that blocks while the lease is kept.
func (s *Store) Register(ctx context.Context, b Broker, ttlMs int64) (epoch int64, keep func(context.Context) error, err error) {
	panic("stub")
}

// TopicSpec is a topic to create: Assignment[p] = replicas of partition p.
type TopicSpec struct {
	Name       string
	ID         manifest.TopicID // zero: a new random one
	Internal   bool
	Configs    map[string]string
	Assignment [][]int32
	// Pointers, where a restore makes the topic: the archive pointer of each partition, and the first leader epoch.
	Pointers    []Pointer
	FirstEpochs []int32
}

func (s *Store) CreateTopic(ctx context.Context, t TopicSpec) (*Topic, error) { panic("stub") }
func (s *Store) DeleteTopic(ctx context.Context, name string) error           { panic("stub") }
func (s *Store) UndeleteTopic(ctx context.Context, id manifest.TopicID) error { panic("stub") }
func (s *Store) ForgetTopic(ctx context.Context, id manifest.TopicID) error   { panic("stub") } // collected: its keys go
func (s *Store) CreatePartitions(ctx context.Context, topic string, add [][]int32) error {
	panic("stub")
}

// AlterTopic replaces a topic's dynamic configs as edit returns them, retrying edit on conflict.
func (s *Store) AlterTopic(ctx context.Context, topic string, edit func(map[string]string) (map[string]string, error)) error {
	panic("stub")
}

// AlterConfigs is the same for "broker/<id>", "broker/", "group/<id>".
func (s *Store) AlterConfigs(ctx context.Context, resource string, edit func(map[string]string) (map[string]string, error)) error {
	panic("stub")
}

// SetTopicArchived records that version v of the topic's record is in the bucket.
func (s *Store) SetTopicArchived(ctx context.Context, id manifest.TopicID, v uint64) error {
	panic("stub")
}

// Elect makes broker the leader (epoch + 1, ISR as given) of many partitions, in batched guarded transactions.
type Election struct {
	ID     manifest.PartitionID
	Leader int32
	ISR    []int32
}

func (s *Store) Elect(ctx context.Context, e []Election) error { panic("stub") }

// GetPartition reads a partition record linearizably; UpdatePartition replaces it guarded by its ModRev.
func (s *Store) GetPartition(ctx context.Context, id manifest.PartitionID) (*Partition, error) {
	panic("stub")
}
func (s *Store) UpdatePartition(ctx context.Context, p *Partition) (*Partition, error) { panic("stub") }

// AllocateProducerIDs returns [first, first+n).
func (s *Store) AllocateProducerIDs(ctx context.Context, n int64) (first int64, err error) {
	panic("stub")
}

func (s *Store) Attach(ctx context.Context, a Attached) error     { panic("stub") }
func (s *Store) Detach(ctx context.Context, archive string) error { panic("stub") }
