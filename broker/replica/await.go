package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// Patience is how much longer a request waits for partitions that this broker may be about to lead. The zero value has not waited yet.
type Patience struct{ until time.Time }

// left is how long one that may wait for d still waits.
func (p *Patience) left(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(d)
	}
	return min(d, p.until.Sub(now))
}

// await says why tp is not served here, waiting where it soon will be.
func (m *Manager) await(tp TopicPartition, patience *Patience) (*Partition, error) {
	var timeout, successor <-chan time.Time
	for {
		p, hosts := m.find(tp)
		if p != nil && p.ready.Load() && p.gone.Load() == nil {
			return p, nil
		}
		if err := m.mine(tp); err != nil {
			if !errors.Is(err, ErrNotLeader) {
				return nil, err
			}
			if successor == nil {
				d := patience.left(m.mayFollow(tp, p))
				if d <= 0 {
					return nil, err
				}
				successor = time.After(d)
			}
			select {
			case <-hosts:
				continue
			case <-successor:
				return nil, err
			}
		}
		if p != nil && p.failed.Load() {
			return nil, fmt.Errorf("log of %s-%d could not be opened: %w", p.name, p.id.Partition, localseg.ErrOffline)
		}
		if timeout == nil {
			timeout = time.After(justCreated)
		}
		select {
		case <-hosts:
		case <-timeout:
			if p != nil && p.resuming.Load() {
				return nil, fmt.Errorf("%s-%d waits for the archive: %w", p.name, p.id.Partition, ErrArchive)
			}
			return nil, ErrNotAvailable
		}
	}
}

// A client that the last leader has sent here may be faster than this broker's own image. Told that another leads, the same that it
// comes from, it would back off for a quarter of a second, or a whole one.
const (
	// handOverWait is how long a request waits here for what a stopping broker still leads.
	handOverWait = 100 * time.Millisecond
	// handOverGuess is how long where the image knows of nothing.
	handOverGuess = 30 * time.Millisecond
	// formerLeader is how long those that ask a broker that has led the partition are taken for clients that do not know better.
	formerLeader = 30 * time.Second
)

// mayFollow is how long this broker, being in sync, may be about to lead tp; 0: it is not.
func (m *Manager) mayFollow(tp TopicPartition, p *Partition) time.Duration {
	img := m.store.Image()
	mp := recordOf(img, tp)
	if mp == nil || !slices.Contains(mp.ISR, m.o.NodeID) {
		return 0
	}
	if b := img.Brokers[mp.Leader]; b != nil && b.Draining {
		return handOverWait
	}
	if p == nil || p.ledUntil.Load() > 0 && m.nowMs()-p.ledUntil.Load() < formerLeader.Milliseconds() {
		return 0
	}
	return handOverGuess
}

// recordOf is the image's record of tp, nil if there is none.
func recordOf(img *meta.Image, tp TopicPartition) *meta.Partition {
	t := img.Topics[tp.Topic]
	if tp.ID != (manifest.TopicID{}) {
		t = img.TopicsByID[tp.ID]
	}
	if t == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.Partitions) {
		return nil
	}
	return t.Partitions[tp.Partition]
}

// mine says why this broker is not to lead tp, nil if it is.
func (m *Manager) mine(tp TopicPartition) error {
	img := m.store.Image()
	t, unknown := img.Topics[tp.Topic], ErrUnknownPartition
	if tp.ID != (manifest.TopicID{}) {
		t, unknown = img.TopicsByID[tp.ID], ErrUnknownTopicID
	}
	switch {
	case t == nil || t.DeletedMs != 0:
		return unknown
	case tp.Partition < 0 || int(tp.Partition) >= len(t.Partitions):
		return ErrUnknownPartition
	case t.Partitions[tp.Partition].Leader != m.o.NodeID && !m.electsSelf(t.Partitions[tp.Partition]):
		return ErrNotLeader
	}
	return nil
}
