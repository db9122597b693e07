package broker

import (
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/manifest"
)

// sessions holds the incremental fetch sessions (KIP-227) of all connections, at most slots.
type sessions struct {
	slots int
	gauge prometheus.Gauge

	mu   sync.Mutex
	byID map[int32]*session // guarded by mu
}

// evictAfter is how long a session is safe from being evicted for another one.
const evictAfter = 2 * time.Minute

// maxSessionPartitions bounds the partitions of one session; larger fetches are served without one.
const maxSessionPartitions = 100_000

// session is what a client need not say again: its partitions, and what it was told of each.
type session struct {
	id     int32
	byUUID bool // topics by id (v13+), or by name

	mu    sync.Mutex
	epoch int32 // guarded by mu; of the next request
	parts []*sessionPart
	index map[sessionKey]*sessionPart
	used  time.Time // guarded by sessions.mu
}

type sessionKey struct {
	name      string
	id        manifest.TopicID
	partition int32
}

// sessionPart is a partition of a session. Guarded by the session's mu.
type sessionPart struct {
	key              sessionKey
	offset           int64
	currentEpoch     int32
	lastFetchedEpoch int32
	maxBytes         int32
	replicaStart     int64

	hw, logStart int64 // as last told; -1: not yet
	sent         bool  // the last answer had records of it
}

// fetchContext is one Fetch in or without a session.
type fetchContext struct {
	session     *session // nil: none
	incremental bool     // only what is new is told
	parts       []fetchPart
}

func newSessions(slots int, gauge prometheus.Gauge) *sessions {
	return &sessions{slots: slots, gauge: gauge, byID: map[int32]*session{}}
}

// begin finds or makes the session of a request and lists in parts what is to be read.
func (ss *sessions) begin(req *kmsg.FetchRequest, parts []fetchPart) (fetchContext, error) {
	switch {
	case req.Version < 7 || req.SessionEpoch == -1:
		if req.Version >= 7 && req.SessionID != 0 {
			ss.remove(req.SessionID)
		}
		return fetchContext{parts: requestParts(req, parts)}, nil
	case req.SessionEpoch == 0:
		if req.SessionID != 0 {
			ss.remove(req.SessionID)
		}
		s := ss.create(req)
		if s == nil {
			return fetchContext{parts: requestParts(req, parts)}, nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.update(req)
		return fetchContext{session: s, parts: s.list(parts)}, nil
	}
	s := ss.find(req.SessionID)
	if s == nil {
		return fetchContext{parts: parts}, kerr.FetchSessionIDNotFound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch != req.SessionEpoch {
		return fetchContext{parts: parts}, kerr.InvalidFetchSessionEpoch
	}
	if s.byUUID != (req.Version >= 13) {
		return fetchContext{parts: parts}, kerr.FetchSessionTopicIDError
	}
	s.epoch = nextEpoch(s.epoch)
	s.update(req)
	if len(s.index) == 0 {
		ss.remove(s.id)
		return fetchContext{parts: parts}, nil
	}
	if len(s.index) > maxSessionPartitions {
		ss.remove(s.id)
		return fetchContext{parts: parts}, kerr.FetchSessionIDNotFound
	}
	return fetchContext{session: s, incremental: true, parts: s.list(parts)}, nil
}

// requestParts lists the partitions of a request without a session.
func requestParts(req *kmsg.FetchRequest, parts []fetchPart) []fetchPart {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			parts = append(parts, fetchPart{
				name: t.Topic, id: t.TopicID, partition: p.Partition, offset: p.FetchOffset,
				currentEpoch: p.CurrentLeaderEpoch, lastFetchedEpoch: p.LastFetchedEpoch, maxBytes: p.PartitionMaxBytes,
				replicaStart: p.LogStartOffset,
			})
		}
	}
	return parts
}

func nextEpoch(e int32) int32 {
	if e == math.MaxInt32 {
		return 1
	}
	return e + 1
}

// create makes an empty session, evicting the one that is longest unused; nil if there is no room for it.
func (ss *sessions) create(req *kmsg.FetchRequest) *session {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	if n == 0 || n > maxSessionPartitions {
		return nil
	}
	now := time.Now()
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if len(ss.byID) >= ss.slots && !ss.evict(now) {
		return nil
	}
	s := &session{byUUID: req.Version >= 13, epoch: 1, index: map[sessionKey]*sessionPart{}, used: now}
	for s.id == 0 || ss.byID[s.id] != nil {
		s.id = 1 + rand.Int32N(math.MaxInt32)
	}
	ss.byID[s.id] = s
	ss.gauge.Set(float64(len(ss.byID)))
	return s
}

