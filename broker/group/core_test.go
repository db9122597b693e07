package group

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
)

var rewrite = flag.Bool("rewrite", false, "write what the core does into testdata/core; read the difference")

// TestScenarios runs testdata/core/*.txt: lines that begin with "> " are commands, those below are all that the core did. Commands are
// explained in world.run.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/core/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) { runScenario(t, f) })
	}
}

func runScenario(t *testing.T, file string) {
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	var got strings.Builder
	for line := range strings.Lines(string(want)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "#"), line == "":
			fmt.Fprintln(&got, line)
		case strings.HasPrefix(line, "> "):
			fmt.Fprintln(&got, line)
			w.out = nil
			w.run(line[2:])
			for _, o := range w.out {
				fmt.Fprintln(&got, o)
			}
		}
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got.String() != string(want) {
		t.Errorf("%s: the core did\n%s", file, diff(string(want), got.String()))
	}
}

func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d: %q, want %q\nall:\n%s", i+1, g[i], w[i], got)
		}
	}
	return got
}

// world is a core with a log in memory.
type world struct {
	t      *testing.T
	conf   Config
	core   *Core
	now    int64
	ticket Ticket
	asked  map[Ticket]string
	log    []Record // committed
	held   []Append
	hold   bool
	ids    int
	out    []string
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, asked: map[Ticket]string{}}
	w.conf = Config{NewID: func() string { w.ids++; return strconv.Itoa(w.ids) }}
	w.core = NewCore(w.conf)
	return w
}

func (w *world) say(f string, a ...any) { w.out = append(w.out, fmt.Sprintf(f, a...)) }

// args of a command: words, and key=value pairs.
type args struct {
	words []string
	kv    map[string]string
}

