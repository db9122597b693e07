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
