package recovery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
)

// builder writes the first manifests of restored partitions into an archive.
type builder struct {
	src         *Source
	bucket      objstore.Bucket
	archive     string // id of the archive that it writes to; the source's own where a topic is restored beside its source
	cluster     string
	incarnation uint32
	now         int64 // ms, the destination store's clock
}

// built is a partition as its metadata record will have it.
type built struct {
	pointer     meta.Pointer
	firstEpoch  int32 // of the partition; above all that the source has seen
	producerIDs int64 // the largest producer id that its state knows, -1 for none
	aborted     int   // transactions that were open at the cut
	end         int64 // plan's End, and the markers of those
}

// build writes what a partition needs, in this order:
//
//  1. the object with what is left of the last one, where the cut is inside one or transactions are open there;
//  2. the groups;
//  3. the manifest.
//
// Nothing refers to them before the caller has committed the pointer.
func (b *builder) build(ctx context.Context, id manifest.PartitionID, topic string, p *PartitionPlan) (built, error) {
	out := built{firstEpoch: lastEpoch(p.source) + 1, producerIDs: -1, end: p.End}
	if p.source == nil {
		return out, nil
	}
	t, err := b.tail(ctx, p)
	if err != nil {
		return out, err
	}
	out.aborted, out.end = t.aborted, t.end
	if out.producerIDs, err = localseg.LargestProducerID(t.producers); err != nil {
		return out, fmt.Errorf("producer state at %d: %w", p.End, err)
	}
	kept := t.kept
	for i := range kept {
		kept[i].Archive = b.refer(kept[i].Archive)
		kept[i].Tail = false // nothing local will supersede it
	}
	epochs := epochsBelow(p.source, p.End)
	if t.aborted > 0 {
		epochs = append(epochs, record.Epoch{Epoch: out.firstEpoch, Start: p.End})
	}
	if len(t.batches) > 0 {
		e, err := b.putTail(ctx, id, topic, out.firstEpoch, epochs, t)
		if err != nil {
			return out, err
		}
		kept = append(kept, e)
	}
	edit := manifest.Edit{Incarnation: b.incarnation, LeaderEpoch: out.firstEpoch, N: 1, Time: b.now, Add: kept, Gaps: t.holes, Epochs: epochs}
	for i := range kept {
		edit.ThroughTime = max(edit.ThroughTime, kept[i].LastAppend)
	}
	c, err := manifest.Apply(manifest.Empty(b.cluster, id, p.Start), edit, manifest.Limits{}, nil)
	if err != nil {
		return out, err
	}
	for _, g := range c.Groups {
		if err := b.put(ctx, g.Key, g.Body); err != nil {
			return out, err
		}
	}
	m := c.Manifest
	if err := b.put(ctx, m.Key(), m.Encode()); err != nil {
		return out, err
	}
	out.pointer = meta.Pointer{Manifest: m.Key(), N: m.N, Through: m.Through, ThroughTime: m.ThroughTime}
	return out, nil
}

// refer is the archive of a source's entry as the destination's manifest names it.
func (b *builder) refer(archive string) string {
	if archive == "" {
		archive = b.src.ID()
	}
	if archive == b.archive {
		return ""
	}
	return archive
}

func (b *builder) put(ctx context.Context, key string, body []byte) error {
	if _, err := b.bucket.Put(ctx, key, objstore.BytesBody(body), objstore.Cond{IfNoneMatch: true}); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// putTail writes the object with the batches that are written anew.
func (b *builder) putTail(ctx context.Context, id manifest.PartitionID, topic string, epoch int32, epochs []record.Epoch, t *tail) (manifest.Entry, error) {
	for i := range t.aborted {
		t.batches[len(t.batches)-1-i].SetLeaderEpoch(epoch)
	}
	f, data := describe(t.batches)
	f.Cluster, f.Partition, f.TopicName, f.LeaderEpoch, f.Incarnation = b.cluster, id, topic, epoch, b.incarnation
	f.AppendTimes, f.AppendResolutionMs = t.times, record.AppendResolutionMs
	f.Aborted = slices.DeleteFunc(t.abortedTxns, func(a record.AbortedTxn) bool { return a.Last < f.Base })
	f.Epochs, f.Producers = epochs, t.producers
	if err := f.Check(); err != nil {
		return manifest.Entry{}, fmt.Errorf("end of [%d, %d): %w", f.Base, f.End, err)
	}
	body := append(data, f.Encode()...)
	key := manifest.SegmentKey(id, f.Base, f.End-1, epoch, rand.Uint64())
	if err := b.put(ctx, key, body); err != nil {
		return manifest.Entry{}, err
	}
	return manifest.Entry{Base: t.from, End: t.end, Object: key, SizeBytes: int64(len(body)), DataBytes: f.DataBytes, LeaderEpoch: epoch,
		MaxTimestamp: f.MaxTimestamp.Ms, FirstAppend: t.times[0].Ms, LastAppend: t.times[len(t.times)-1].LastMs(), SHA256: f.SHA256}, nil
}
