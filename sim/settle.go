package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/tier"
)

// patience is how long anything may take once nothing is wrong any more.
const patience = 5 * time.Minute

// settle restarts the broker in a world without faults, and checks what must be so then.
func (w *World) settle() {
	if w.failed() {
		return
	}
	rng := w.rand("settle")
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	w.end(w.plan.machines && rng.IntN(2) == 0, rng.Uint64())
	steps := []func(context.Context){
		w.restart, w.catchUp, w.readBack, w.archivedIsLocal, w.restores, w.groupOffsets,
		// A new leader epoch makes the leftovers of the former ones orphans.
		w.stopCleanly, w.restart, w.orphans, w.collected, w.readBack,
	}
	for _, step := range steps {
		if w.failed() {
			return
		}
		w.audit()
		step(ctx)
	}
}

func (w *World) restart(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if w.revive(ctx) == nil {
		w.violate("a broker starts when nothing is wrong", "it did not")
	}
}

// stopCleanly first waits for what is still under way to the object store: a new leader looks for orphans once, and again only when
// it has committed something.
func (w *World) stopCleanly(context.Context) {
	w.store.Wait()
	if err := w.process().drain(); err != nil {
		w.violate("a drain ends well when nothing is wrong", err.Error())
	}
	w.files.Kill()
}

// until polls ok, and breaks the rule if it takes too long.
func (w *stage) until(ctx context.Context, rule string, ok func() (done bool, state string)) bool {
	state := ""
	for end := time.Now().Add(patience); time.Now().Before(end) && ctx.Err() == nil; pause(ctx, 500*time.Millisecond) {
		var done bool
		if done, state = ok(); done {
			return true
		}
	}
	w.violate(rule, state)
	return false
}

// catchUp waits until everything that is to be archived is.
func (w *stage) catchUp(ctx context.Context) {
	for _, p := range w.parts() {
		w.until(ctx, "the archive catches up when nothing is wrong", func() (bool, string) {
			rp := w.leader(p)
			if rp == nil {
				return false, fmt.Sprintf("%s-%d has no leader", p.topic.name, p.id.Partition)
			}
			if !p.topic.tiered || rp.LEO() == 0 {
				return true, ""
			}
			a := rp.Archive()
			if a == nil {
				return false, fmt.Sprintf("%s-%d has no archive", p.topic.name, p.id.Partition)
			}
			return a.Through() == rp.LEO(), fmt.Sprintf("%s-%d is archived through %d, the log ends at %d: %v", p.topic.name, p.id.Partition, a.Through(), rp.LEO(), a.Err())
		})
	}
}

// readBack reads every log from its beginning to its end, as a client.
func (w *stage) readBack(ctx context.Context) {
	c := newConsumer(w, 99)
	defer c.c.close()
	for _, p := range w.parts() {
		var off, end int64
		begun := false
		w.until(ctx, "acknowledged records are readable", func() (bool, string) {
			rp := w.leader(p)
			if rp == nil {
				return false, "no leader"
			}
			if start := rp.LogStart(); off < start || !begun {
				off, begun = start, true
			}
			for end = rp.HighWatermark(); off < end; {
				next, err := c.fetch(ctx, p, off, 32<<10)
				if err == nil && next <= off {
					err = errors.New("nothing is there")
				}
				if err != nil {
					return w.failed(), fmt.Sprintf("%s-%d [%d, %d): offset %d: %v", p.topic.name, p.id.Partition, rp.LogStart(), end, off, err)
				}
				off = next
			}
			return true, ""
		})
		if w.failed() {
			return
		}
		w.history.complete(p, w.leader(p).LogStart(), end)
	}
}

// complete checks that everything that was acknowledged lies in [start, end), which has been read, or was deleted.
func (h *History) complete(p *part, start, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if start < p.start {
		h.fail("deleted records do not come back", p, "log start %d, was %d", start, p.start)
	}
	for off, s := range p.known {
		// Of several brokers each gives readers only what none may lose.
		if (s.acked || h.replicated) && !s.doubt && (off >= end || off < start && !h.mayBeGone(p, off)) {
			h.fail("acknowledged records are readable", p, "the log is [%d, %d), %q was acknowledged (%v) or read at %d", start, end, clip(s.value), s.acked, off)
		}
	}
}

// groupOffsets asks for all committed offsets.
func (w *World) groupOffsets(ctx context.Context) {
	c := newCommitter(w)
	defer c.c.close()
	w.offsets.mu.Lock()
	var keys []offsetKey
	for k := range w.offsets.keys {
		if !k.part.topic.deleting {
			keys = append(keys, k)
		}
	}
	w.offsets.mu.Unlock()
	for _, k := range keys {
		w.until(ctx, "group offsets can be asked for when nothing is wrong", func() (bool, string) { return c.ask(ctx, k), k.group })
	}
}

// orphans waits for the sweep, and checks what it left: objects of older leader epochs that no manifest lists.
func (w *stage) orphans(ctx context.Context) {
	w.until(ctx, "orphans are swept", func() (bool, string) {
		img, err := w.image()
		if err != nil {
			return false, err.Error()
		}
		r, err := tier.OpenBucket(ctx, w.bucket, tier.ReaderOptions{})
		if err != nil {
			return false, err.Error()
		}
		var left []string
		for _, p := range w.parts() {
			t := img.TopicsByID[p.id.Topic]
			if t == nil || t.Partitions[p.id.Partition].Pointer.Manifest == "" {
				continue
			}
			left = append(left, w.orphansOf(ctx, r, t.Partitions[p.id.Partition])...)
		}
		return len(left) == 0, fmt.Sprintf("%d are left: %s", len(left), strings.Join(left[:min(3, len(left))], ", "))
	})
}

func (w *stage) orphansOf(ctx context.Context, r *tier.Reader, p *meta.Partition) (out []string) {
	m, err := r.Manifest(ctx, p.Pointer.Manifest)
	if err != nil {
		return []string{err.Error()}
	}
	listed := map[string]bool{}
	for e, err := range r.Entries(ctx, m) {
		if err != nil {
			return []string{err.Error()}
		}
		listed[e.Object] = true
	}
	for info, err := range w.bucket.List(ctx, manifest.SegmentPrefix(p.ID), "") {
		if err != nil {
			return []string{err.Error()}
		}
		name, ok := manifest.ParseSegmentKey(info.Key)
		if !ok || name.LeaderEpoch < p.LeaderEpoch && !listed[info.Key] {
			out = append(out, info.Key)
		}
	}
	return out
}

// collected waits until nothing is left of topics whose window has passed, but for writes that landed after the collection.
func (w *stage) collected(ctx context.Context) {
	w.history.mu.Lock()
	dead := slices.Clone(w.history.dead)
	w.history.mu.Unlock()
	if w.plan.windowMs > 60_000 {
		return // it would take long
	}
	for _, t := range dead {
		w.until(ctx, "deleted topics are collected", func() (bool, string) {
			if img, err := w.image(); err != nil || img.Deleted[t.id] != nil {
				return false, fmt.Sprintf("%s (%s) is remembered: %v", t.name, t.id, err)
			}
			if w.late {
				return true, ""
			}
			for info := range w.bucket.List(ctx, manifest.TopicPrefix(t.id), "") {
				return false, fmt.Sprintf("%s (%s): %s", t.name, t.id, info.Key)
			}
			return true, ""
		})
	}
}