// evict removes the session that is longest unused, if that is long enough. Called with mu.
func (ss *sessions) evict(now time.Time) bool {
	var oldest *session
	for _, s := range ss.byID {
		if oldest == nil || s.used.Before(oldest.used) {
			oldest = s
		}
	}
	if oldest == nil || now.Sub(oldest.used) < evictAfter {
		return false
	}
	delete(ss.byID, oldest.id)
	return true
}

func (ss *sessions) find(id int32) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[id]
	if s != nil {
		s.used = time.Now()
	}
	return s
}

func (ss *sessions) remove(id int32) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.byID, id)
	ss.gauge.Set(float64(len(ss.byID)))
}

// update takes over what a request adds, changes and forgets. Called with mu.
func (s *session) update(req *kmsg.FetchRequest) {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			key := sessionKey{name: t.Topic, id: t.TopicID, partition: p.Partition}
			sp := s.index[key]
			if sp == nil {
				sp = &sessionPart{key: key, hw: -1, logStart: -1}
				s.index[key] = sp
				s.parts = append(s.parts, sp)
			}
			sp.offset, sp.maxBytes = p.FetchOffset, p.PartitionMaxBytes
			sp.replicaStart = p.LogStartOffset
			sp.currentEpoch, sp.lastFetchedEpoch = p.CurrentLeaderEpoch, p.LastFetchedEpoch
		}
	}
	forgot := false
	for i := range req.ForgottenTopics {
		t := &req.ForgottenTopics[i]
		for _, p := range t.Partitions {
			delete(s.index, sessionKey{name: t.Topic, id: t.TopicID, partition: p})
			forgot = true
		}
	}
	if !forgot {
		return
	}
	kept := s.parts[:0]
	for _, sp := range s.parts {
		if s.index[sp.key] == sp {
			kept = append(kept, sp)
		}
	}
	clear(s.parts[len(kept):])
	s.parts = kept
}

// list appends the session's partitions, those that had records in the last answer behind the others, so that no partition starves.
// Called with mu.
func (s *session) list(parts []fetchPart) []fetchPart {
	s.rotate()
	for _, sp := range s.parts {
		parts = append(parts, fetchPart{
			name: sp.key.name, id: sp.key.id, partition: sp.key.partition, offset: sp.offset,
			currentEpoch: sp.currentEpoch, lastFetchedEpoch: sp.lastFetchedEpoch, maxBytes: sp.maxBytes, replicaStart: sp.replicaStart, cached: sp,
		})
	}
	return parts
}

func (s *session) rotate() {
	var sent []*sessionPart
	kept := s.parts[:0]
	for _, sp := range s.parts {
		if sp.sent {
			sp.sent = false
			sent = append(sent, sp)
		} else {
			kept = append(kept, sp)
		}
	}
	s.parts = append(kept, sent...)
}

// finish decides which partitions the answer includes, remembers what it tells, and returns the session id to answer.
func (ctx *fetchContext) finish(parts []fetchPart) int32 {
	s := ctx.session
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range parts {
		f := &parts[i]
		sp := f.cached
		told := f.err != nil || f.diverging.ok || f.prefers || f.slice.Size > 0 || f.slice.HighWatermark != sp.hw || f.slice.LogStart != sp.logStart
		if ctx.incremental && !told {
			f.cached = nil // left out
			continue
		}
		sp.hw, sp.logStart = f.slice.HighWatermark, f.slice.LogStart
		if f.err != nil || f.diverging.ok {
			sp.hw, sp.logStart = -1, -1 // tell it again once it is well
		}
		sp.sent = f.err == nil && f.slice.Size > 0
	}
	return s.id
}

// next returns the first partition from i on that the answer includes, len(parts) if there is none.
func (ctx *fetchContext) next(parts []fetchPart, i int) int {
	for i < len(parts) && ctx.incremental && parts[i].cached == nil {
		i++
	}
	return i
}

// topicEnd returns where the run of included partitions of the topic of i ends.
func (ctx *fetchContext) topicEnd(parts []fetchPart, i int) int {
	j := i + 1
	for ; j < len(parts); j++ {
		if ctx.next(parts, j) == j && !sameTopic(&parts[i], &parts[j]) {
			break
		}
	}
	return j
}
