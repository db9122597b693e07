package tier

import (
	"context"
	"errors"
	"time"

	"github.com/varvelog/varve/objstore"
)

// task is the kind of a partition's next step, in order of precedence: what is under way is finished first, new data goes
// before housekeeping.
type task uint8

const (
	taskNone task = iota
	taskResume
	taskUpload
	taskLogStart
	taskRetain
	taskDoom
	taskCollect
	taskTrim
	taskSweep
)

var taskNames = [...]string{"none", "commit", "upload", "log_start", "retain", "doom", "collect", "trim", "sweep"}

// due implements job: whether there is work, or when there may be. It costs no request.
func (p *Partition) due(now time.Time) (bool, time.Time) {
	p.notified.Store(false) // what is announced from here on needs another look
	t, at := p.plan(now)
	return t != taskNone, at
}

// plan picks the next task. The time is that of the earliest task that is not due yet, zero if only Notify can bring one.
func (p *Partition) plan(now time.Time) (task, time.Time) {
	if p.Err() != nil {
		return taskNone, time.Time{}
	}
	u, at := p.nextUpload(now)
	if now.Before(p.w.notBefore) {
		return taskNone, p.w.notBefore
	}
	switch {
	case p.w.pending != nil:
		return taskResume, at
	case p.w.up != nil || u != nil:
		if p.w.up == nil {
			p.w.up = u
		}
		return taskUpload, at
	case p.logStartDue():
		return taskLogStart, at
	}
	var next earliest
	next.add(at)
	for _, k := range []struct {
		task task
		at   time.Time
		ok   bool
	}{
		{taskRetain, p.retainAt(now), p.retains()},
		{taskCollect, p.w.collect.next, p.collects()},
		{taskDoom, p.doomAt(), p.dooms()},
		{taskTrim, now, len(p.w.stale) >= trimBatch},
		{taskSweep, p.w.sweepAt, p.sweeps()},
	} {
		if !k.ok {
			continue
		}
		if !now.Before(k.at) {
			return k.task, time.Time{}
		}
		next.add(k.at)
	}
	return taskNone, next.at
}

type earliest struct{ at time.Time }

func (e *earliest) add(t time.Time) {
	if !t.IsZero() && (e.at.IsZero() || t.Before(e.at)) {
		e.at = t
	}
}

// step implements job: one task, so that partitions take turns.
func (p *Partition) step(ctx context.Context) (storeDown bool) {
	t, _ := p.plan(time.Now())
	err := p.do(ctx, t)
	if err == nil {
		p.w.failures = 0
		return false
	}
	if ctx.Err() != nil || errors.Is(err, ErrFenced) || errors.Is(err, ErrResigned) {
		return false
	}
	p.w.failures++
	pause := p.a.o.RetryMin << min(p.w.failures-1, 20)
	if pause > p.a.o.RetryMax || pause <= 0 {
		pause = p.a.o.RetryMax
	}
	p.w.notBefore = time.Now().Add(p.a.jitter(pause))
	p.a.m.failures.WithLabelValues(taskNames[t], objstore.Outcome(err)).Inc()
	log := p.a.o.Logger.Debug
	if p.w.failures == 1 {
		log = p.a.o.Logger.Warn
	}
	log("archive", "step", taskNames[t], "partition", p.id, "err", err, "retry", pause)
	return objstore.Retryable(err)
}

// retire implements job: the files that an unfinished upload holds are let go.
func (p *Partition) retire() { p.w.dropUpload() }

func (p *Partition) do(ctx context.Context, t task) error {
	switch t {
	case taskResume:
		return p.resume(ctx)
	case taskUpload:
		return p.upload(ctx)
	case taskLogStart:
		return p.moveLogStart(ctx)
	case taskRetain:
		return p.retain(ctx)
	case taskDoom:
		return p.doom(ctx)
	case taskCollect:
		return p.collect(ctx)
	case taskTrim:
		return p.trim(ctx)
	case taskSweep:
		return p.sweep(ctx)
	}
	return nil
}
