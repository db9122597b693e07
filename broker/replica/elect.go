package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/meta"
)

// hasReplica says whether this broker has a replica of p.
func (m *Manager) hasReplica(p *meta.Partition) bool { return slices.Contains(p.Replicas, m.o.NodeID) }

// electsSelf says whether this broker becomes the leader of p by itself: nobody else can, and there is no controller.
func (m *Manager) electsSelf(p *meta.Partition) bool {
	return !m.o.Controlled && len(p.Replicas) == 1 && p.Replicas[0] == m.o.NodeID
}

// electAll notes the epochs that this process must not lead in, since a restarted broker never resumes one (PROTOCOLS 7.3), and gives
// it new ones in what only it can lead. It returns when the image shows them.
func (m *Manager) electAll(ctx context.Context) error {
	img := m.store.Image()
	former := m.o.Former
	if former == nil && !m.o.Controlled {
		former = img
	}
	if former != nil {
		for _, t := range former.Topics {
			for _, p := range t.Partitions {
				if p.Leader == m.o.NodeID || m.electsSelf(p) {
					m.former[p.ID] = p.LeaderEpoch
				}
			}
		}
	}
	var todo []meta.Election
	for _, t := range img.Topics {
		for _, p := range t.Partitions {
			if m.electsSelf(p) {
				todo = append(todo, meta.Election{ID: p.ID, Leader: m.o.NodeID, ISR: []int32{m.o.NodeID}})
			}
		}
	}
	pause := firstPause
	for len(todo) > 0 {
		err := m.store.Elect(ctx, todo)
		if err == nil || errors.Is(err, meta.ErrConflict) || errors.Is(err, meta.ErrUnknownTopic) {
			if err := m.awaitElected(ctx, todo); err != nil {
				return err
			}
		} else {
			m.o.Logger.Warn("elect", "partitions", len(todo), "err", err)
		}
		todo = slices.DeleteFunc(todo, m.elected)
		if len(todo) == 0 {
			return nil
		}
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("elect %d partitions: %w", len(todo), err)
		}
		pause = min(2*pause, maxPause)
	}
	return nil
}

const (
	firstPause = 10 * time.Millisecond
	maxPause   = 2 * time.Second
	imageWait  = 2 * time.Second // for the image to show what was just written
)

// elected says that the image shows a new epoch of ours, or nothing to lead any more.
func (m *Manager) elected(e meta.Election) bool {
	t := m.store.Image().TopicsByID[e.ID.Topic]
	if t == nil || int(e.ID.Partition) >= len(t.Partitions) {
		return true
	}
	p := t.Partitions[e.ID.Partition]
	return !m.electsSelf(p) || p.Leader == m.o.NodeID && p.LeaderEpoch > m.former[e.ID]
}

// awaitElected waits until the image shows all, or a while.
func (m *Manager) awaitElected(ctx context.Context, todo []meta.Election) error {
	deadline := time.Now().Add(imageWait)
	for slices.ContainsFunc(todo, func(e meta.Election) bool { return !m.elected(e) }) && time.Now().Before(deadline) {
		timer := time.NewTimer(50 * time.Millisecond)
		select {
		case <-m.changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
