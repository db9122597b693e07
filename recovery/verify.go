package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// FindingKind says what sort of thing is wrong.
type FindingKind string

const (
	Damaged  FindingKind = "damage"  // bytes are not what was written
	Absent   FindingKind = "missing" // an object that is referred to is not there
	GapFound FindingKind = "gap"     // offsets that were never archived, though nobody deleted them: known, and lost
	Stray    FindingKind = "stray"   // objects that nothing explains
)

// Finding is one thing that is wrong.
type Finding struct {
	Kind   FindingKind `json:"kind"`
	Object string      `json:"object"`
	Place  string      `json:"place"` // in the object, or the offsets
	What   string      `json:"what"`
}

// Report is the outcome of a verification.
type Report struct {
	Archive    string    `json:"archive"`
	Cluster    string    `json:"cluster"`
	Full       bool      `json:"full"` // every byte was read
	Topics     int       `json:"topics"`
	Partitions int       `json:"partitions"`
	Objects    int       `json:"objects"`
	Bytes      int64     `json:"bytes"`     // of the objects
	Truncated  int       `json:"truncated"` // findings that were left out
	Findings   []Finding `json:"findings"`
}

// VerifyOptions: the zero value reads the structure alone.
type VerifyOptions struct {
	Full     bool                 // read every byte of every object
	Progress func(objects, n int) // so many of n objects of the present topic are read; may be nil
}

// findingsMax bounds the list, so that a bucket full of damage does not fill the memory.
const findingsMax = 10_000

// Verify checks an archive without changing anything, its owner living or not: that every manifest can be read and its
// entries follow each other, that each object is there with its size, and with Full each byte: chunk checksums, the
// SHA-256 of the data, batch checksums, offsets, leader epochs and append times. Doomed entries are not looked at. An
// object that its owner has deleted meanwhile is no finding. The error is one of the store's: then the report is not whole.
func Verify(ctx context.Context, s *Source, o VerifyOptions) (*Report, error) {
	v := &verifier{src: s, o: o, report: Report{Archive: s.ID(), Cluster: s.Reader.Info().Cluster, Full: o.Full, Findings: []Finding{}}}
	inv, err := TakeInventory(ctx, s)
	if err != nil {
		return nil, err
	}
	v.known = map[string]bool{}
	for _, d := range inv.Damage {
		v.known[d.Object] = true
		v.find(Finding{Damaged, d.Object, "", d.What})
	}
	for _, t := range inv.Topics {
		v.report.Topics++
		if err := v.topic(ctx, t); err != nil {
			return nil, err
		}
	}
	if err := v.documents(ctx); err != nil {
		return nil, err
	}
	if err := v.strays(ctx, inv); err != nil {
		return nil, err
	}
	slices.SortStableFunc(v.report.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Place, b.Place))
	})
	return &v.report, nil
}

type verifier struct {
	src   *Source
	o     VerifyOptions
	known map[string]bool // objects that the inventory could not read

	mu     sync.Mutex
	report Report // guarded by mu
}

func (v *verifier) find(f Finding) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.report.Findings) >= findingsMax {
		v.report.Truncated++
		return
	}
	v.report.Findings = append(v.report.Findings, f)
}

func (v *verifier) count(bytes int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.report.Objects++
	v.report.Bytes += bytes
}

func (v *verifier) topic(ctx context.Context, t *Topic) error {
	for i := 1; i < len(t.Records); i++ {
		a, b := &t.Records[i-1], &t.Records[i]
		if b.N != a.N+1 || b.Time < a.Time {
			v.find(Finding{Damaged, b.Key(), "", fmt.Sprintf("record %d at %s follows record %d at %s", b.N, Stamp(b.Time), a.N, Stamp(a.Time))})
		}
	}
	for _, p := range t.Partitions {
		v.report.Partitions++
		if p.ID.Partition >= t.Last().Partitions {
			v.find(Finding{Stray, manifest.PartitionPrefix(p.ID), "", fmt.Sprintf("topic %s has %d partitions", t.Last().Name, t.Last().Partitions)})
		}
		if v.o.Full {
			if err := v.leftovers(ctx, p); err != nil {
				return err
			}
		}
		if p.Tip == nil {
			continue
		}
		if err := v.partition(ctx, p); err != nil {
			return fmt.Errorf("verify %s:%d: %w", t.Last().Name, p.ID.Partition, err)
		}
	}
	return nil
}

