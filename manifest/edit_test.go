package manifest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// partition is a partition whose groups live in a map.
type partition struct {
	t      testing.TB
	m      *Manifest
	groups map[string][]byte
	limits Limits
	now    int64
	puts   int // group objects written
}

func newPartition(t testing.TB, l Limits) *partition {
	return &partition{t: t, m: Empty("c", testPartition(), 0), groups: map[string][]byte{}, limits: l, now: 1000}
}

func (p *partition) open(g Group) ([]Entry, error) { return g.Open(p.groups[g.Object]) }

func (p *partition) try(e Edit) error {
	e.Incarnation, e.LeaderEpoch, e.N = 1, 2, p.m.N+1
	if e.Time == 0 {
		p.now++
		e.Time = p.now
	}
	loaded := map[string][]Entry{}
	for _, g := range p.m.NeedGroups(e, p.limits) {
		list, err := p.open(g)
		if err != nil {
			p.t.Fatal(err)
		}
		loaded[g.Object] = list
	}
	c, err := Apply(p.m, e, p.limits, loaded)
	if err != nil {
		return err
	}
	for _, g := range c.Groups {
		if p.groups[g.Key] != nil {
			p.t.Fatalf("group key %s is written twice", g.Key)
		}
		p.groups[g.Key] = g.Body
		p.puts++
	}
	for _, k := range c.Replaced {
		delete(p.groups, k)
	}
	if len(p.groups) != len(c.Manifest.Groups) {
		p.t.Fatalf("%d group objects are left, %d listed", len(p.groups), len(c.Manifest.Groups))
	}
	p.m = c.Manifest
	return nil
}

func (p *partition) apply(e Edit) {
	p.t.Helper()
	if err := p.try(e); err != nil {
		p.t.Fatal(err)
	}
	if err := p.m.CheckEntries(p.all()); err != nil {
		p.t.Fatalf("%v\n%s", err, p)
	}
}

func (p *partition) all() []Entry {
	all, err := p.m.All(p.open)
	if err != nil {
		p.t.Fatal(err)
	}
	return all
}

func (p *partition) String() string {
	var b strings.Builder
	for i, en := range p.all() {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d-%d", en.Base, en.End)
		if en.Tail {
			b.WriteByte('t')
		}
		b.WriteString([]string{"", "!" + en.Reason.String(), "x"}[en.State])
	}
	return b.String()
}

func tail(base, end int64) Entry {
	en := testEntry(base, end)
	en.Tail = true
	return en
}

func adds(list ...Entry) Edit { return Edit{Add: list} }

