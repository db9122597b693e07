package recovery

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// vanishing removes the first mark that is read, before that.
type vanishing struct {
	objstore.Bucket
	done bool
}

func (v *vanishing) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if strings.Contains(key, "/mark/") && !v.done {
		v.done = true
		if err := v.Bucket.Delete(ctx, key); err != nil {
			return nil, err
		}
	}
	return v.Bucket.Get(ctx, key, off, n)
}

func TestAMarkThatIsRemovedWhileMarksAreReadDoesNotCount(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		a.produce(a.topic("orders", 1), 0, 3)
		a.pass(time.Minute)
		s := a.source()
		before := len(a.inventory().Marks)
		m := manifest.Mark{Cluster: a.inventory().Info.Cluster, Broker: 0, TimeMs: 1, WindowMs: 1, Written: 1}
		body, err := m.Encode()
		if err == nil {
			_, err = s.Bucket.Put(t.Context(), m.Key(), objstore.BytesBody(body), objstore.Cond{})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Bucket = &vanishing{Bucket: s.Bucket}
		inv, err := TakeInventory(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if len(inv.Marks) != before {
			t.Fatalf("%d marks, want %d", len(inv.Marks), before)
		}
	})
}

// put writes an object of the archive anew.
func put(t *testing.T, b objstore.Bucket, key, body string) {
	t.Helper()
	if _, err := b.Put(t.Context(), key, objstore.BytesBody([]byte(body)), objstore.Cond{}); err != nil {
		t.Fatal(err)
	}
}

// The mark that cannot be read may be the one that holds the window back.
func TestADamagedMarkIsNoMarkThatHasGoneOn(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		a.produce(a.topic("orders", 1), 0, 3)
		a.pass(time.Minute)
		to := a.inventory().Through(nil)
		at := Request{Target: Target{Kind: AtTime, Time: to}}
		if _, err := a.plan(at); err != nil {
			t.Fatal(err)
		}
		key := manifest.MarkKey(a.inventory().Info.Cluster, 77)
		put(t, a.source().Bucket, key, `{"format":1,"kind":"mark","time`)
		inv := a.inventory()
		if inv.Through(nil) >= to || len(inv.Damage) != 1 {
			t.Fatalf("complete to %s, damage %v", Stamp(inv.Through(nil)), inv.Damage)
		}
		if _, err := a.plan(at); err == nil || !strings.Contains(err.Error(), key) {
			t.Fatalf("a plan as of a time: %v", err)
		}
		if _, err := a.plan(latest()); err != nil {
			t.Fatalf("the latest is what there is: %v", err)
		}
	})
}

func TestATopicThatIsLeftOutForItsDamagedRecordIsNamedByThePlan(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		topic := a.topic("orders", 1)
		a.produce(topic, 0, 3)
		a.produce(a.topic("other", 1), 0, 3)
		a.pass(time.Minute)
		key := keys(t, a.source().Bucket, manifest.TopicRecordPrefix(topic.ID))[0]
		put(t, a.source().Bucket, key, "{}")
		p, err := a.plan(latest())
		if err != nil || len(p.Topics) != 1 {
			t.Fatalf("%+v, %v", p, err)
		}
		if len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0], key) {
			t.Fatalf("warnings %q do not name %s", p.Warnings, key)
		}
	})
}
