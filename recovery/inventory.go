package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// Inventory is what a bucket holds, as its tips say: it costs some requests a partition, however many segments that has.
type Inventory struct {
	Info        manifest.ArchiveInfo
	Incarnation uint32
	Now         int64 // ms, the store's clock
	Marks       []manifest.Mark
	Topics      []*Topic // deleted ones too, by name, then by id
	Damage      []Damage // what could not be read

	unread []string // marks among Damage: up to when the archive is complete is not known then
}

// Topic is one topic, living or deleted, with its history and its partitions.
type Topic struct {
	ID         manifest.TopicID
	Records    []manifest.TopicRecord // oldest first, at least one
	Partitions []*Partition           // those that have something in the bucket, ascending
}

// Partition is one partition's tip.
type Partition struct {
	ID  manifest.PartitionID
	Tip *manifest.Manifest // nil: nothing is archived, or Err
	Err error              // why the tip cannot be read
}

// Damage is an object that cannot be read, or what is missing.
type Damage struct {
	Object string `json:"object"`
	What   string `json:"what"`
}

// inventoryWorkers bounds the partitions that are looked at at once.
const inventoryWorkers = 16

// TakeInventory reads what the bucket holds. Damage in parts of it is listed, not returned.
func TakeInventory(ctx context.Context, s *Source) (*Inventory, error) {
	inv := &Inventory{Info: s.Reader.Info(), Incarnation: s.Reader.Incarnation(), Damage: slices.Clone(s.damage)}
	var err error
	if inv.Now, err = storeNow(ctx, s.Bucket); err != nil {
		return nil, err
	}
	if err := inv.readMarks(ctx, s.Bucket); err != nil {
		return nil, err
	}
	for t, err := range s.Reader.Topics(ctx) {
		var c *tier.CorruptError
		switch {
		case errors.As(err, &c):
			inv.Damage = append(inv.Damage, Damage{c.Object, c.Error()})
		case err != nil:
			return nil, err
		default:
			inv.Topics = append(inv.Topics, &Topic{ID: t.ID, Records: t.Records})
		}
	}
	slices.SortFunc(inv.Topics, func(a, b *Topic) int {
		return cmp.Or(cmp.Compare(a.Last().Name, b.Last().Name), slices.Compare(a.ID[:], b.ID[:]))
	})
	return inv, inv.readTips(ctx, s.Reader)
}

// storeNow asks the store what time it is.
func storeNow(ctx context.Context, b objstore.Bucket) (int64, error) {
	i, err := b.Head(ctx, manifest.ArchiveKey)
	if err != nil {
		return 0, fmt.Errorf("ask the store's clock: %w", err)
	}
	if i.Date.IsZero() {
		return time.Now().UnixMilli(), nil
	}
	return i.Date.UnixMilli(), nil
}

// markReads is how often marks are listed where one is gone when it is to be read: its broker has been forgotten meanwhile.
const markReads = 4

func (inv *Inventory) readMarks(ctx context.Context, b objstore.Bucket) error {
	damage := inv.Damage
	for n := 1; ; n++ {
		inv.Marks, inv.unread, inv.Damage = nil, nil, slices.Clip(damage)
		err := inv.readMarksOnce(ctx, b)
		if n == markReads || !errors.Is(err, objstore.ErrNotFound) {
			return err
		}
	}
}

func (inv *Inventory) readMarksOnce(ctx context.Context, b objstore.Bucket) error {
	for i, err := range b.List(ctx, manifest.MarkPrefix(inv.Info.Cluster), "") {
		if err != nil {
			return fmt.Errorf("list marks: %w", err)
		}
		body, _, err := objstore.ReadAll(ctx, b, i.Key, smallMax)
		if err != nil {
			return fmt.Errorf("read mark: %w", err)
		}
		m, err := manifest.DecodeMark(body)
		if err == nil && m.Key() != i.Key {
			err = fmt.Errorf("it is %s", m.Key())
		}
		if err != nil {
			inv.Damage = append(inv.Damage, Damage{i.Key, manifest.InObject(err, i.Key, 0).Error()})
			inv.unread = append(inv.unread, i.Key)
			continue
		}
		inv.Marks = append(inv.Marks, m)
	}
	return nil
}

func (inv *Inventory) readTips(ctx context.Context, r *tier.Reader) error {
	var mu sync.Mutex // guards Damage
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(inventoryWorkers)
	for _, t := range inv.Topics {
		g.Go(func() error {
			ids, err := r.Partitions(ctx, t.ID)
			if err != nil {
				return err
			}
			for _, id := range ids {
				p := &Partition{ID: id}
				p.Tip, p.Err = r.Tip(ctx, id)
				var c *tier.CorruptError
				if p.Err != nil && !errors.As(p.Err, &c) {
					return p.Err
				}
				if p.Err != nil {
					mu.Lock()
					inv.Damage = append(inv.Damage, Damage{c.Object, c.Error()})
					mu.Unlock()
				}
				t.Partitions = append(t.Partitions, p)
			}
			return nil
		})
	}
	err := g.Wait()
	slices.SortFunc(inv.Damage, func(a, b Damage) int { return cmp.Compare(a.Object, b.Object) })
	return err
}

// Partition is the partition with the number, nil if nothing is archived of it.
func (t *Topic) Partition(n int32) *Partition {
	i, ok := slices.BinarySearchFunc(t.Partitions, n, func(p *Partition, n int32) int { return cmp.Compare(p.ID.Partition, n) })
	if !ok {
		return nil
	}
	return t.Partitions[i]
}

// FirstAppend is the append time, ms, of about the oldest record that may be restored; ok is false if there is none.
func (p *Partition) FirstAppend() (ms int64, ok bool) {
	ms = math.MaxInt64
	if p.Tip == nil {
		return 0, false
	}
	for i := range p.Tip.Groups {
		if g := &p.Tip.Groups[i]; g.Doomed < g.Count {
			ms = min(ms, g.FirstAppend)
		}
	}
	for i := range p.Tip.Entries {
		if e := &p.Tip.Entries[i]; e.State != manifest.Doomed {
			ms = min(ms, e.FirstAppend)
		}
	}
	return ms, ms != math.MaxInt64
}

// Segments is the number of live objects.
func (p *Partition) Segments() int {
	n := 0
	if p.Tip == nil {
		return 0
	}
	for i := range p.Tip.Groups {
		n += int(p.Tip.Groups[i].Live())
	}
	for i := range p.Tip.Entries {
		if p.Tip.Entries[i].State == manifest.Live {
			n++
		}
	}
	return n
}