func TestEdits(t *testing.T) {
	piece := func(base, end int64) Entry {
		en := testEntry(0, 100)
		en.Base, en.End = base, end
		return en
	}
	gone := func(list ...Entry) Edit {
		e := Edit{Gone: map[ObjectRef]bool{}}
		for _, en := range list {
			e.Gone[en.Ref()] = true
		}
		return e
	}
	for _, c := range []struct {
		name  string
		edits []Edit
		want  string // entries, or the error of the last edit after "error: "
	}{
		{"entries follow each other", []Edit{adds(testEntry(0, 10)), adds(testEntry(10, 20), tail(20, 25))}, "0-10 10-20 20-25t"},
		{"a hole is refused", []Edit{adds(testEntry(0, 10)), adds(testEntry(11, 20))}, "error: entry [11, 20) leaves a hole"},
		{"a gap stands between entries", []Edit{{Add: []Entry{testEntry(0, 10), testEntry(15, 20)}, Gaps: []Gap{{10, 15, RetentionUpload, 1}}}}, "0-10 15-20"},
		{"a gap elsewhere is refused", []Edit{{Gaps: []Gap{{10, 15, RetentionUpload, 1}}}}, "error: gap [10, 15) does not begin"},
		{"a rolled entry supersedes its tails and goes on", []Edit{adds(tail(0, 3), tail(3, 6)), adds(testEntry(0, 10))}, "0-3t!superseded 0-10 3-6t!superseded"},
		{"a rolled entry may end before the newest tail", []Edit{adds(tail(0, 3), tail(3, 6), tail(6, 8)), adds(testEntry(0, 6))}, "0-3t!superseded 0-6 3-6t!superseded 6-8t"},
		{"a longer tail supersedes shorter ones", []Edit{adds(tail(0, 3)), adds(tail(0, 5))}, "0-3t!superseded 0-5t"},
		{"half a tail is not superseded", []Edit{adds(tail(0, 3), tail(3, 6)), adds(testEntry(0, 5))}, "error: entry [0, 5) cannot supersede [3, 6)"},
		{"a rolled entry is not superseded", []Edit{adds(testEntry(0, 3)), adds(testEntry(0, 5))}, "error: entry [0, 5) cannot supersede [0, 3)"},
		{"an entry of nothing new is refused", []Edit{adds(tail(0, 3)), {LogStart: 3, Reason: RetentionTime}, adds(testEntry(0, 3))}, "error: entry [0, 3) holds nothing new"},
		{"a rolled entry may begin below the log start", []Edit{adds(tail(0, 3)), {LogStart: 3, Reason: RetentionTime}, adds(testEntry(0, 9))}, "0-3t!retention.ms 0-9"},
		{"a gap is not covered", []Edit{adds(tail(0, 3)), {Gaps: []Gap{{3, 5, RecordsDeleted, 1}}}, adds(testEntry(0, 9))}, "error: entry [0, 9) overlaps the gap [3, 5)"},
		{"the log start kills what is wholly below it", []Edit{adds(testEntry(0, 10), testEntry(10, 20)), {LogStart: 15, Reason: RecordsDeleted}}, "0-10!records deleted 10-20"},
		{"the log start stays within the archive", []Edit{adds(testEntry(0, 10)), {LogStart: 11, Reason: RecordsDeleted}}, "error: log start 11 is above"},
		{"a lower log start changes nothing", []Edit{adds(testEntry(0, 10), testEntry(10, 20)), {LogStart: 15, Reason: RecordsDeleted}, {LogStart: 5}}, "0-10!records deleted 10-20"},
		{"all may die and more follow", []Edit{adds(testEntry(0, 10)), {LogStart: 10, Reason: RetentionSize}, adds(testEntry(10, 20))}, "0-10!retention.bytes 10-20"},
		{"a deleted topic comes back", []Edit{adds(testEntry(0, 10), testEntry(10, 20)), {LogStart: 10, Reason: RetentionTime}, {DropTopic: true}, {Revive: true}}, "0-10!retention.ms 10-20"},
		{"a deleted topic that is doomed does not", []Edit{adds(testEntry(0, 10)), {DropTopic: true, Time: 2000}, {DoomBefore: 2000, Time: 3000}, {Revive: true}}, "error: entry [0, 10) of the deleted topic is doomed"},
		{"doom takes what died long ago", []Edit{adds(testEntry(0, 10), testEntry(10, 20)), {LogStart: 10, Reason: RetentionTime, Time: 2000}, {LogStart: 20, Reason: RetentionTime, Time: 3000}, {DoomBefore: 2000, Time: 4000}}, "0-10x 10-20!retention.ms"},
		{"superseded ones may be doomed earlier", []Edit{adds(testEntry(0, 3), tail(3, 6)), {LogStart: 3, Reason: RetentionTime, Time: 1500}, {Add: []Entry{testEntry(3, 9)}, Time: 2000}, {DoomBefore: 1, SupersededBefore: 2000, Time: 3000}}, "0-3!retention.ms 3-6tx 3-9"},
		{"doom does not reach the present", []Edit{{DoomBefore: 3000, Time: 3000}}, "error: doom before 3000"},
		{"an object that a live piece needs is not doomed", []Edit{{Add: []Entry{piece(0, 40), piece(60, 100)}, Gaps: []Gap{{40, 60, RecordsDeleted, 1}}}, {LogStart: 40, Reason: RetentionTime, Time: 2000}, {DoomBefore: 2000, Time: 3000}}, "0-40!retention.ms 60-100"},
		{"pieces of an object are doomed together", []Edit{{Add: []Entry{piece(0, 40), piece(60, 100)}, Gaps: []Gap{{40, 60, RecordsDeleted, 1}}}, {LogStart: 100, Reason: RetentionTime, Time: 2000}, {DoomBefore: 2000, Time: 3000}}, "0-40x 60-100x"},
		{"only what is doomed can be gone", []Edit{adds(testEntry(0, 10)), {LogStart: 10, Reason: RetentionTime}, gone(testEntry(0, 10))}, "error: object t/"},
		{"what is gone is dropped", []Edit{adds(testEntry(0, 10), testEntry(10, 20)), {LogStart: 10, Reason: RetentionTime, Time: 2000}, {DoomBefore: 2000, Time: 3000}, gone(testEntry(0, 10))}, "10-20"},
		{"a dead entry is not added", []Edit{adds(testManifest().Entries[0])}, "error: new entry [0, 10) is dead"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// The same with everything in groups of two, and with everything inline.
			for _, l := range []Limits{{}, {Inline: 1, Fold: 1, Group: 2}} {
				p := newPartition(t, l)
				p.m.LogStart, p.m.Through = 0, 0
				var got string
				for i, e := range c.edits {
					if err := p.try(e); err != nil {
						if i != len(c.edits)-1 {
							t.Fatal(err)
						}
						got = "error: " + strings.TrimPrefix(err.Error(), "edit "+testPartition().String()+": ")
					}
				}
				if got == "" {
					got = p.String()
					if err := p.m.CheckEntries(p.all()); err != nil {
						t.Fatal(err)
					}
				}
				if got != c.want && (!strings.HasPrefix(c.want, "error: ") || !strings.HasPrefix(got, c.want)) {
					t.Errorf("limits %+v: %q, want %q", l, got, c.want)
				}
			}
		})
	}
}