// partition checks a tip, then what it refers to.
func (v *verifier) partition(ctx context.Context, p *Partition) error {
	m := p.Tip
	for _, g := range m.Gaps {
		if g.Reason != manifest.RecordsDeleted && g.Reason != manifest.Excluded { // somebody wanted those
			v.find(Finding{GapFound, m.Key(), fmt.Sprintf("offsets [%d, %d)", g.From, g.To), fmt.Sprintf("%d offsets are not archived: %s", g.To-g.From, g.Reason)})
		}
	}
	entries, err := allEntries(ctx, v.src, m)
	if err != nil {
		return v.judge(ctx, p, err, m.Key())
	}
	if err := m.CheckEntries(entries); err != nil {
		v.find(Finding{Damaged, m.Key(), "", err.Error()})
	}
	v.times(m, entries)
	sizes, err := v.sizes(ctx, entries)
	if err != nil {
		return err
	}
	return v.objects(ctx, p, entries, sizes)
}

// times checks that append times do not go back from one live entry to the next.
func (v *verifier) times(m *manifest.Manifest, entries []manifest.Entry) {
	var last *manifest.Entry
	for i := range entries {
		e := &entries[i]
		if e.State != manifest.Live {
			continue
		}
		if last != nil && e.LastAppend < last.LastAppend {
			v.find(Finding{Damaged, m.Key(), fmt.Sprintf("offsets [%d, %d)", e.Base, e.End),
				fmt.Sprintf("last append at %s, of the entry before %s", Stamp(e.LastAppend), Stamp(last.LastAppend))})
		}
		last = e
	}
}

// sizes lists the objects below the prefixes that the entries refer to.
func (v *verifier) sizes(ctx context.Context, entries []manifest.Entry) (map[manifest.ObjectRef]int64, error) {
	type place struct {
		archive   string
		partition manifest.PartitionID
	}
	sizes := map[manifest.ObjectRef]int64{}
	listed := map[place]bool{}
	for i := range entries {
		name, ok := manifest.ParseSegmentKey(entries[i].Object)
		at := place{entries[i].Archive, name.Partition}
		if !ok || listed[at] {
			continue
		}
		listed[at] = true
		b, err := v.src.bucketOf(at.archive)
		if err != nil {
			v.find(Finding{Absent, at.archive, "", err.Error()})
			continue
		}
		for o, err := range b.List(ctx, manifest.SegmentPrefix(at.partition), "") {
			if err != nil {
				return nil, fmt.Errorf("list segments: %w", err)
			}
			sizes[manifest.ObjectRef{Archive: at.archive, Object: o.Key}] = o.Size
		}
	}
	return sizes, nil
}

// judge turns an error of reading into findings; errors of the store itself are returned.
func (v *verifier) judge(ctx context.Context, p *Partition, err error, object string) error {
	var c *tier.CorruptError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &c):
		place := ""
		if c.Chunk >= 0 {
			place = fmt.Sprintf("chunk %d", c.Chunk)
		}
		v.find(Finding{Damaged, c.Object, place, c.Err.Error()})
	case errors.Is(err, objstore.ErrNotFound):
		now, terr := v.src.Reader.Tip(ctx, p.ID)
		if terr == nil && now != nil && now.Key() != p.Tip.Key() {
			return nil // the owner has moved on, and taken away what the older manifest listed
		}
		v.find(Finding{Absent, object, "", "it is referred to, but not there"})
	default:
		return err
	}
	return nil
}

// strays finds topics that no record explains.
func (v *verifier) strays(ctx context.Context, inv *Inventory) error {
	known := map[manifest.TopicID]bool{}
	for _, t := range inv.Topics {
		known[t.ID] = true
	}
	for _, d := range inv.Damage {
		if id, _, ok := manifest.ParseTopicRecordKey(d.Object); ok {
			known[id] = true
		}
	}
	for after := ""; ; {
		key, err := firstAfter(ctx, v.src.Bucket, manifest.TopicsPrefix, after)
		if err != nil || key == "" {
			return err
		}
		id, _, ok := manifest.ParseTopicRecordKey(key)
		if p, _, isPart := manifest.ParsePartitionKey(key); isPart {
			id, ok = p.Topic, true
		}
		if !ok {
			v.find(Finding{Stray, key, "", "not a key of this format"})
			after = key
			continue
		}
		if !known[id] {
			v.find(Finding{Stray, manifest.TopicPrefix(id), "", "objects of a topic without a record: it cannot be restored by name"})
		}
		after = manifest.TopicPrefix(id) + "\U0010FFFF"
	}
}

func firstAfter(ctx context.Context, b objstore.Bucket, prefix, after string) (string, error) {
	for i, err := range b.List(ctx, prefix, after) {
		if err != nil {
			return "", fmt.Errorf("list %s: %w", prefix, err)
		}
		return i.Key, nil
	}
	return "", nil
}
