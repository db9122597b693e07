package recovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// Attacher restores topics into the running cluster that its fields are of. Safe for concurrent use.
type Attacher struct {
	Store       *meta.Store
	Bucket      objstore.Bucket // of the cluster's own archive
	Info        manifest.ArchiveInfo
	Incarnation uint32
	Open        Opener
	LeaseTTL    time.Duration // default DefaultLeaseTTL
}

// Attachment is a topic ready to be created: its id, configuration, and each partition's pointer and first leader epoch.
type Attachment struct {
	ID          manifest.TopicID
	Replication int16 // replicas that the topic has in this cluster which it is restored from; 0: it is not known here
	Configs     map[string]string
	Pointers    []meta.Pointer
	FirstEpochs []int32
}

// Attach carries out an order for a topic of the given name, up to the point where the topic is to be created:
//
//  1. what the topic will refer to is held: the partitions of this cluster are pinned, each in one transaction with the
//     pointer of the manifest that was read (PROTOCOLS 3.3); of another archive a lease is taken, or the one that is
//     there gone on with, before anything is listed (2.5);
//  2. the manifests are written, under an id that nobody has used.
//
// Nothing refers to them until the caller creates the topic. After an error, or if the caller cannot create it, a pin and
// small objects may stay; a PinSweeper removes the former. With validateOnly nothing is written.
func (a *Attacher) Attach(ctx context.Context, name string, plan []byte, validateOnly bool) (Attachment, error) {
	o, err := DecodeOrder(plan)
	if err != nil {
		return Attachment{}, err
	}
	if err := checkTopicName(name); err != nil {
		return Attachment{}, err
	}
	canonical, err := o.Encode()
	if err != nil {
		return Attachment{}, err
	}
	j := &attachment{Attacher: a, order: o, name: name, validateOnly: validateOnly}
	if j.id, err = a.freeID(ctx, canonical, name); err != nil {
		return Attachment{}, err
	}
	if o.Archive == a.Info.ID {
		err = j.fork(ctx)
	} else {
		err = j.attach(ctx)
	}
	if err != nil {
		return Attachment{}, err
	}
	return j.build(ctx)
}

// freeID is the first id of the order that no topic, living or deleted, and no leftover in the bucket has.
func (a *Attacher) freeID(ctx context.Context, order []byte, name string) (manifest.TopicID, error) {
	img := a.Store.Image()
	for n := range topicAttempts {
		id := topicID(order, name, n)
		if img.TopicsByID[id] != nil || img.Deleted[id] != nil {
			continue
		}
		used := false
		for _, err := range a.Bucket.List(ctx, manifest.TopicPrefix(id), "") {
			if err != nil {
				return id, fmt.Errorf("list %s: %w", manifest.TopicPrefix(id), err)
			}
			used = true
			break
		}
		if !used {
			return id, nil
		}
	}
	return manifest.TopicID{}, fmt.Errorf("%w: restored as %s %d times already; give another name", ErrRequest, name, topicAttempts)
}

// attachment is one order under way.
type attachment struct {
	*Attacher
	order        Order
	name         string
	id           manifest.TopicID
	validateOnly bool

	src   *Source
	parts []PartitionPlan
}

// attach reads another cluster's archive under a lease.
func (j *attachment) attach(ctx context.Context) (err error) {
	if j.src, err = OpenSource(ctx, j.order.URL, j.Open); err != nil {
		return fmt.Errorf("archive %s: %w", j.order.URL, err)
	}
	if j.src.ID() != j.order.Archive {
		return fmt.Errorf("%w: %s holds archive %s, the plan is of %s", ErrRequest, j.order.URL, j.src.ID(), j.order.Archive)
	}
	if !j.validateOnly {
		if err := j.hold(ctx, j.src.Bucket, j.src.ID(), j.src.URL); err != nil {
			return err
		}
		for id, url := range j.src.Attached {
			if id == j.Info.ID {
				continue // our own objects, come back by a detour: pinned below
			}
			b, err := j.src.foreign(id)
			if err != nil {
				return err
			}
			if err := j.hold(ctx, b, id, url); err != nil {
				return err
			}
		}
	}
	j.parts = make([]PartitionPlan, len(j.order.Partitions))
	return j.each(ctx, func(ctx context.Context, n int32) error {
		id := manifest.PartitionID{Topic: j.order.ID, Partition: n}
		tip, err := j.src.Reader.Tip(ctx, id)
		if err == nil {
			j.parts[n], err = j.plan(ctx, n, tip)
		}
		if err == nil && !j.validateOnly {
			err = j.pinOwn(ctx, &j.parts[n])
		}
		return err
	})
}

// hold makes sure that a lease of this cluster on the archive lives, and that its brokers know of it.
func (j *attachment) hold(ctx context.Context, b objstore.Bucket, archive, url string) error {
	if at := j.Store.Image().Attached[archive]; at != nil {
		return checkLease(ctx, b, archive, at.LeaseID)
	}
	ttl := j.LeaseTTL
	if ttl <= 0 {
		ttl = DefaultLeaseTTL
	}
	l, err := takeLease(ctx, b, archive, url, j.Info.Cluster, ttl)
	if err != nil {
		return err
	}
	a := manifest.Attached{Cluster: j.Info.Cluster, Archive: archive, URL: url}
	body, err := a.Encode()
	if err != nil {
		return err
	}
	if _, err := j.Bucket.Put(ctx, a.Key(), objstore.BytesBody(body), objstore.Cond{}); err != nil {
		return fmt.Errorf("write %s: %w", a.Key(), err)
	}
	return j.Store.Attach(ctx, meta.Attached{Archive: archive, URL: url, LeaseID: l.ID, TTLMs: ttl.Milliseconds()})
}

