package recovery

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
)

// producerBlock is how many producer ids a broker takes at once: the next block begins above all that were in use.
const producerBlock = 1000

// commit makes the new cluster's metadata, and its topics' records in the new archive.
func (r *ClusterRestore) commit(ctx context.Context, bucket objstore.Bucket, plan *Plan, st *dirState, made [][]built, res *Result) (err error) {
	kv, closeKV, err := r.OpenMetadata(ctx, r.Dir)
	if err != nil {
		return fmt.Errorf("open metadata: %w", err)
	}
	defer func() { err = errors.Join(err, closeKV()) }()
	store, err := meta.Open(ctx, kv, st.Cluster, meta.Options{Logger: r.Logger})
	if err != nil {
		return err
	}
	largest := int64(-1)
	for i := range made {
		for j := range made[i] {
			largest = max(largest, made[i][j].producerIDs)
		}
	}
	if largest >= 0 {
		if err := store.AdvanceProducerIDs(ctx, (largest/producerBlock+1)*producerBlock); err != nil {
			return err
		}
	}
	for _, l := range st.Leases {
		a := meta.Attached{Archive: l.Archive, URL: l.URL, LeaseID: l.ID, TTLMs: r.LeaseTTL.Milliseconds()}
		if err := store.Attach(ctx, a); err != nil {
			return err
		}
	}
	for i := range plan.Topics {
		t := &plan.Topics[i]
		made, err := r.createTopic(ctx, store, bucket, t, made[i])
		if err != nil {
			return fmt.Errorf("create topic %s: %w", t.Name, err)
		}
		res.Topics = append(res.Topics, made)
		r.Progress("topics", i+1, len(plan.Topics))
	}
	return nil
}

func (r *ClusterRestore) createTopic(ctx context.Context, store *meta.Store, bucket objstore.Bucket, t *TopicPlan, parts []built) (RestoredTopic, error) {
	spec := meta.TopicSpec{Name: t.Name, ID: t.ID, Internal: t.Internal, Configs: t.Configs}
	out := RestoredTopic{Name: t.Name, ID: t.ID, Done: true}
	for _, p := range parts {
		spec.Assignment = append(spec.Assignment, []int32{r.NodeID})
		spec.Pointers = append(spec.Pointers, p.pointer)
		spec.FirstEpochs = append(spec.FirstEpochs, p.firstEpoch)
		out.Ends = append(out.Ends, p.end)
		out.Aborted += p.aborted
	}
	made, err := store.CreateTopic(ctx, spec)
	if err != nil {
		return out, err
	}
	// The broker would write this record when it starts: with it here the new archive is whole by itself.
	rec := manifest.TopicRecord{Cluster: store.Image().Cluster, Incarnation: store.Image().Incarnation, N: made.Version, Event: manifest.TopicCreated,
		Time: made.CreatedMs, ID: made.ID, Name: made.Name, Partitions: int32(len(parts)), Configs: made.Configs, Internal: made.Internal}
	if err := putDocument(ctx, bucket, rec.Key(), rec.Encode); err != nil {
		return out, err
	}
	return out, store.SetTopicArchived(ctx, made.ID, made.Version)
}
