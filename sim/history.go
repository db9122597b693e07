package sim

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/manifest"
)

// History is what clients were told and what they saw, and what may follow from it. Its methods fail the run when something
// was seen that must not be. All may be called concurrently.
type History struct {
	w *stage

	// replicated says that brokers share a partition: who asks for acks=1 may lose what is acknowledged, and a reader is given nothing that
	// one broker alone has.
	replicated bool
	dropped    func(*topic) // a topic goes, and the group offsets of it

	wrong time.Duration // guarded by mu; how wrong the clock of a broker has been, at most

	mu    sync.Mutex
	parts map[manifest.PartitionID]*part // guarded by mu
	names map[string]*topic              // guarded by mu; living ones as the operator knows them
	dead  []*topic                       // guarded by mu
}

type topic struct {
	name       string
	id         manifest.TopicID
	partitions int32
	tiered     bool
	deleting   bool // a deletion was asked for
	again      bool // it was undeleted at some time
	expires    bool // retention.bytes was set at some time
	retainMs   int64
	windowMs   int64

	// Of a cluster.
	lossy   bool // what is acknowledged may be lost for a reason that is allowed, see doubt
	sole    bool // it has one replica
	unclean bool // a replica that was not in sync may lead
	fixed   bool // and that is not moved
}

// part is one partition's history. Its fields are guarded by History.mu.
type part struct {
	id    manifest.PartitionID
	topic *topic

	// gen rises when acknowledged records may have been lost for a reason that is allowed: what was asked for before and
	// answered after counts no more, above floor.
	gen   int
	floor int64 // below it everything is on disk or in the archive
	disk  int64 // below it everything is on disk
	open  bool  // gen has risen, and where the log ends now is not known yet
	since int32 // of a lossy topic: what leaders of older epochs say counts no more

	lacking map[int32]int32 // brokers in sync whose disks have lost something, and the leader epoch then, see lacks

	brief map[int64]brief // acknowledged by a leader that may have had it alone, by offset

	known   map[int64]*seen     // by offset
	tries   map[string]*attempt // by value
	hw      int64               // highest high watermark told in this generation
	end     int64               // end of what was acknowledged in this generation
	start   int64               // log start that was acknowledged: nothing below it comes back
	maxGone int64               // log start that was asked for: nothing above it may be gone for that reason
}

// seen is a record that has its place.
type seen struct {
	value string
	acked bool
	sent  time.Time // not appended before
	told  time.Time // appended before; zero: not known
	blur  time.Time // when a process died that may have taken its append time along: what a log then says of it may be as late

	wrong time.Duration // how wrong the clock of a broker may have been that told when it was appended
	doubt bool          // it may have been lost, or another record have its place
}

// after and by are bounds of when a log says that the record was appended.
func (s *seen) after() time.Time { return s.sent.Add(-s.wrong) }

func (s *seen) by() time.Time {
	if s.blur.After(s.told) {
		return s.blur.Add(s.wrong)
	}
	return s.told.Add(s.wrong)
}

type attempt struct {
	sent time.Time
	at   int64 // -1: not seen
}

// request marks a moment: what the answer to a request that was sent then may be held to.
type request struct {
	p     *part
	gen   int
	hw    int64
	end   int64
	start int64
	sent  time.Time

	sure  bool  // who answers led the partition all the while
	epoch int32 // in this epoch
}

// by says who has answered.
func (r request) by(c caller) request {
	r.epoch, r.sure = c.certain()
	return r
}

func newHistory(w *stage) *History {
	return &History{w: w, dropped: func(*topic) {}, parts: map[manifest.PartitionID]*part{}, names: map[string]*topic{}}
}

// created enters a topic, or more partitions of one.
func (h *History) created(t *topic, partitions int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[t.name] = t
	t.partitions = max(t.partitions, partitions)
	for i := range t.partitions {
		id := manifest.PartitionID{Topic: t.id, Partition: i}
		if h.parts[id] == nil {
			h.parts[id] = &part{id: id, topic: t, known: map[int64]*seen{}, tries: map[string]*attempt{}, brief: map[int64]brief{}, lacking: map[int32]int32{}}
		}
	}
}

// pick chooses a partition of a living topic, nil if there is none.
func (h *History) pick(rng *rand.Rand) *part {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.living()
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}

// living is called with mu held.
func (h *History) living() []*part {
	var out []*part
	for _, name := range slices.Sorted(maps.Keys(h.names)) {
		t := h.names[name]
		for i := range t.partitions {
			out = append(out, h.parts[manifest.PartitionID{Topic: t.id, Partition: i}])
		}
	}
	return out
}

// ask begins a request.
func (h *History) ask(p *part) request {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.askLocked(p)
}

func (h *History) askLocked(p *part) request {
	return request{p: p, gen: p.gen, hw: p.hw, end: p.end, start: p.start, sent: time.Now(), sure: true, epoch: math.MaxInt32}
}

