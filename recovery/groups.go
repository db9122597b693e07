package recovery

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

const (
	groupScanMax  = 256 << 20 // bytes of the offsets topic beyond which the groups are not listed
	groupKeysMax  = 1 << 20   // keys kept while they are
	groupBatchMax = 64 << 20  // of one batch, unpacked
)

// groupsIn lists the consumer groups that have committed offsets in a restored offsets topic, read back from what was
// written. Whole is false where the topic is too large to be read for that.
func groupsIn(ctx context.Context, src *Source, t *TopicPlan, made []built) (groups []string, whole bool, err error) {
	var bytes int64
	for i := range t.Partitions {
		bytes += t.Partitions[i].Bytes
	}
	if bytes > groupScanMax {
		return nil, false, nil
	}
	live := map[string]bool{} // by key of a commit
	for n := range made {
		if made[n].pointer.Manifest == "" {
			continue
		}
		m, err := src.Reader.Manifest(ctx, made[n].pointer.Manifest)
		if err != nil {
			return nil, false, err
		}
		for e, err := range src.Reader.Entries(ctx, m) {
			if err != nil {
				return nil, false, err
			}
			if err := commitsIn(ctx, src, e, live); err != nil {
				return nil, false, err
			}
		}
		if len(live) > groupKeysMax {
			return nil, false, nil
		}
	}
	names := map[string]bool{}
	for key, there := range live {
		if name, ok := commitGroup([]byte(key)); ok && there {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), true, nil
}

func commitsIn(ctx context.Context, src *Source, e *manifest.Entry, live map[string]bool) error {
	for b, err := range src.Reader.Batches(ctx, e, e.Base) {
		if err != nil {
			return err
		}
		if b.Control() {
			continue
		}
		it := b.Records(groupBatchMax)
		for it.Next() {
			if _, ok := commitGroup(it.Key()); ok {
				live[string(it.Key())] = !it.Tombstone()
			}
		}
		err = it.Err()
		it.Close()
		if err != nil {
			return err
		}
		if len(live) > groupKeysMax {
			return nil
		}
	}
	return nil
}

// commitGroup is the group of a committed offset's key: version 0 or 1, then the group's name.
func commitGroup(key []byte) (string, bool) {
	if len(key) < 4 || binary.BigEndian.Uint16(key) > 1 {
		return "", false
	}
	n := int(int16(binary.BigEndian.Uint16(key[2:])))
	if n < 0 || n > len(key)-4 {
		return "", false
	}
	return string(key[4 : 4+n]), true
}

// listGroups notes in the result which consumer groups are back.
func (r *ClusterRestore) listGroups(ctx context.Context, bucket objstore.Bucket, plan *Plan, made [][]built, res *Result) error {
	src := &Source{URL: r.Archive, Bucket: bucket, open: r.Open}
	if err := src.load(ctx); err != nil {
		return err
	}
	for i := range plan.Topics {
		if plan.Topics[i].Name != offsetsTopic {
			continue
		}
		groups, whole, err := groupsIn(ctx, src, &plan.Topics[i], made[i])
		if err != nil {
			return err
		}
		res.Groups = groups
		res.GroupsUnlisted = !whole
	}
	return nil
}
