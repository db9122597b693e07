package cluster

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/e2e/proc"
)

// The bad deploy of 14:30, on three brokers: everything acknowledged before the moment comes back and nothing after it, whichever broker
// led, also when one of them is down by then.
func TestRestoreToAMomentBetweenTwoWrites(t *testing.T) {
	w := together(t)
	w.topic("orders", each...)
	good := w.startLoad("orders", 3)
	good.more(300)
	good.stop()
	ends := w.ends("orders")
	proc.Pause(200 * time.Millisecond) // the brokers' clocks are one; their stamps are in stretches of 20 ms
	moment := time.Now().UTC()
	proc.Pause(200 * time.Millisecond)
	cl := w.client(kgo.RequiredAcks(kgo.AllISRAcks()))
	bad := func() {
		t.Helper()
		for p := range int32(3) {
			for range 100 {
				cl.Produce(w.ctx, &kgo.Record{Topic: "orders", Partition: p, Value: []byte("bad deploy")}, nil)
			}
		}
		if err := cl.Flush(w.ctx); err != nil {
			t.Fatal(err)
		}
	}
	bad()

	repo := "file://" + filepath.Join(w.Dir, "archive")
	restore := func(suffix string) {
		t.Helper()
		proc.Until(t, 30*time.Second, "the moment is in the window", func() error {
			r := w.verb("restore", "--repo", repo, "--type", "time", "--target", moment.Format(time.RFC3339Nano), "--topic", "orders",
				"--into", w.Broker(1).Listen, "--to-suffix", suffix)
			if r.Code == 3 {
				return fmt.Errorf("not restorable yet: %s", r.Stderr)
			}
			if r.Code != 0 {
				t.Fatalf("restore ends with %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
			}
			return nil
		})
		for p, values := range w.readAll("orders"+suffix, 3) {
			if int64(len(values)) != ends[int32(p)] {
				t.Errorf("orders%s:%d has %d records, at the moment there were %d", suffix, p, len(values), ends[int32(p)])
			}
			if err := good.histories[p].check(values); err != nil {
				t.Errorf("orders%s:%d: %v", suffix, p, err)
			}
		}
	}
	restore(".first")
	w.Broker(2).Kill()
	w.notLedBy("orders", 1, 2)
	bad()
	// A broker that is away holds the window's end back, but not for long: others have what it had.
	later := time.Now().UTC().Format(time.RFC3339Nano)
	proc.Until(t, 3*time.Minute, "the window goes on without broker 2", func() error {
		r := w.verb("restore", "--repo", repo, "--type", "time", "--target", later, "--topic", "orders", "--data-dir", filepath.Join(w.Dir, "new"), "--dry-run")
		if r.Code != 0 {
			return fmt.Errorf("exit code %d: %s", r.Code, r.Stderr)
		}
		return nil
	})
	restore(".second") // broker 2 is given its replicas all the same
	w.startOne(2)
	w.inSync("orders")
	w.inSync("orders.second")
	w.sameReplicas("orders.second", 3)
}
