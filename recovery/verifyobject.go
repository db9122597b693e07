package recovery

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// verifyWorkers bounds the objects that are read at once, and with it the memory: a chunk each.
const verifyWorkers = 4

// objects checks what the entries refer to, each object once.
func (v *verifier) objects(ctx context.Context, p *Partition, entries []manifest.Entry, sizes map[manifest.ObjectRef]int64) error {
	seen := map[manifest.ObjectRef]bool{}
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(verifyWorkers)
	for i := range entries {
		e := &entries[i]
		if e.State == manifest.Doomed || seen[e.Ref()] {
			continue
		}
		seen[e.Ref()] = true
		g.Go(func() error {
			err := v.object(ctx, p, e, sizes)
			if v.o.Progress != nil {
				v.o.Progress(int(done.Add(1)), len(entries))
			}
			return err
		})
	}
	return g.Wait()
}

func (v *verifier) object(ctx context.Context, p *Partition, e *manifest.Entry, sizes map[manifest.ObjectRef]int64) error {
	size, there := sizes[e.Ref()]
	if _, named := manifest.ParseSegmentKey(e.Object); !named {
		b, err := v.src.bucketOf(e.Archive)
		if err != nil {
			v.find(Finding{Absent, e.Object, "", err.Error()})
			return nil
		}
		i, err := b.Head(ctx, e.Object)
		if err != nil {
			return v.judge(ctx, p, err, e.Object)
		}
		size, there = i.Size, true
	}
	switch {
	case !there:
		return v.missing(ctx, p, e)
	case size != e.SizeBytes:
		v.find(Finding{Damaged, e.Object, fmt.Sprintf("byte %d", min(size, e.SizeBytes)), fmt.Sprintf("it has %d bytes, the manifest says %d", size, e.SizeBytes)})
		return nil
	}
	v.count(size)
	if !v.o.Full {
		return nil
	}
	f, err := v.src.Reader.Footer(ctx, e)
	if err != nil {
		return v.judge(ctx, p, err, e.Object)
	}
	return v.content(ctx, p, e, f)
}

// missing is a finding unless the owner has let the object go since the manifest was read.
func (v *verifier) missing(ctx context.Context, p *Partition, e *manifest.Entry) error {
	m, err := v.src.Reader.Tip(ctx, p.ID)
	if err != nil {
		return v.judge(ctx, p, err, e.Object)
	}
	if m != nil && m.Key() != p.Tip.Key() {
		now, err := allEntries(ctx, v.src, m)
		if err != nil {
			return v.judge(ctx, p, err, e.Object)
		}
		needed := false
		for i := range now {
			needed = needed || now[i].Ref() == e.Ref() && now[i].State != manifest.Doomed
		}
		if !needed {
			return nil
		}
	}
	v.find(Finding{Absent, e.Object, fmt.Sprintf("offsets [%d, %d)", e.Base, e.End), "it is referred to, but not there"})
	return nil
}

// content reads all of an object.
func (v *verifier) content(ctx context.Context, p *Partition, e *manifest.Entry, f *manifest.Footer) error {
	if err := placed(e, f); err != nil {
		v.find(Finding{Damaged, e.Object, "footer", err.Error()})
	}
	whole := *e
	whole.Base, whole.End = f.Base, f.End
	sum := sha256.New()
	at := walk{next: f.Base, epochs: f.Epochs}
	for b, err := range v.src.Reader.Batches(ctx, &whole, f.Base) {
		if err != nil {
			return v.judge(ctx, p, err, e.Object)
		}
		if err := at.batch(b); err != nil {
			v.find(Finding{Damaged, e.Object, fmt.Sprintf("byte %d, batch at offset %d", at.pos, b.BaseOffset()), err.Error()})
			return nil // what follows has lost its place
		}
		sum.Write(b)
	}
	switch {
	case at.pos != f.DataBytes || at.next != f.End || at.records != f.Records:
		v.find(Finding{Damaged, e.Object, fmt.Sprintf("byte %d", at.pos), fmt.Sprintf("%d records end at offset %d, the footer says %d and %d", at.records, at.next, f.Records, f.End)})
	case [32]byte(sum.Sum(nil)) != f.SHA256:
		v.find(Finding{Damaged, e.Object, "data", "SHA-256 is not the footer's"})
	}
	return nil
}

// placed compares a footer with the object's name and the entry.
func placed(e *manifest.Entry, f *manifest.Footer) error {
	name, ok := manifest.ParseSegmentKey(e.Object)
	if !ok {
		return nil
	}
	switch {
	case f.Partition != name.Partition || f.Base != name.Base || f.End != name.Last+1 || f.LeaderEpoch != name.LeaderEpoch:
		return fmt.Errorf("it is of %s, records [%d, %d), leader epoch %d: not those of its name", f.Partition, f.Base, f.End, f.LeaderEpoch)
	case e.Base > f.End || e.End < f.Base:
		return fmt.Errorf("it has records [%d, %d), the manifest expects [%d, %d)", f.Base, f.End, e.Base, e.End)
	}
	return nil
}

// walk follows the batches of an object.
type walk struct {
	pos     int64
	next    int64 // the smallest offset that the next batch may begin with
	records int64
	epoch   int32
	epochs  []record.Epoch
}

func (w *walk) batch(b record.Batch) error {
	if err := b.Check(); err != nil {
		return err
	}
	switch {
	case b.BaseOffset() < w.next:
		return fmt.Errorf("offset %d, expected %d or more", b.BaseOffset(), w.next)
	case b.NextOffset() <= b.BaseOffset():
		return errors.New("it ends before it begins")
	case b.LeaderEpoch() < w.epoch:
		return fmt.Errorf("leader epoch %d after %d", b.LeaderEpoch(), w.epoch)
	}
	if want := epochAt(w.epochs, b.BaseOffset()); want >= 0 && want != b.LeaderEpoch() {
		return fmt.Errorf("leader epoch %d, by the history %d", b.LeaderEpoch(), want)
	}
	w.epoch, w.next = b.LeaderEpoch(), b.NextOffset()
	w.pos += int64(len(b))
	w.records += int64(b.Count())
	return nil
}

// epochAt is the epoch that a history has at an offset, -1 where it does not say.
func epochAt(list []record.Epoch, off int64) int32 {
	epoch := int32(-1)
	for _, e := range list {
		if e.Start > off {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}
