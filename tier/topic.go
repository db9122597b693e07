package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/internal/invariants"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// PutTopic writes a topic record under its number, which the caller raises by one. It may be repeated: the same record
// is success. Another record under the number is errors.Is objstore.ErrExists: somebody else changed the topic.
func (a *Archive) PutTopic(ctx context.Context, r manifest.TopicRecord) error {
	if r.Cluster == "" {
		r.Cluster = a.o.Cluster
	}
	if r.Incarnation == 0 {
		r.Incarnation = a.o.Incarnation
	}
	body, err := r.Encode()
	if err != nil {
		return err
	}
	err = createOnce(ctx, a.bucket, r.Key(), body)
	if errors.Is(err, errOthersBytes) {
		return fmt.Errorf("write topic record: %w: %w", objstore.ErrExists, err)
	}
	if err != nil {
		return fmt.Errorf("write topic record %s: %w", r.Key(), err)
	}
	return nil
}

// lastTopicRecord reads the newest record of a topic and when it was written by the store's clock; nil: there is none.
func (o *objects) lastTopicRecord(ctx context.Context, id manifest.TopicID) (*manifest.TopicRecord, time.Time, error) {
	var last objstore.Info
	for i, err := range o.bucket.List(ctx, manifest.TopicRecordPrefix(id), "") {
		if err != nil {
			return nil, time.Time{}, fmt.Errorf("list records of topic %v: %w", id, err)
		}
		last = i
	}
	if last.Key == "" {
		return nil, time.Time{}, nil
	}
	r, err := o.topicRecord(ctx, last.Key)
	return r, last.Modified, err
}

func (o *objects) topicRecord(ctx context.Context, key string) (*manifest.TopicRecord, error) {
	b, _, err := objstore.ReadAll(ctx, o.bucket, key, smallMax)
	if err != nil {
		return nil, fmt.Errorf("read topic record: %w", err)
	}
	r, err := manifest.DecodeTopicRecord(b)
	if err == nil && r.Key() != key {
		err = fmt.Errorf("it is %s", r.Key())
	}
	if err != nil {
		return nil, &CorruptError{Object: key, Chunk: -1, Err: err}
	}
	return r, nil
}

// deletedTopic is what this process knows of a deleted topic's collection.
type deletedTopic struct{ wait wait }

// CollectDeleted works on a deleted topic: the first call marks everything dead, which begins the window by the store's
// clock; after the window everything is doomed, then, once leases and claims allow it, deleted, the topic's records last,
// so that a reader of the bucket sees the deleted topic until then. It is called again and again, by one broker at a time,
// until done says that nothing is left. Until then the partitions' records must stay in the metadata store, since pins and
// pointer guard each doom. ErrTopicLive: the topic's newest record does not say that it is deleted.
func (a *Archive) CollectDeleted(ctx context.Context, id manifest.TopicID, partitions int32, deletedMs int64, windowMs int64) (done bool, err error) {
	doomBefore, over, err := a.windowOf(ctx, id, deletedMs, windowMs)
	if err != nil {
		return false, err
	}
	ready := true
	for n := range partitions {
		ok, err := a.doomPartition(ctx, manifest.PartitionID{Topic: id, Partition: n}, doomBefore, over)
		if err != nil {
			return false, err
		}
		ready = ready && ok
	}
	if !ready || !over {
		return false, nil
	}
	return a.deleteTopic(ctx, id, partitions)
}

// WindowOver tells whether a deleted topic's restore window has passed: by the store's clock, and counted from when the store was told of
// the deletion, or from deletedMs where that is later. Errors are CollectDeleted's.
func (a *Archive) WindowOver(ctx context.Context, id manifest.TopicID, deletedMs int64, windowMs int64) (bool, error) {
	_, over, err := a.windowOf(ctx, id, deletedMs, windowMs)
	return over, err
}

// windowOf is the time by the store's clock before which what died may be doomed, and whether the deletion itself is before it.
func (a *Archive) windowOf(ctx context.Context, id manifest.TopicID, deletedMs int64, windowMs int64) (doomBefore time.Time, over bool, err error) {
	rec, written, err := a.objects.lastTopicRecord(ctx, id)
	if err != nil {
		return time.Time{}, false, err
	}
	if rec != nil && rec.Event != manifest.TopicDropped {
		return time.Time{}, false, fmt.Errorf("topic %v was %v last: %w", id, rec.Event, ErrTopicLive)
	}
	now, err := a.clock.ask(ctx, a.bucket)
	if err != nil {
		return time.Time{}, false, err
	}
	window := time.Duration(windowMs) * time.Millisecond
	if windowMs <= 0 {
		window = a.o.RestoreWindow
	}
	doomBefore = now.Add(-window)
	return doomBefore, !written.After(doomBefore) && deletedMs <= doomBefore.UnixMilli(), nil
}

