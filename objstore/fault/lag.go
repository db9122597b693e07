package fault

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/objstore"
)

// echo is what listings still get wrong about a key: before is how they show it, nil if they do not.
type echo struct {
	until  time.Time
	before *objstore.Info
}

func (f *Bucket) noteWrite(key string, info objstore.Info) {
	if f.listDelay <= 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	if e := f.recent[key]; e != nil && e.before != nil {
		e.before = &info // deleted and written again: there all the time, as listings see it
		return
	}
	f.recent[key] = &echo{until: time.Now().Add(f.listDelay)}
}

func (f *Bucket) noteDelete(ctx context.Context, keys []string) {
	if f.listDelay <= 0 {
		return
	}
	for _, key := range keys {
		info, err := f.below.Head(ctx, key)
		if err != nil {
			continue
		}
		f.mu.Lock()
		f.forget()
		if e := f.recent[key]; e == nil || e.before != nil {
			f.recent[key] = &echo{until: time.Now().Add(f.listDelay), before: &info}
		}
		f.mu.Unlock()
	}
}

// forget drops what listings have caught up with. It is called with mu held.
func (f *Bucket) forget() {
	now := time.Now()
	for key, e := range f.recent {
		if !now.Before(e.until) {
			delete(f.recent, key)
		}
	}
}

// lagging hides what is new and merges in what is gone.
func (f *Bucket) lagging(below iter.Seq2[objstore.Info, error], prefix, after string) iter.Seq2[objstore.Info, error] {
	if f.listDelay <= 0 {
		return below
	}
	hidden, ghosts := f.wrong(prefix, after)
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range below {
			for err == nil && len(ghosts) > 0 && ghosts[0].Key <= info.Key {
				ghost := ghosts[0]
				ghosts = ghosts[1:]
				if ghost.Key != info.Key && !yield(ghost, nil) {
					return
				}
			}
			if err == nil && hidden[info.Key] {
				continue
			}
			if !yield(info, err) || err != nil {
				return
			}
		}
		for _, ghost := range ghosts {
			if !yield(ghost, nil) {
				return
			}
		}
	}
}

func (f *Bucket) wrong(prefix, after string) (hidden map[string]bool, ghosts []objstore.Info) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
	hidden = make(map[string]bool)
	for key, e := range f.recent {
		switch {
		case e.before == nil:
			hidden[key] = true
		case strings.HasPrefix(key, prefix) && key > after:
			ghosts = append(ghosts, *e.before)
		}
	}
	slices.SortFunc(ghosts, func(a, b objstore.Info) int { return strings.Compare(a.Key, b.Key) })
	return hidden, ghosts
}
