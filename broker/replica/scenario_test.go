package replica

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/varvelog/varve/record"
)

var rewrite = flag.Bool("rewrite", false, "write what scenarios print into their files")

// TestScenarios runs testdata/core/*.txt: cores of several brokers, their logs as the epochs of their records, and the metadata store,
// one step a line. After each line comes what follows from it. See testdata/core/README.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/core/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := &play{t: t, nodes: map[int32]*actor{}}
			var out bytes.Buffer
			for line := range strings.Lines(string(b)) {
				line = strings.TrimRight(line, "\n")
				if strings.HasPrefix(line, "\t") {
					continue // what was printed
				}
				fmt.Fprintln(&out, line)
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				for _, said := range w.step(strings.Fields(line)) {
					fmt.Fprintf(&out, "\t%s\n", said)
				}
				if why := w.wrong(); why != "" {
					t.Fatalf("%s: %s", line, why)
				}
			}
			if *rewrite {
				if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if !bytes.Equal(out.Bytes(), b) {
				t.Errorf("now it is:\n%s", out.String())
			}
		})
	}
}

// play is a scenario under way.
type play struct {
	t     *testing.T
	nodes map[int32]*actor
	now   int64

	// The metadata.
	leader   int32
	epoch    int32
	version  int32
	replicas []int32
	isr      []int32

	exposed []int32 // epochs of the records that some high watermark has covered: none of them may change
	deleted int64   // records below it were deleted, and nobody waits for that any more: they may not come back
}

// actor is a broker: its core, and its log as the epoch of each record.
type actor struct {
	id      int32
	process int64 // broker epoch
	core    Core
	log     []int32
	start   int64     // of its log
	lost    *Proposal // written, or not, but the answer is under way
	late    []question

	draining bool
	away     bool // not registered
}

// question is a fetch under way.
type question struct {
	from    int32
	process int64
	epoch   int32
	leo     int64
	start   int64
	fetched int32
}

// wrong says what no replica may do: what was exposed is in every log that exposes it, the same, and in the log of whoever is in the ISR,
// since that one may be elected.
func (w *play) wrong() string {
	for _, a := range w.nodes {
		hw := int(a.core.hw)
		if hw > len(a.log) {
			return fmt.Sprintf("broker %d: high watermark %d, log %v", a.id, hw, a.log)
		}
		n := min(hw, len(w.exposed))
		if !slices.Equal(a.log[:n], w.exposed[:n]) {
			return fmt.Sprintf("broker %d exposes %v, exposed was %v", a.id, a.log[:hw], w.exposed)
		}
		if hw > len(w.exposed) {
			w.exposed = slices.Clone(a.log[:hw])
		}
	}
	for _, id := range w.isr {
		if a := w.nodes[id]; a.start < w.deleted {
			return fmt.Sprintf("broker %d is in sync and its log begins at %d, deleted was up to %d", id, a.start, w.deleted)
		} else if len(a.log) < len(w.exposed) || !slices.Equal(a.log[:len(w.exposed)], w.exposed) {
			return fmt.Sprintf("broker %d is in sync with %v, exposed was %v", id, a.log, w.exposed)
		}
	}
	return ""
}

func (w *play) say(a *actor, eff Effect) []string {
	c := &a.core
	role := map[role]string{idle: "idle", leading: "leads", following: "follows"}[c.role]
	s := fmt.Sprintf("%d %s epoch %d log %s hw %d", a.id, role, c.epoch, show(a.log), c.hw)
	if a.start > 0 {
		s += fmt.Sprintf(" start %d", a.start)
	}
	if c.role == leading {
		s += fmt.Sprintf(" isr %v", c.isr)
		if c.proposal != nil {
			s += fmt.Sprintf(" proposed %v", c.proposal.ISR)
		}
		if !c.Settled() {
			s += " unsettled"
		}
	}
	for _, x := range []struct {
		is   bool
		what string
	}{{eff.Stopped, "stopped"}, {eff.Stale, "stale"}, {eff.Under, "under min.insync.replicas"}} {
		if x.is {
			s += ", " + x.what
		}
	}
	return []string{s}
}

// show writes the epochs of a log as runs: 2x3 5x1 is three records of epoch 2, one of epoch 5.
func show(log []int32) string {
	if len(log) == 0 {
		return "-"
	}
	var runs []string
	for i := 0; i < len(log); {
		n := 1
		for i+n < len(log) && log[i+n] == log[i] {
			n++
		}
		runs = append(runs, fmt.Sprintf("%dx%d", log[i], n))
		i += n
	}
	return strings.Join(runs, ",")
}

func ids(s string) []int32 {
	var out []int32
	for f := range strings.SplitSeq(s, ",") {
		n, _ := strconv.Atoi(f)
		out = append(out, int32(n))
	}
	return out
}

