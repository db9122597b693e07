package control

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// A scenario file has cases, each a title line "# ...", what there is, and after "->" what follows.
//
//	broker 1 epoch=10 [known=9|known=none|known=forgotten] [previous=9] [draining]   registered; known is the epoch last dealt with, default: the same
//	         [was=p] [process=q] [continues=p,o] [dir=new]           the process that is known, this one and its line; its directory
//	dead 2                                                         known, not registered
//	forgotten 2                                                    was known and has been unregistered
//	t 0 replicas=1,2 isr=1 leader=1 [adding=2] [removing=1] [offline=1] [minisr=2] [unclean]  a partition, in leader epoch 5 and partition epoch 7
//	do reassign t 0 2,3 | cancel t 0 | prefer t 0 | unclean t 0 | rebalance 10
//	-> t 0 leader=2 epoch=+1 isr=2 [replicas=..] [adding=..] [removing=..] [online=..] reason   only what changes is told
//	-> admit 1 3
//	-> error text
//	-> nothing
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range strings.Split("\n"+string(b), "\n# ")[1:] {
			title, body, _ := strings.Cut(text, "\n")
			t.Run(filepath.Base(f)+"/"+strings.ReplaceAll(title, " ", "_"), func(t *testing.T) { runScenario(t, body) })
		}
	}
}

type scenario struct {
	t       *testing.T
	img     *meta.Image
	unclean map[string]bool
	minISR  map[string]int32 // 0: 1
	do      []string
	want    []string
}

func runScenario(t *testing.T, body string) {
	s := &scenario{t: t, unclean: map[string]bool{}, minISR: map[string]int32{}, img: &meta.Image{
		Brokers: map[int32]*meta.Broker{}, Known: map[int32]*meta.Broker{}, Forgotten: map[int32]bool{}, Topics: map[string]*meta.Topic{}, TopicsByID: map[manifest.TopicID]*meta.Topic{},
	}}
	for _, line := range strings.Split(body, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			s.line(line)
		}
	}
	got := s.outcome()
	if want := strings.Join(s.want, "\n"); got != want {
		t.Fatalf("got\n%s\nwant\n%s", got, want)
	}
}

func (s *scenario) line(line string) {
	words := strings.Fields(line)
	set := map[string]string{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			set[k] = v
		}
	}
	switch words[0] {
	case "->":
		s.want = append(s.want, strings.Join(words[1:], " "))
	case "do":
		s.do = words[1:]
	case "broker":
		s.broker(int32(s.number(words[1])), set, slices.Contains(words, "draining"))
	case "dead":
		id := int32(s.number(words[1]))
		s.img.Known[id] = &meta.Broker{ID: id, Epoch: 1, Fenced: true}
	case "forgotten":
		s.img.Forgotten[int32(s.number(words[1]))] = true
	default:
		s.partition(words, set)
	}
}

func (s *scenario) broker(id int32, set map[string]string, draining bool) {
	b := &meta.Broker{ID: id, Epoch: 100 + int64(id), Draining: draining}
	if set["epoch"] != "" {
		b.Epoch = s.number(set["epoch"])
	}
	if set["previous"] != "" {
		b.Previous = s.number(set["previous"])
	}
	switch v := set["known"]; v {
	case "":
		s.img.Known[id] = &meta.Broker{ID: id, Epoch: b.Epoch}
	case "none":
	case "forgotten":
		s.img.Forgotten[id], b.Fenced = true, true
	default:
		s.img.Known[id] = &meta.Broker{ID: id, Epoch: s.number(v), Process: set["was"], Directory: "old"}
		b.Fenced, b.Process, b.Directory = true, set["process"], "old"
		if v := set["continues"]; v != "" {
			b.Continues = strings.Split(v, ",")
		}
		if v := set["dir"]; v != "" {
			b.Directory = v
		}
	}
	s.img.Brokers[id] = b
}

func (s *scenario) partition(words []string, set map[string]string) {
	name := words[0]
	topic := s.img.Topics[name]
	if topic == nil {
		topic = &meta.Topic{Name: name, ID: manifest.TopicID{1, name[0]}}
		s.img.Topics[name], s.img.TopicsByID[topic.ID] = topic, topic
	}
	if int(s.number(words[1])) != len(topic.Partitions) {
		s.t.Fatalf("partitions of %s out of order", name)
	}
	topic.Partitions = append(topic.Partitions, &meta.Partition{
		ID:       manifest.PartitionID{Topic: topic.ID, Partition: int32(len(topic.Partitions))},
		Replicas: s.ids(set["replicas"]), ISR: s.ids(set["isr"]), Leader: int32(s.number(set["leader"])),
		LeaderEpoch: 5, PartitionEpoch: 7, Adding: s.ids(set["adding"]), Removing: s.ids(set["removing"]), Offline: s.ids(set["offline"]),
	})
	if v := set["minisr"]; v != "" {
		s.minISR[name] = int32(s.number(v))
	}
	s.unclean[name] = s.unclean[name] || slices.Contains(words, "unclean")
}