func TestIdentityOfManifestsOnlyRises(t *testing.T) {
	base := Edit{Incarnation: 2, LeaderEpoch: 5, N: 7, Time: 1}
	c, err := Apply(Empty("c", testPartition(), 3), base, Limits{}, nil)
	if err != nil || c.Manifest.Prev != "" || c.Manifest.Through != 3 {
		t.Fatalf("%+v, %v", c.Manifest, err)
	}
	for _, x := range []struct {
		inc   uint32
		epoch int32
		n     uint64
		ok    bool
	}{{2, 5, 8, true}, {2, 5, 7, false}, {2, 5, 6, false}, {2, 6, 1, true}, {2, 4, 9, false}, {3, 0, 1, true}, {1, 9, 9, false}, {2, 6, 0, false}} {
		next, err := Apply(c.Manifest, Edit{Incarnation: x.inc, LeaderEpoch: x.epoch, N: x.n, Time: 2}, Limits{}, nil)
		if (err == nil) != x.ok {
			t.Errorf("%+v: %v", x, err)
		}
		if err == nil && next.Manifest.Prev != c.Manifest.Key() {
			t.Errorf("%+v: predecessor %q", x, next.Manifest.Prev)
		}
	}
}

// Random edits under small limits give what the same edits give with no groups at all, survive the codec, and leave
// what they were given alone.
func TestGroupsChangeNothingButThePlace(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 1))
		flat := newPartition(t, Limits{Inline: 1 << 20})
		small := newPartition(t, Limits{Inline: 1 + r.IntN(6), Fold: 1 + r.IntN(6), Group: 1 + r.IntN(8)})
		rolled := int64(0) // end of the last rolled entry
		for range 120 {
			through := flat.m.Through
			var e Edit
			switch r.IntN(10) {
			case 0, 1, 2:
				e = adds(tail(through, through+1+r.Int64N(5)))
			case 3, 4:
				base := max(rolled, flat.m.LogStart)
				if n := len(flat.m.Gaps); n > 0 {
					base = max(base, flat.m.Gaps[n-1].To)
				}
				if base > through || slices.ContainsFunc(flat.m.Entries, func(en Entry) bool { return en.State == Live && en.Base < base && base < en.End }) {
					continue
				}
				rolled = through + 1 + r.Int64N(5)
				e = adds(testEntry(base, rolled))
			case 5:
				e = Edit{LogStart: flat.m.LogStart + r.Int64N(through-flat.m.LogStart+1), Reason: RetentionTime}
			case 6:
				e = Edit{DoomBefore: flat.now - 10, SupersededBefore: flat.now - 5}
			case 7:
				e.Gone = map[ObjectRef]bool{}
				for _, en := range flat.m.Entries {
					if en.State == Doomed && r.IntN(2) == 0 {
						e.Gone[en.Ref()] = true
					}
				}
			case 8:
				if r.IntN(4) == 0 {
					e.Gaps = []Gap{{through, through + 3, RetentionUpload, 1}}
				}
			case 9:
				e = Edit{DropTopic: true}
				flat.apply(e)
				small.apply(e)
				e = Edit{Revive: true}
			}
			before, beforeGroups := small.m.clone(), small.all()
			old := small.m
			flat.apply(e)
			small.apply(e)
			if !reflect.DeepEqual(old, before) {
				t.Fatalf("seed %d: the manifest that was edited changed", seed)
			}
			_ = beforeGroups
			if a, b := flat.String(), small.String(); a != b {
				t.Fatalf("seed %d: %+v gives\n%s\nin groups\n%s", seed, e, a, b)
			}
			if flat.m.Through != small.m.Through || flat.m.LogStart != small.m.LogStart || flat.m.LiveBytes() != small.m.LiveBytes() ||
				flat.m.HasLive() != small.m.HasLive() || !reflect.DeepEqual(flat.m.Gaps, small.m.Gaps) {
				t.Fatalf("seed %d: summaries differ", seed)
			}
			back, err := DecodeManifest(small.m.Encode())
			if err != nil || back.LiveBytes() != small.m.LiveBytes() || len(back.Groups) != len(small.m.Groups) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			off := flat.m.LogStart + r.Int64N(flat.m.Through-flat.m.LogStart+2)
			x, ok1, _ := flat.m.LiveAt(off, flat.open)
			y, ok2, err := small.m.LiveAt(off, small.open)
			if err != nil || ok1 != ok2 || x != y || ok1 && x.End <= off {
				t.Fatalf("seed %d: live at %d: %v %v, %v %v", seed, off, x, ok1, y, ok2)
			}
			for _, g := range small.m.Groups {
				if int(g.Count) > small.limits.Group {
					t.Fatalf("seed %d: group of %d entries", seed, g.Count)
				}
			}
		}
	}
}