// args splits name=value words from the others.
func args(words []string) (plain []string, named map[string]string) {
	named = map[string]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			named[k] = v
		} else {
			plain = append(plain, w)
		}
	}
	return plain, named
}

func (w *play) step(words []string) []string {
	w.t.Helper()
	plain, named := args(words[1:])
	num := func(i int) int32 {
		if i >= len(plain) {
			return 0
		}
		n, err := strconv.Atoi(plain[i])
		if err != nil {
			w.t.Fatalf("%v: %v", words, err)
		}
		return int32(n)
	}
	switch words[0] {
	case "brokers": // brokers 3 [min=2]
		minISR, _ := strconv.Atoi(named["min"])
		for id := int32(1); id <= num(0); id++ {
			w.nodes[id] = &actor{id: id, process: 1, core: Core{self: id, lagMs: 100, minISR: int32(minISR)}}
			w.replicas = append(w.replicas, id)
		}
		w.isr, w.leader, w.epoch = slices.Clone(w.replicas), -1, -1
		return nil
	case "elect": // elect LEADER [isr=1,2]: in the metadata alone
		w.leader, w.epoch, w.version = num(0), w.epoch+1, w.version+1
		if s := named["isr"]; s != "" {
			w.isr = ids(s)
		}
		return []string{fmt.Sprintf("metadata: leader %d epoch %d isr %v", w.leader, w.epoch, w.isr)}
	case "unclean": // unclean LEADER: it is elected although it is not in sync; what it lacks is lost
		l := w.nodes[num(0)]
		w.leader, w.epoch, w.version, w.isr = l.id, w.epoch+1, w.version+1, []int32{l.id}
		w.exposed = w.exposed[:common(w.exposed, l.log)]
		return []string{fmt.Sprintf("metadata: leader %d epoch %d isr %v", w.leader, w.epoch, w.isr)}
	case "drain": // drain BROKER: it is about to stop; the controller takes it out of the ISR
		a := w.nodes[num(0)]
		a.draining = true
		w.isr = slices.DeleteFunc(slices.Clone(w.isr), func(id int32) bool { return id == a.id })
		w.version++
		return []string{fmt.Sprintf("metadata: isr %v", w.isr)}
	case "away": // away BROKER: its registration ends; restart brings it back
		w.nodes[num(0)].away = true
		return nil
	case "delete": // delete LEADER N: records below N; what of that has to survive any election now, since nobody waits for it any more
		a := w.nodes[num(0)]
		a.start = int64(num(1))
		low := a.start
		for _, f := range a.core.followers {
			if !w.nodes[f.id].away || f.inSync || f.proposed {
				low = min(low, f.logStart)
			}
		}
		w.deleted = max(w.deleted, low)
		return []string{fmt.Sprintf("deleted up to %d", low)}
	case "learn": // learn BROKER...: they see the metadata as it is now
		var out []string
		for i := range plain {
			out = append(out, w.learn(w.nodes[num(i)])...)
		}
		return out
	case "append": // append BROKER N
		a := w.nodes[num(0)]
		if a.core.role != leading {
			return []string{"not leader"}
		}
		for range num(1) {
			a.log = append(a.log, a.core.epoch)
		}
		return w.say(a, Effect{HWMoved: a.core.appended(int64(len(a.log)))})
	case "ask": // ask FOLLOWER LEADER: a fetch is sent
		a, l := w.nodes[num(0)], w.nodes[num(1)]
		l.late = append(l.late, w.question(a))
		return nil
	case "arrive": // arrive LEADER [lost]: the oldest fetch arrives; its answer may be lost
		l := w.nodes[num(0)]
		q := l.late[0]
		l.late = l.late[1:]
		return w.answer(w.nodes[q.from], l, q, len(plain) > 1)
	case "fetch": // fetch FOLLOWER LEADER [times]
		var out []string
		for range max(num(2), 1) {
			a := w.nodes[num(0)]
			out = w.answer(a, w.nodes[num(1)], w.question(a), false)
		}
		return out
	case "tick": // tick BROKER MS
		w.now += int64(num(1))
		a := w.nodes[num(0)]
		return w.say(a, a.core.Step(Event{Kind: Ticked, NowMs: w.now}))
	case "miss": // miss BROKER: it looks who is not registered
		a := w.nodes[num(0)]
		e := Event{Kind: Missed, NowMs: w.now}
		for _, b := range w.nodes {
			if b.away {
				e.Away = append(e.Away, b.id)
			}
		}
		return w.say(a, a.core.Step(e))
	case "write": // write BROKER [unheard]: its proposal reaches the metadata; the answer may be lost
		a := w.nodes[num(0)]
		return w.write(a, a.core.proposal, len(plain) > 1)
	case "send": // send BROKER: its proposal is under way
		a := w.nodes[num(0)]
		a.lost = a.core.proposal
		return nil
	case "land": // land BROKER: what it sent reaches the metadata now
		a := w.nodes[num(0)]
		return w.write(a, a.lost, true)
	case "restart": // restart BROKER [lose=N] [hw=N]: a new process; its log may have lost its end
		a := w.nodes[num(0)]
		lose, _ := strconv.Atoi(named["lose"])
		hw, _ := strconv.Atoi(named["hw"])
		a.log = a.log[:len(a.log)-lose]
		a.process++
		a.draining, a.away = false, false
		a.core = Core{self: a.id, lagMs: 100, minISR: a.core.minISR}
		return w.say(a, a.core.Step(Event{Kind: Opened, LEO: int64(len(a.log)), HW: int64(hw)}))
	}
	w.t.Fatalf("no such step: %v", words)
	return nil
}