// leaseMargin is what a lease must still have to be relied on while manifests are read.
const leaseMargin = time.Minute

// checkLease makes sure, by the store's clock, that a lease lives: what is listed from now on is protected by it.
func checkLease(ctx context.Context, b objstore.Bucket, archive, id string) error {
	key := manifest.LeaseKey(id)
	body, _, err := objstore.ReadAll(ctx, b, key, smallMax)
	if errors.Is(err, objstore.ErrNotFound) {
		return fmt.Errorf("archive %s: lease %s: %w", archive, id, tier.ErrLeaseLapsed)
	}
	if err != nil {
		return fmt.Errorf("read lease: %w", err)
	}
	l, err := manifest.DecodeLease(body)
	if err != nil {
		return manifest.InObject(err, key, 0)
	}
	i, err := b.Head(ctx, key)
	if err != nil {
		return fmt.Errorf("read lease: %w", err)
	}
	left := i.Modified.Add(time.Duration(l.TTLMs) * time.Millisecond).Sub(i.Date)
	if i.Date.IsZero() || left < min(leaseMargin, time.Duration(l.TTLMs)*time.Millisecond/2) {
		return fmt.Errorf("archive %s: lease %s: %w", archive, id, tier.ErrLeaseLapsed)
	}
	return nil
}

// plan makes the partition's part of the plan again, from what the archive lists now, and refuses to bring back less.
func (j *attachment) plan(ctx context.Context, n int32, tip *manifest.Manifest) (PartitionPlan, error) {
	want := j.order.Partitions[n]
	if tip == nil {
		if want.End != 0 {
			return PartitionPlan{}, fmt.Errorf("%s:%d has no archive any more; plan again", j.order.Source, n)
		}
		return PartitionPlan{Partition: n}, nil
	}
	if want.End > tip.Through {
		return PartitionPlan{}, fmt.Errorf("%s:%d is archived up to offset %d, planned was %d; try again in a moment", j.order.Source, n, tip.Through, want.End)
	}
	entries, err := allEntries(ctx, j.src, tip)
	if err != nil {
		return PartitionPlan{}, err
	}
	p := planPartition(n, tip, entries, want.Start, want.End)
	if _, missing := p.Records(); missing > want.Missing {
		return p, fmt.Errorf("%s:%d: %d of the offsets [%d, %d) are gone since the plan was made; plan again", j.order.Source, n, missing-want.Missing, want.Start, want.End)
	}
	return p, nil
}

// build writes the new topic's manifests.
func (j *attachment) build(ctx context.Context) (Attachment, error) {
	out := Attachment{ID: j.id, Replication: j.replication(), Configs: j.order.Configs, Pointers: make([]meta.Pointer, len(j.parts)), FirstEpochs: make([]int32, len(j.parts))}
	if j.validateOnly {
		return out, nil
	}
	now, err := storeNow(ctx, j.Bucket)
	if err != nil {
		return out, err
	}
	b := &builder{src: j.src, bucket: j.Bucket, archive: j.Info.ID, cluster: j.Info.Cluster, incarnation: j.Incarnation, now: now}
	made := make([]built, len(j.parts))
	err = j.each(ctx, func(ctx context.Context, n int32) error {
		var err error
		made[n], err = b.build(ctx, manifest.PartitionID{Topic: j.id, Partition: n}, j.name, &j.parts[n])
		return err
	})
	if err != nil {
		return out, err
	}
	largest := int64(-1)
	for n := range made {
		out.Pointers[n], out.FirstEpochs[n] = made[n].pointer, made[n].firstEpoch
		largest = max(largest, made[n].producerIDs)
	}
	if largest >= 0 && j.order.Archive != j.Info.ID {
		err = j.Store.AdvanceProducerIDs(ctx, (largest/producerBlock+1)*producerBlock)
	}
	return out, err
}

// replication is what the topic has where it comes from this cluster, and has not been collected. An archive does not tell.
func (j *attachment) replication() int16 {
	if j.order.Archive != j.Info.ID {
		return 0
	}
	img := j.Store.Image()
	t := img.TopicsByID[j.order.ID]
	if t == nil {
		t = img.Deleted[j.order.ID]
	}
	if t == nil || len(t.Partitions) == 0 {
		return 0
	}
	return int16(len(t.Partitions[0].Replicas))
}

// each runs f for every partition, some at once.
func (j *attachment) each(ctx context.Context, f func(context.Context, int32) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(buildWorkers)
	for n := range j.order.Partitions {
		g.Go(func() error {
			if err := f(ctx, int32(n)); err != nil {
				return fmt.Errorf("partition %d: %w", n, err)
			}
			return nil
		})
	}
	return g.Wait()
}
