package tier

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/record"
)

// tip is the manifest that a reader of the bucket alone takes.
func (w *world) tip() *manifest.Manifest {
	w.t.Helper()
	r, err := OpenBucket(context.Background(), w.mem, ReaderOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	m, err := r.Tip(context.Background(), partA)
	if err != nil || m == nil {
		w.t.Fatalf("tip: %v, %v", m, err)
	}
	return m
}

// Whoever gets his commit in first, the newest manifest of the bucket is or descends from the committed one: a leader that still archives what
// a deleted topic has left, and who marks it dead, do not share an epoch.
func TestTheLeaderAndTheCollectorOfADeletedTopicDoNotPassEachOtherByNumber(t *testing.T) {
	for _, first := range []string{"collector", "leader"} {
		in(t, func(t *testing.T, w *world) {
			n := w.lead(TopicConfig{})
			w.append(3)
			if err := n.p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.append(2)
			collect := func() error {
				_, err := n.a.CollectDeleted(context.Background(), topicA, 1, time.Now().UnixMilli(), hour)
				return err
			}
			flush := func() error {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				return n.p.Flush(ctx)
			}
			outer, inner := flush, collect // the inner one happens after the outer one's manifest is written
			if first == "leader" {
				outer, inner = collect, flush
			}
			var in error
			w.ptrs.mu.Lock()
			w.ptrs.before = func() { in = inner() }
			w.ptrs.mu.Unlock()
			out := outer()
			if first == "collector" && (in != nil || !errors.Is(out, ErrFenced)) || first == "leader" && (!errors.Is(in, ErrFenced) || out != nil) {
				t.Fatalf("%s first: it says %v, the other %v", first, in, out)
			}
			if m, p := w.tip(), w.ptrs.get(partA); m.Key() != p.Manifest {
				t.Fatalf("%s first: the bucket's newest manifest is %s, committed is %s", first, m.Key(), p.Manifest)
			}
			n.stop()
			n = w.lead(TopicConfig{})
			settle(n)
			if err := n.p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.wantArchived(n.p, 0, 5)
			if m, p := w.tip(), w.ptrs.get(partA); m.Key() != p.Manifest {
				t.Fatalf("%s first, then the next leader: the bucket's newest manifest is %s, committed is %s", first, m.Key(), p.Manifest)
			}
		})
	}
}

// The log of an undeleted topic starts from the archive while all entries still are as the deletion has left them. It forgot the producers
// then, and appended again what one that had no answer before the deletion repeated.
func TestALogThatStartsFromADeadArchiveKnowsTheProducers(t *testing.T) {
	for _, died := range []string{"deleted", "expired"} {
		in(t, func(t *testing.T, w *world) {
			n := w.lead(TopicConfig{})
			b, err := record.Build(nil, record.BatchOptions{ProducerID: 7}, []record.Record{{Timestamp: time.Now().UnixMilli(), Value: w.value(0)}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.src.log.Append([]record.Batch{b}, w.epoch, localseg.OriginClient); err != nil {
				t.Fatal(err)
			}
			if err := n.p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if died == "expired" {
				n.p.SetConfig(TopicConfig{RetentionMs: 1000})
				time.Sleep(time.Minute)
				settle(n)
			} else if _, err := n.a.CollectDeleted(t.Context(), topicA, 1, time.Now().UnixMilli(), hour); err != nil {
				t.Fatal(err)
			}
			if m := w.tip(); len(entriesOf(m, manifest.Dead)) != 1 {
				t.Fatalf("%s: entries %+v", died, m.Entries)
			}
			n.stop()
			w.restart()
			done, err := w.src.log.Append([]record.Batch{b}, w.elect(), localseg.OriginClient)
			if err != nil || !done.Duplicate || done.First != 0 {
				t.Fatalf("%s: the batch again: %+v, %v", died, done, err)
			}
		})
	}
}