// doomPartition brings a deleted topic's partition a commit nearer to having only doomed entries; ok: it has.
func (a *Archive) doomPartition(ctx context.Context, id manifest.PartitionID, doomBefore time.Time, over bool) (ok bool, err error) {
	for {
		v, err := a.deletedView(ctx, id, over)
		if err != nil || v == nil || v.man.N == 0 {
			return err == nil, err
		}
		live, dead := states(v.man)
		switch {
		case len(v.ptr.Pins) > 0 && live == 0:
			return false, nil
		case live == 0 && dead == 0:
			return true, nil
		case live > 0:
			err = a.commitDeleted(ctx, v, manifest.Edit{DropTopic: true})
		default:
			e := manifest.Edit{DoomBefore: doomBefore.UnixMilli()}
			if !over || !dueBefore(v.man, e) {
				return false, nil
			}
			err = a.commitDeleted(ctx, v, e)
		}
		if errors.Is(err, errNothingDoomed) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// deletedView reads a deleted partition's committed manifest; nil if an earlier call has deleted it and all objects.
func (a *Archive) deletedView(ctx context.Context, id manifest.PartitionID, over bool) (*view, error) {
	ptr, err := a.pointers.Load(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("load pointer of %v: %w", id, err)
	}
	if ptr.Incarnation != a.o.Incarnation {
		return nil, fmt.Errorf("partition %v is at incarnation %d: %w", id, ptr.Incarnation, ErrFenced)
	}
	m, err := a.objects.manifestOf(ctx, a.o.Cluster, id, ptr)
	if err == nil {
		return newView(ptr, m), nil
	}
	if over && errors.Is(err, objstore.ErrNotFound) {
		empty, lerr := a.empty(ctx, manifest.SegmentPrefix(id))
		if lerr != nil {
			return nil, lerr
		}
		if empty {
			return nil, nil
		}
	}
	return nil, err
}

func (a *Archive) empty(ctx context.Context, prefix string) (bool, error) {
	for _, err := range a.bucket.List(ctx, prefix, "") {
		if err != nil {
			return false, fmt.Errorf("list %s: %w", prefix, err)
		}
		return false, nil
	}
	return true, nil
}

// states counts the entries that are live and dead.
func states(m *manifest.Manifest) (live, dead int) {
	for i := range m.Groups {
		live += int(m.Groups[i].Live())
		dead += int(m.Groups[i].Dead)
	}
	for i := range m.Entries {
		switch m.Entries[i].State {
		case manifest.Live:
			live++
		case manifest.Dead:
			dead++
		}
	}
	return live, dead
}

// commitDeleted commits an edit of a partition without a leader, in an epoch of its own: the broker that led it may still archive what it
// has. Two writers in one epoch would pass over each other's numbers, and the highest, which readers of the bucket alone take, be one that
// does not descend from the committed one. The topic may be undeleted at any moment: the record that was read may already have the epoch
// of its new leader, whose archive would be dead under its hands. So the transactions ask for the deletion, too.
func (a *Archive) commitDeleted(ctx context.Context, v *view, e manifest.Edit) (err error) {
	if e.Time, err = a.deathTime(ctx); err != nil {
		return err
	}
	ptr, err := a.pointers.ElectDeleted(ctx, v.man.Partition, v.ptr)
	if err != nil {
		return fmt.Errorf("elect for deleted partition %v: %w", v.man.Partition, err)
	}
	v = newView(ptr, v.man)
	e.Incarnation, e.LeaderEpoch, e.N = a.o.Incarnation, v.ptr.LeaderEpoch, v.ptr.N
	var c manifest.Change
	for range numbersTried {
		e.N++
		if c, err = a.objects.apply(ctx, v.man, e); err != nil {
			return err
		}
		if e.DoomBefore > 0 && c.Doomed == 0 {
			return errNothingDoomed
		}
		for _, g := range c.Groups {
			if err = createOnce(ctx, a.bucket, g.Key, g.Body); err != nil {
				break
			}
		}
		if err == nil {
			err = createOnce(ctx, a.bucket, c.Manifest.Key(), c.Manifest.Encode())
		}
		if !errors.Is(err, errOthersBytes) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("write manifest of deleted partition %v: %w", v.man.Partition, err)
	}
	next := v.ptr
	next.Manifest, next.N, next.Through, next.ThroughTime = c.Manifest.Key(), c.Manifest.N, c.Manifest.Through, c.Manifest.ThroughTime
	if _, err := a.pointers.CommitDeleted(ctx, v.man.Partition, v.ptr, next); err != nil {
		return fmt.Errorf("commit %s: %w", next.Manifest, err) // the next call reads what came of it
	}
	a.m.commits.Inc()
	a.m.entries.WithLabelValues("doomed").Add(float64(c.Doomed))
	return nil
}

// deleteTopic deletes a topic all of whose entries are doomed by committed manifests.
func (a *Archive) deleteTopic(ctx context.Context, id manifest.TopicID, partitions int32) (bool, error) {
	t := a.deletedTopic(id)
	if ok, _, err := a.gate.pass(ctx, &t.wait); err != nil || !ok {
		return false, err
	}
	for n := range partitions {
		v, err := a.deletedView(ctx, manifest.PartitionID{Topic: id, Partition: n}, true)
		if err != nil {
			return false, err
		}
		if v == nil {
			continue
		}
		if live, dead := states(v.man); live+dead > 0 || len(v.ptr.Pins) > 0 {
			return false, nil
		}
	}
	if err := a.gate.claims(ctx); err != nil {
		return false, err
	}
	invariants.Assert(!a.gate.closed(), "topic %v: deleting under a newer claim", id)
	for n := range partitions {
		if err := a.deletePartition(ctx, manifest.PartitionID{Topic: id, Partition: n}); err != nil {
			return false, err
		}
	}
	if err := a.deletePrefix(ctx, "topic", manifest.TopicRecordPrefix(id)); err != nil {
		return false, err
	}
	done, err := a.empty(ctx, manifest.TopicPrefix(id))
	if done {
		a.mu.Lock()
		delete(a.deleted, id)
		a.mu.Unlock()
	}
	return done, err
}

// deletePartition deletes segments before manifests: as long as a segment is there, the manifest that dooms it is too.
func (a *Archive) deletePartition(ctx context.Context, id manifest.PartitionID) error {
	if err := a.deletePrefix(ctx, "segment", manifest.SegmentPrefix(id)); err != nil {
		return err
	}
	if empty, err := a.empty(ctx, manifest.SegmentPrefix(id)); err != nil || !empty {
		return errors.Join(err, fmt.Errorf("segments of deleted partition %v are still listed: %w", id, objstore.ErrUnavailable))
	}
	if err := a.deletePrefix(ctx, "group", manifest.GroupPrefix(id)); err != nil {
		return err
	}
	return a.deletePrefix(ctx, "manifest", manifest.ManifestPrefix(id))
}

// deletePrefix deletes in ascending order: of a topic's records the one that says it is deleted goes last.
func (a *Archive) deletePrefix(ctx context.Context, kind, prefix string) error {
	var keys []string
	for i, err := range a.bucket.List(ctx, prefix, "") {
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		keys = append(keys, i.Key)
		if len(keys) == deleteBatch {
			if err := a.remove(ctx, kind, keys); err != nil {
				return err
			}
			keys = keys[:0]
		}
	}
	if kind == "topic" && len(keys) > 1 {
		last := len(keys) - 1
		if err := a.remove(ctx, kind, keys[:last]); err != nil {
			return err
		}
		keys = keys[last:]
	}
	return a.remove(ctx, kind, slices.Clone(keys))
}

// deletedTopic is the state of a topic whose dooms are all committed by now.
func (a *Archive) deletedTopic(id manifest.TopicID) *deletedTopic {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.deleted[id]
	if t == nil {
		t = &deletedTopic{wait{since: a.gate.mark()}}
		a.deleted[id] = t
	}
	return t
}

// revive brings back what a deletion marked dead: whoever leads the partition again has undeleted its topic. A manifest is written also
// where the committed one has no such marks: a collection may have written one that was not committed, on top of an older one than the
// last leader's, whose epoch it has in its key. To a reader of the bucket alone that is the newest.
func (p *Partition) revive(ctx context.Context) error {
	dropped := func(m *manifest.Manifest) bool {
		return slices.ContainsFunc(m.Entries, func(e manifest.Entry) bool { return e.Reason == manifest.TopicDeleted })
	}
	if v := p.view.Load(); v.man.N == 0 || !v.ptr.Undeleted && !dropped(v.man) {
		return nil
	}
	return p.commit(ctx, "undelete", func(context.Context, *manifest.Manifest) (manifest.Edit, bool, error) {
		return manifest.Edit{Revive: true}, true, nil
	}, nil)
}