func (w *play) learn(a *actor) []string {
	if w.leader != a.id {
		return w.say(a, a.core.Step(Event{Kind: Followed, Epoch: w.epoch}))
	}
	e := Event{Epoch: w.epoch, Version: w.version, Replicas: w.replicas, ISR: slices.Clone(w.isr), LEO: int64(len(a.log)), NowMs: w.now}
	if e.Kind = Known; a.core.role != leading || a.core.epoch < w.epoch {
		e.Kind = Elected
	}
	return w.say(a, a.core.Step(e))
}

func (w *play) question(a *actor) question {
	leo := int64(len(a.log))
	return question{from: a.id, process: a.process, epoch: a.core.epoch, leo: leo, start: a.start, fetched: fetchedEpoch(historyOf(a.log), leo)}
}

// asked says that nothing has changed at a since it asked: it has one question under way, and goes on from its answer.
func (w *play) asked(a *actor, q question) bool {
	return a.core.role == following && w.question(a) == q
}

// answer is what leader and follower do with a fetch, as the shell does it.
func (w *play) answer(a, l *actor, q question, lost bool) []string {
	switch err := l.core.CheckEpoch(q.epoch, false); {
	case err != nil:
		return []string{fmt.Sprintf("%d refuses: %v", l.id, err)}
	case l.core.follower(a.id) == nil:
		return []string{fmt.Sprintf("%d refuses: not a replica", l.id)}
	}
	end, history := int64(len(l.log)), historyOf(l.log)
	if len(history) == 0 || history[len(history)-1].Epoch < l.core.epoch {
		history = append(history, record.Epoch{Epoch: l.core.epoch, Start: end})
	}
	if q.fetched >= 0 {
		if e, to := epochEnd(history, end, q.fetched); e < q.fetched || to < q.leo {
			if lost || !w.asked(a, q) {
				return nil
			}
			to = truncateTo(historyOf(a.log), int64(len(a.log)), e, to)
			out := []string{fmt.Sprintf("%d diverges, truncates to %d", a.id, to)}
			a.log = a.log[:to]
			return append(out, w.say(a, a.core.Step(Event{Kind: Truncated, LEO: to}))...)
		}
	}
	if q.leo > end {
		return []string{"offset out of range"}
	}
	eff := l.core.Step(Event{Kind: Fetched, Replica: a.id, Epoch: q.epoch, BrokerEpoch: q.process, LEO: q.leo, LogStart: q.start, Start: l.start, NowMs: w.now,
		Eligible: a.process == q.process && !a.draining && !a.away})
	out := w.say(l, eff)
	if eff.Stale || lost || !w.asked(a, q) {
		return out
	}
	a.log = append(a.log, l.log[q.leo:]...)
	a.core.Step(Event{Kind: Appended, LEO: int64(len(a.log))})
	told := a.core.Step(Event{Kind: Told, HW: l.core.hw})
	a.start = max(a.start, min(l.start, a.core.hw))
	return append(out, w.say(a, told)...)
}

// write is the metadata's transaction, with its guards.
func (w *play) write(a *actor, p *Proposal, unheard bool) []string {
	if p == nil {
		return []string{"nothing is proposed"}
	}
	refused := p.Version != w.version || p.Epoch != w.epoch
	for _, j := range p.Joiners {
		refused = refused || w.nodes[j.ID].process != j.BrokerEpoch || w.nodes[j.ID].away
	}
	if refused {
		out := []string{"metadata: refused"}
		if unheard {
			return out
		}
		if p.Version == w.version && p.Epoch == w.epoch {
			return append(out, w.say(a, a.core.Step(Event{Kind: Refused, Epoch: p.Epoch, Version: p.Version}))...)
		}
		return out
	}
	w.isr = slices.Clone(p.ISR)
	w.version++
	out := []string{fmt.Sprintf("metadata: isr %v", w.isr)}
	if unheard {
		return out
	}
	return append(out, w.learn(a)...)
}