func (s *scenario) number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		s.t.Fatalf("number %q", text)
	}
	return n
}

func (s *scenario) ids(text string) []int32 {
	var out []int32
	if text == "" {
		return nil
	}
	for _, w := range strings.Split(text, ",") {
		out = append(out, int32(s.number(w)))
	}
	return out
}

// outcome does what the scenario says, by default Decide on all, and tells it in the scenario's words.
func (s *scenario) outcome() string {
	rules := Rules{
		Unclean: func(t *meta.Topic) bool { return s.unclean[t.Name] },
		MinISR:  func(t *meta.Topic) int32 { return max(1, s.minISR[t.Name]) },
	}
	var lines []string
	one := func(e meta.Edit, err error, ok bool) {
		switch {
		case err != nil:
			lines = append(lines, "error "+err.Error())
		case ok:
			lines = append(lines, tell(s.topicOf(e), e))
		}
	}
	var p *meta.Partition
	var t *meta.Topic
	if len(s.do) > 2 {
		t = s.img.Topics[s.do[1]]
		p = t.Partitions[s.number(s.do[2])]
	}
	switch {
	case len(s.do) == 0:
		d := Decide(s.img, Scope{All: true}, rules)
		for _, c := range d.Changes {
			lines = append(lines, tell(c.Topic, c.Edit)+" "+string(c.Reason))
		}
		var ids []string
		for _, b := range d.Admit {
			ids = append(ids, fmt.Sprint(b.ID))
		}
		if len(ids) > 0 {
			lines = append(lines, "admit "+strings.Join(ids, " "))
		}
		s.again(d, rules)
	case s.do[0] == "reassign":
		e, err := Reassign(s.img, t, p, s.ids(s.do[3]), rules)
		one(e, err, true)
	case s.do[0] == "cancel":
		e, err := Cancel(s.img, t, p, rules)
		one(e, err, true)
	case s.do[0] == "prefer":
		e, ok := Prefer(s.img, p)
		one(e, nil, ok)
	case s.do[0] == "unclean":
		e, ok := ElectUnclean(s.img, t, p)
		one(e, nil, ok)
	case s.do[0] == "rebalance":
		for _, c := range Rebalance(s.img, s.number(s.do[1])) {
			one(c.Edit, nil, true)
		}
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}

func (s *scenario) topicOf(e meta.Edit) string { return s.img.TopicsByID[e.Base.ID.Topic].Name }

// again applies a decision: another one must then find nothing to do.
func (s *scenario) again(d Decision, rules Rules) {
	for _, c := range d.Changes {
		p := c.Edit.Base
		p.Replicas, p.ISR, p.Adding, p.Removing, p.Leader = c.Edit.Replicas, c.Edit.ISR, c.Edit.Adding, c.Edit.Removing, c.Edit.Leader
		p.Offline = slices.DeleteFunc(slices.Clone(p.Offline), func(id int32) bool { return slices.Contains(c.Edit.Online, id) })
		if !slices.Contains(p.Replicas, p.Leader) && p.Leader >= 0 || p.Leader >= 0 && !slices.Contains(p.ISR, p.Leader) || len(p.ISR) == 0 {
			s.t.Errorf("%s: leader and ISR do not agree", tell(c.Topic, c.Edit))
		}
		if p.Leader >= 0 && c.Edit.Elect && c.Edit.Registration != s.img.Brokers[p.Leader].Epoch {
			s.t.Errorf("%s: elected for registration %d", tell(c.Topic, c.Edit), c.Edit.Registration)
		}
	}
	for _, b := range d.Admit {
		b.Fenced = false
		s.img.Known[b.ID] = &meta.Broker{ID: b.ID, Epoch: b.Epoch}
	}
	if d := Decide(s.img, Scope{All: true}, rules); len(d.Changes) > 0 || len(d.Admit) > 0 {
		s.t.Errorf("deciding again: %s %s, %d to admit", tell(d.Changes[0].Topic, d.Changes[0].Edit), d.Changes[0].Reason, len(d.Admit))
	}
}

func tell(topic string, e meta.Edit) string {
	out := fmt.Sprintf("%s %d leader=%d", topic, e.Base.ID.Partition, e.Leader)
	if e.Elect {
		out += " epoch=+1"
	}
	was := e.Base
	for _, l := range []struct {
		name    string
		was, is []int32
	}{{"isr", was.ISR, e.ISR}, {"replicas", was.Replicas, e.Replicas}, {"adding", was.Adding, e.Adding}, {"removing", was.Removing, e.Removing}, {"online", nil, e.Online}} {
		if !slices.Equal(l.was, l.is) {
			out += " " + l.name + "=" + strings.ReplaceAll(strings.Trim(fmt.Sprint(l.is), "[]"), " ", ",")
		}
	}
	return out
}