// try begins an attempt to append values, each unique in the run.
func (h *History) try(p *part, values []string) request {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.askLocked(p)
	for _, v := range values {
		if p.tries[v] == nil {
			p.tries[v] = &attempt{sent: r.sent, at: -1}
		}
	}
	return r
}

// acked enters an acknowledgement: values are at base and on.
func (h *History) acked(r request, base int64, values []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, v := range values {
		h.place(r, base+int64(i), v, true)
	}
	if r.gen == r.p.gen && r.counts() {
		r.p.end = max(r.p.end, base+int64(len(values)))
	}
}

// read enters a record that a consumer was given.
func (h *History) read(r request, off int64, v string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if off < r.start && (!r.p.topic.lossy || r.gen == r.p.gen && r.counts()) {
		h.fail("deleted records do not come back", r.p, "offset %d read, log start was %d", off, r.start)
	}
	h.place(r, off, v, false)
}

// place is called with mu held.
func (h *History) place(r request, off int64, v string, acked bool) {
	p := r.p
	a := p.tries[v]
	if a == nil {
		h.fail("readers see only what was produced", p, "offset %d has %q", off, clip(v))
		return
	}
	if r.gen != p.gen && off >= p.floor || !r.counts() {
		return // of before a loss that is allowed
	}
	if b, ok := p.brief[off]; ok && b.epoch == r.epoch && b.value != v && r.gen == p.gen {
		h.fail("a leader keeps what it has acknowledged alone", p, "epoch %d: offset %d has %q, had %q", r.epoch, off, clip(v), clip(b.value))
		return
	}
	p.displace(off, v, a)
	if old := p.known[off]; old != nil && old.value != v {
		h.fail("an offset has one value", p, "offset %d has %q, had %q (acked %v)", off, clip(v), clip(old.value), old.acked)
		return
	}
	if a.at >= 0 && a.at != off {
		h.fail("a record is appended once", p, "%q is at %d and at %d", clip(v), a.at, off)
		return
	}
	a.at = off
	s := p.known[off]
	if s == nil {
		s = &seen{value: v, sent: a.sent}
		p.known[off] = s
	}
	if s.told.IsZero() {
		s.told, s.wrong = time.Now(), h.wrong
	}
	s.acked, s.doubt = s.acked || acked, false
}

// watermark enters the bounds that an answer told.
func (h *History) watermark(r request, hw, start int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := r.p
	if r.gen != p.gen || p.open || !r.counts() {
		return
	}
	if hw < r.hw || hw < r.end {
		h.fail("the high watermark does not go back", p, "high watermark %d, was %d, acknowledged through %d", hw, r.hw, r.end)
	}
	if start < r.start {
		h.fail("deleted records do not come back", p, "log start %d, was %d", start, r.start)
	}
	p.hw = max(p.hw, hw)
	if start > 0 && !h.mayBeGone(p, start-1) {
		h.fail("acknowledged records are readable", p, "log start %d, nobody asked for more than %d", start, p.maxGone)
	}
}

// outOfRange enters the answer OFFSET_OUT_OF_RANGE.
func (h *History) outOfRange(r request, off int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.gen != r.p.gen || r.p.open || !r.counts() {
		return
	}
	if off >= 0 && off <= max(r.hw, r.end) && !h.mayBeGone(r.p, off) {
		h.fail("acknowledged records are readable", r.p, "offset %d is out of range, the log had [%d, %d)", off, r.start, max(r.hw, r.end))
	}
}

// mayBeGone tells whether retention or a deletion may have taken the record. Retention by time goes by the clock of whoever leads.
// Called with mu held.
func (h *History) mayBeGone(p *part, off int64) bool {
	if off < p.maxGone || p.topic.expires {
		return true
	}
	if p.topic.retainMs <= 0 {
		return false
	}
	s := p.known[off]
	return s == nil || time.Since(s.sent) >= time.Duration(p.topic.retainMs)*time.Millisecond-h.wrong
}

// deleting begins DeleteRecords before off; -1 is everything.
func (h *History) deleting(p *part, off int64) request {
	h.mu.Lock()
	defer h.mu.Unlock()
	if off == -1 {
		off = math.MaxInt64
	}
	p.maxGone = max(p.maxGone, off)
	return h.askLocked(p)
}

// deleted ends it: the log begins at start.
func (h *History) deleted(r request, start int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if (r.gen == r.p.gen || start <= r.p.floor && !r.p.topic.lossy) && r.counts() {
		r.p.start = max(r.p.start, start)
	}
}

// clockSet widens what depends on the clocks of brokers.
func (h *History) clockSet(by time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = max(h.wrong, by.Abs())
}

// fail ends the run. Called with mu held.
func (h *History) fail(rule string, p *part, format string, args ...any) {
	where := ""
	if p != nil {
		where = fmt.Sprintf("%s-%d (%s) gen %d floor %d: ", p.topic.name, p.id.Partition, p.topic.id, p.gen, p.floor)
	}
	h.w.violate(rule, where+fmt.Sprintf(format, args...))
}

func clip(v string) string {
	if len(v) > 24 {
		return v[:24] + "..."
	}
	return v
}