func (m *Manifest) clone() *Manifest {
	c := *m
	c.Groups, c.Entries, c.Gaps = slices.Clone(m.Groups), slices.Clone(m.Entries), slices.Clone(m.Gaps)
	return &c
}

func TestApplyWithoutAGroupItNeedsIsRefused(t *testing.T) {
	p := newPartition(t, Limits{Inline: 1, Fold: 1, Group: 2})
	p.apply(adds(testEntry(0, 10), testEntry(10, 20), testEntry(20, 30)))
	if _, err := Apply(p.m, Edit{Incarnation: 1, LeaderEpoch: 2, N: 9, Time: 2000, LogStart: 10, Reason: RetentionTime}, p.limits, nil); err == nil {
		t.Fatal("no error")
	}
}

// Issue: a partition of 100,000 segments must cost one small PUT per upload.
func TestRootOf100000SegmentsStaysSmall(t *testing.T) {
	p := newPartition(t, Limits{})
	largest, largestGroup := 0, 0
	for i := int64(0); i < 100_000; {
		var e Edit
		for n := 0; n == 0 || i < 99_000 && n < 50; n++ { // the first ones in fifties, to save time
			e.Add = append(e.Add, testEntry(i*10, i*10+10))
			i++
		}
		if err := p.try(e); err != nil {
			t.Fatal(err)
		}
		if i > 99_000 {
			largest = max(largest, len(p.m.Encode()))
		}
	}
	for _, b := range p.groups {
		largestGroup = max(largestGroup, len(b))
	}
	if largest > 64<<10 || p.puts > 100_000/128+1 || len(p.groups) > 120 {
		t.Fatalf("root %d bytes, %d group PUTs, %d groups", largest, p.puts, len(p.groups))
	}
	t.Logf("root at most %d bytes, %d groups of at most %d bytes, %d group PUTs", largest, len(p.groups), largestGroup, p.puts)
}

func BenchmarkApplyAndEncode(b *testing.B) {
	p := newPartition(b, Limits{})
	list := make([]Entry, 100_000)
	for i := range list {
		list[i] = testEntry(int64(i)*10, int64(i)*10+10)
	}
	p.apply(Edit{Add: list})
	next := int64(len(list)) * 10
	var size int
	b.ReportAllocs()
	for b.Loop() {
		if err := p.try(adds(testEntry(next, next+10))); err != nil {
			b.Fatal(err)
		}
		next += 10
		size = len(p.m.Encode())
	}
	b.ReportMetric(float64(size), "root-bytes")
}

func BenchmarkDecodeManifest(b *testing.B) {
	p := newPartition(b, Limits{})
	for i := range int64(250) {
		p.apply(adds(testEntry(i*10, i*10+10)))
	}
	body := p.m.Encode()
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeManifest(body); err != nil {
			b.Fatal(err)
		}
	}
}
