package manifest

import (
	"fmt"

	"github.com/varvelog/varve/internal/invariants"
	"github.com/varvelog/varve/record"
)

// Gap is [From, To) that will never be in the archive, and why.
type Gap struct {
	From, To int64
	Reason   Reason
	Time     int64 // ms
}

// Manifest is the root of one partition's archive, self-contained but for its groups (PROTOCOLS 1 and 3).
//
// The entries of all groups in order, then Entries, are one list in ascending order of (Base, End). The live ones are
// contiguous but for Gaps and end at Through; dead and doomed ones lie before them or, superseded, below them.
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

const (
	manifestVersion = 1
	epochSize       = 4 + 8
	gapSize         = 8 + 8 + 1 + 8
)

// Key is where the manifest is stored.
func (m *Manifest) Key() string {
	return ManifestKey(m.Partition, m.Incarnation, m.LeaderEpoch, m.N)
}

// Encode makes the body of the manifest object. The manifest must pass Check.
func (m *Manifest) Encode() []byte {
	if err := m.Check(); err != nil {
		invariants.Assert(false, "encode manifest %s: %v", m.Key(), err)
	}
	e := newEncoder(magicManifest, manifestVersion, 256+len(m.Groups)*150+len(m.Entries)*entryUsual)
	e.str(m.Cluster)
	e.u32(m.Incarnation)
	e.i32(m.LeaderEpoch)
	e.u64(m.N)
	e.str(m.Prev)
	e.raw(m.Partition.Topic[:])
	e.i32(m.Partition.Partition)
	e.i64(m.Time)
	e.i64(m.LogStart)
	e.i64(m.Through)
	e.i64(m.ThroughTime)
	appendEpochs(e, m.Epochs)
	e.u32(uint32(len(m.Gaps)))
	for _, g := range m.Gaps {
		e.i64(g.From)
		e.i64(g.To)
		e.u8(uint8(g.Reason))
		e.i64(g.Time)
	}
	e.u32(uint32(len(m.Groups)))
	for i := range m.Groups {
		m.Groups[i].encode(e, m.Partition)
	}
	appendEntries(e, m.Entries)
	return e.finish()
}

// DecodeManifest is the inverse of Encode; what it returns passes Check. The caller compares Key with the key that it read.
func DecodeManifest(b []byte) (*Manifest, error) {
	d, err := openEnvelope(b, magicManifest, manifestVersion)
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	m.Cluster = d.str()
	m.Incarnation = d.u32()
	m.LeaderEpoch = d.i32()
	m.N = d.u64()
	m.Prev = d.str()
	copy(m.Partition.Topic[:], d.next(16))
	m.Partition.Partition = d.i32()
	m.Time = d.i64()
	m.LogStart = d.i64()
	m.Through = d.i64()
	m.ThroughTime = d.i64()
	m.Epochs = d.epochs()
	if n := d.count(gapSize); n > 0 {
		m.Gaps = make([]Gap, n)
		for i := range m.Gaps {
			m.Gaps[i] = Gap{d.i64(), d.i64(), Reason(d.u8()), d.i64()}
		}
	}
	if n := d.count(groupMin); n > 0 {
		m.Groups = make([]Group, n)
		for i := range m.Groups {
			d.group(&m.Groups[i], m.Partition)
		}
	}
	m.Entries = d.entries()
	if err := d.close(); err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, corruptf(envelopeLen, "%w", err)
	}
	return m, nil
}

func appendEpochs(e *encoder, list []record.Epoch) {
	e.u32(uint32(len(list)))
	for _, ep := range list {
		e.i32(ep.Epoch)
		e.i64(ep.Start)
	}
}

func (d *decoder) epochs() []record.Epoch {
	n := d.count(epochSize)
	if n == 0 {
		return nil
	}
	list := make([]record.Epoch, n)
	for i := range list {
		list[i] = record.Epoch{Epoch: d.i32(), Start: d.i64()}
	}
	return list
}

func checkEpochs(list []record.Epoch) error {
	for i, ep := range list {
		if ep.Epoch < 0 || ep.Start < 0 {
			return fmt.Errorf("leader epoch %d starts at %d", ep.Epoch, ep.Start)
		}
		if i > 0 && (ep.Epoch <= list[i-1].Epoch || ep.Start < list[i-1].Start) {
			return fmt.Errorf("leader epoch %d at %d follows %d at %d", ep.Epoch, ep.Start, list[i-1].Epoch, list[i-1].Start)
		}
	}
	return nil
}