func (a args) num(key string, d int64) int64 {
	if v, ok := a.kv[key]; ok {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	return d
}

func (a args) str(key, d string) string {
	if v, ok := a.kv[key]; ok {
		return v
	}
	return d
}

func parseArgs(line string) (cmd string, a args) {
	fields := strings.Fields(line)
	a.kv = map[string]string{}
	for _, f := range fields[1:] {
		if k, v, ok := strings.Cut(f, "="); ok && !strings.Contains(k, "/") {
			a.kv[k] = v
		} else {
			a.words = append(a.words, f)
		}
	}
	return fields[0], a
}

func (w *world) nextTicket(what string) Ticket {
	w.ticket++
	w.asked[w.ticket] = what
	return w.ticket
}

// run executes one command.
//
//	conf size=N delay=MS retention=MS pending=MS   configure, before anything else
//	wait MS                                        time passes; alarms ring
//	join G [member] as=WHO [static=I] [type=T] [protos=a:meta,b:meta] [session=MS] [rebalance=MS] [v=N]
//	sync G member gen=N [a=..,b=..]                what the leader brings: give=member:bytes,member:bytes
//	beat G member gen=N [static=I], leave G member [static=I]
//	commit G [member] gen=N topic/0=off...  [keep=MS] [v=N], fetch G [topic/0...] [stable=1]
//	expire, drop-topic NAME [id=N], delete-offsets G topic/0..., delete-groups G...
//	hold, commit-log, fail-log                     from hold on, writes wait for one of these
//	reload                                         a new core from the log; what a restart would lose is printed
//	show G, list
func (w *world) run(line string) {
	cmd, a := parseArgs(line)
	switch cmd {
	case "conf":
		w.conf.MaxSize, w.conf.InitialDelayMs = int(a.num("size", 0)), a.num("delay", 0)
		w.conf.RetentionMs, w.conf.PendingMs = a.num("retention", 0), a.num("pending", 0)
		w.core = NewCore(w.conf)
	case "wait":
		w.wait(a)
	case "join":
		w.join(a)
	case "sync":
		w.sync(a)
	case "beat":
		w.say("%s", errText(w.core.Heartbeat(w.now, HeartbeatRequest{Group: a.words[0], Member: word(a, 1),
			Instance: a.str("static", ""), Generation: int32(a.num("gen", 0))})))
	case "leave":
		res, out := w.core.Leave(w.now, LeaveRequest{Group: a.words[0], Members: []LeaveMember{{Member: word(a, 1), Instance: a.str("static", "")}}}, nil)
		w.say("leave: %s %s", errText(res.Err), errTexts(res.Errs))
		w.do(out)
	case "commit":
		w.commit(a)
	case "fetch":
		w.fetch(a)
	case "expire":
		w.do(w.core.Expire(w.now, nil))
	case "drop-topic":
		d := DeletedTopic{Name: a.words[0]}
		d.ID[0] = byte(a.num("id", 1))
		w.do(w.core.TopicsDeleted([]DeletedTopic{d}, nil))
	case "delete-offsets":
		w.do(w.core.DeleteOffsets(w.nextTicket("delete-offsets"), DeleteOffsetsRequest{Group: a.words[0], Topics: topicsOf(a.words[1:])}, nil))
	case "delete-groups":
		w.do(w.core.DeleteGroups(w.nextTicket("delete-groups"), a.words, nil))
	case "hold":
		w.hold = true
	case "commit-log":
		w.endHeld(nil)
	case "fail-log":
		w.endHeld(ErrNotAvailable)
	case "reload":
		w.reload()
	case "show":
		d, ok := w.core.Describe(a.words[0])
		w.say("%s type=%s protocol=%s gen=%d ok=%v", d.State, d.ProtocolType, d.Protocol, d.Generation, ok)
		for _, m := range d.Members {
			w.say("  %s static=%s meta=%q assigned=%q", m.ID, m.Instance, m.Metadata, m.Assignment)
		}
	case "list":
		ls := w.core.List()
		slices.SortFunc(ls, func(a, b Listed) int { return strings.Compare(a.Group, b.Group) })
		for _, l := range ls {
			w.say("%s %s %s", l.Group, l.State, l.ProtocolType)
		}
	default:
		w.t.Fatalf("unknown command %q", line)
	}
}

func word(a args, i int) string {
	if i < len(a.words) {
		return a.words[i]
	}
	return ""
}

// wait lets time pass, ringing each alarm at its own time.
func (w *world) wait(a args) {
	ms, err := strconv.ParseInt(a.words[0], 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	end := w.now + ms
	for {
		at, ok := w.core.Next()
		if !ok || at > end {
			break
		}
		w.now = max(w.now, at)
		before := len(w.out)
		w.do(w.core.Tick(w.now, nil))
		if len(w.out) > before {
			w.out = slices.Insert(w.out, before, fmt.Sprintf("at %d", w.now))
		}
	}
	w.now = end
}

func (w *world) join(a args) {
	r := JoinRequest{Group: a.words[0], Member: word(a, 1), Instance: a.str("static", ""), ClientID: a.str("as", "c"), ClientHost: "/h",
		SessionMs: int32(a.num("session", 10_000)), RebalanceMs: int32(a.num("rebalance", 60_000)), ProtocolType: a.str("type", "consumer"),
		NeedMemberID: a.num("v", 9) >= 4, CanSkipAssignment: a.num("v", 9) >= 9, Reason: a.str("why", "")}
	for p := range strings.SplitSeq(a.str("protos", "range:t"), ",") {
		if name, topic, ok := strings.Cut(p, ":"); ok {
			r.Protocols = append(r.Protocols, Protocol{name, subscription(topic)})
		}
	}
	w.do(w.core.Join(w.now, w.nextTicket("join "+r.Member+r.ClientID), r, nil))
}

// subscription is the metadata of a consumer of topics; of none, something that cannot be read.
func subscription(topic string) []byte {
	if topic == "" {
		return []byte{0}
	}
	ts := strings.Split(topic, "+")
	b := appendInt32(appendInt16(nil, 1), int32(len(ts)))
	for _, t := range ts {
		b = appendString(b, t)
	}
	return appendInt32(b, -1)
}

func (w *world) sync(a args) {
	r := SyncRequest{Group: a.words[0], Member: word(a, 1), Instance: a.str("static", ""), Generation: int32(a.num("gen", 0))}
	if p, ok := a.kv["proto"]; ok {
		r.Protocol = &p
	}
	for g := range strings.SplitSeq(a.str("give", ""), ",") {
		if id, b, ok := strings.Cut(g, ":"); ok {
			r.Assignments = append(r.Assignments, Assignment{id, []byte(b)})
		}
	}
	w.do(w.core.Sync(w.now, w.nextTicket("sync "+r.Member), r, nil))
}

func (w *world) commit(a args) {
	r := CommitRequest{Group: a.words[0], Member: "", Instance: a.str("static", ""), Generation: int32(a.num("gen", -1)),
		RetentionMs: a.num("keep", -1), NotFound: a.num("v", 9) >= 9}
	for _, f := range a.words[1:] {
		tp, off, ok := strings.Cut(f, "=")
		if !ok {
			r.Member = f
			continue
		}
		topic, p, _ := strings.Cut(tp, "/")
		n, _ := strconv.ParseInt(p, 10, 32)
		v, err := strconv.ParseInt(off, 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		o := Offset{Topic: topic, Partition: int32(n), Offset: v, LeaderEpoch: -1, Metadata: strings.Repeat("m", int(a.num("meta", 0)))}
		o.TopicID[0] = byte(a.num("id", 0))
		r.Offsets = append(r.Offsets, o)
	}
	w.do(w.core.Commit(w.now, w.nextTicket("commit"), r, nil))
}

func topicsOf(words []string) []FetchTopic {
	var ts []FetchTopic
	for _, f := range words {
		topic, p, _ := strings.Cut(f, "/")
		n, _ := strconv.ParseInt(p, 10, 32)
		ts = append(ts, FetchTopic{topic, []int32{int32(n)}})
	}
	return ts
}

func (w *world) fetch(a args) {
	fs := w.core.Fetch(a.words[0], topicsOf(a.words[1:]), a.num("stable", 0) > 0)
	slices.SortFunc(fs, func(a, b Fetched) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	for _, f := range fs {
		if f.Unstable {
			w.say("%s/%d unstable", f.Topic, f.Partition)
			continue
		}
		w.say("%s/%d=%d", f.Topic, f.Partition, f.Offset.Offset)
	}
}

// do carries out effects.
func (w *world) do(effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Append:
			if w.hold {
				w.held = append(w.held, e)
				w.say("held: %s", w.recordTexts(e.Records))
				continue
			}
			w.end(e, nil)
		case Answer:
			what, ok := w.asked[e.Ticket]
			if !ok {
				w.t.Errorf("ticket %d answered twice or never asked: %v", e.Ticket, e.Result)
			}
			delete(w.asked, e.Ticket)
			w.say("%s: %s", what, resultText(e.Result))
		case Change:
			w.say("%s is %s gen=%d members=%d (%s)", e.Group, e.State, e.Generation, e.Members, e.Reason)
		}
	}
}

func (w *world) end(e Append, err error) {
	base := int64(len(w.log))
	if err == nil {
		w.log = append(w.log, e.Records...)
		w.say("log: %s", w.recordTexts(e.Records))
	} else {
		w.say("log fails")
	}
	w.do(w.core.Appended(w.now, e.Ref, base, err, nil))
}

func (w *world) endHeld(err error) {
	held := w.held
	w.held, w.hold = nil, false
	for _, e := range held {
		w.end(e, err)
	}
}

func (w *world) reload() {
	w.core, w.asked = replayed(w.t, w.conf, w.log), map[Ticket]string{}
	w.do(w.core.Loaded(w.now, nil))
}

func replayed(t *testing.T, conf Config, log []Record) *Core {
	t.Helper()
	c := NewCore(conf)
	for i, r := range log {
		if err := c.Replay(r, int64(i), -1); err != nil {
			t.Fatalf("replay %d: %v", i, err)
		}
	}
	return c
}

func (w *world) recordTexts(rs []Record) string {
	var ss []string
	for _, r := range rs {
		k, err := DecodeKey(r.Key)
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case k.OfGroup() && r.Value == nil:
			ss = append(ss, "no group "+k.Group)
		case k.OfGroup():
			m, err := DecodeMetadata(r.Value)
			if err != nil {
				w.t.Fatal(err)
			}
			s := fmt.Sprintf("group %s gen=%d leader=%s", k.Group, m.Generation, m.Leader)
			for _, mm := range m.Members {
				s += fmt.Sprintf(" %s:%s", mm.ID, mm.Assignment)
			}
			ss = append(ss, s)
		case r.Value == nil:
			ss = append(ss, fmt.Sprintf("no %s %s/%d", k.Group, k.Topic, k.Partition))
		default:
			o, err := DecodeOffsetValue(r.Value)
			if err != nil {
				w.t.Fatal(err)
			}
			ss = append(ss, fmt.Sprintf("%s %s/%d=%d", k.Group, k.Topic, k.Partition, o.Offset))
		}
	}
	return strings.Join(ss, ", ")
}

func resultText(r any) string {
	switch r := r.(type) {
	case JoinResult:
		if r.Err != nil {
			return fmt.Sprintf("%s member=%s", errText(r.Err), r.Member)
		}
		s := fmt.Sprintf("member=%s gen=%d protocol=%s leader=%s", r.Member, r.Generation, r.Protocol, r.Leader)
		if r.SkipAssignment {
			s += " skip"
		}
		for _, m := range r.Members {
			s += " [" + m.ID + "]"
		}
		return s
	case SyncResult:
		if r.Err != nil {
			return errText(r.Err)
		}
		return fmt.Sprintf("protocol=%s assigned=%s", r.Protocol, bytes.TrimSpace(r.Assignment))
	case CommitResult:
		return errText(r.Err) + " " + errTexts(r.Errs)
	case DeleteOffsetsResult:
		return errText(r.Err) + " " + errTexts(r.Errs)
	case DeleteGroupsResult:
		return errTexts(r.Errs)
	}
	return fmt.Sprintf("unknown result %T", r)
}

func errText(err error) string {
	if err == nil {
		return "ok"
	}
	return strings.ReplaceAll(err.Error(), " ", "-")
}

func errTexts(errs []error) string {
	var ss []string
	for _, e := range errs {
		ss = append(ss, errText(e))
	}
	return "[" + strings.Join(ss, " ") + "]"
}
