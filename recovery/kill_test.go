package recovery

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/memkv"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/fault"
)

func failing(op fault.Op, prefix string) fault.Rule {
	return fault.Rule{Op: op, Prefix: prefix, Effect: fault.Fail, Err: errors.New("injected")}
}

func keys(t *testing.T, b objstore.Bucket, prefix string) []string {
	t.Helper()
	var out []string
	for i, err := range b.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, i.Key)
	}
	return out
}

// BUG-006: whatever call of the destination's stores is the last one that the first run makes, and whether or not it was
// done, the second run ends as if there had been no first, and the third is refused.
func TestARestoreThatIsKilledAnywhereIsDoneByDoingItAgain(t *testing.T) {
	steps := 0
	for _, effect := range []fault.Effect{fault.Fail, fault.Lost} {
		for step := 1; ; step++ {
			killed := false
			inBubble(t, func(t *testing.T, n *net) {
				a := newCluster(t, n, "mem://a")
				topic := a.topic("orders", 2)
				a.produce(topic, 0, 10)
				a.produce(topic, 1, 10)
				a.pass(time.Minute)
				a.stop()
				r := a.restoring("mem://b", atOffsets(t, "orders:0=7,orders:1=10"))
				dest := n.at("mem://b")
				dest.SetRules(fault.Rule{From: step, Effect: effect, Err: errors.New("killed")})
				_, err := r.Run(t.Context())
				dest.SetRules()
				killed = err != nil
				if killed {
					if _, err := r.Run(t.Context()); err != nil {
						t.Fatalf("effect %d, step %d: again: %v", effect, step, err)
					}
				}
				if _, err := r.Run(t.Context()); !errors.Is(err, ErrDone) {
					t.Fatalf("a finished restore, again: %v", err)
				}
				st, err := readState(r.Dir)
				if err != nil || st.State != stateComplete {
					t.Fatalf("%+v, %v", st, err)
				}
				if got := keys(t, a.bucket, "lease/"); len(got) != 1 {
					t.Fatalf("effect %d, step %d: leases %v", effect, step, got)
				}
				b := startCluster(t, n, "mem://b", r.kv, st.Cluster)
				b.wantRange(a, "orders", 0, 0, 7)
				b.wantRange(a, "orders", 1, 0, 10)
				b.stop()
				if report, err := Verify(t.Context(), b.source(), VerifyOptions{Full: true}); err != nil || len(report.Findings) > 0 {
					t.Fatalf("effect %d, step %d: %+v, %v", effect, step, report, err)
				}
			})
			if t.Failed() {
				return
			}
			if !killed {
				break
			}
			steps++
		}
	}
	if steps < 20 {
		t.Fatalf("%d steps only", steps)
	}
}

func TestARestoreWhoseMetadataFailsAnywhereIsDoneByDoingItAgain(t *testing.T) {
	for _, outcome := range []memkv.Outcome{memkv.Refuse, memkv.Unknown} {
		for step := int64(1); ; step++ {
			killed := false
			inBubble(t, func(t *testing.T, n *net) {
				a := newCluster(t, n, "mem://a")
				a.produce(a.topic("orders", 1), 0, 10)
				a.pass(time.Minute)
				a.stop()
				r := a.restoring("mem://b", latest())
				r.kv.Hook(func(c memkv.Call) memkv.Outcome {
					if c.N >= step {
						return outcome
					}
					return memkv.OK
				})
				_, err := r.Run(t.Context())
				if killed = err != nil; killed {
					if _, err := r.Run(t.Context()); err != nil {
						t.Fatalf("step %d: again: %v", step, err)
					}
				}
				r.kv.Hook(nil)
				st, err := readState(r.Dir)
				if err != nil {
					t.Fatal(err)
				}
				startCluster(t, n, "mem://b", r.kv, st.Cluster).wantRange(a, "orders", 0, 0, 10)
			})
			if t.Failed() || !killed {
				break
			}
		}
	}
}

func TestADirectoryIsTakenOnlyIfItIsFree(t *testing.T) {
	inBubble(t, func(t *testing.T, n *net) {
		a := newCluster(t, n, "mem://a")
		a.produce(a.topic("orders", 1), 0, 10)
		a.pass(time.Minute)
		fresh := func() *restoring { return a.restoring("mem://b", latest()) }

		r := fresh()
		if err := os.WriteFile(filepath.Join(r.Dir, "orders-0"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(t.Context()); !errors.Is(err, ErrInUse) {
			t.Errorf("not empty: %v", err)
		}
		if _, err := os.Stat(filepath.Join(r.Dir, lockFile)); err == nil {
			t.Error("a refused directory keeps a lock file")
		}

		r = fresh()
		lock, _, err := claimDir(r.Dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Run(t.Context()); !errors.Is(err, ErrInUse) {
			t.Errorf("locked: %v", err)
		}
		lock.Close()

		r = fresh()
		r.Dir = filepath.Join(r.Dir, "made")
		r.Request = atTime(1)
		if _, err := r.Run(t.Context()); err == nil {
			t.Fatal("a target of 1970")
		}
		if _, err := os.Stat(r.Dir); err == nil {
			t.Error("a refused target leaves a directory")
		}
		if got := keys(t, a.bucket, "lease/"); len(got) != 0 {
			t.Errorf("leases %v", got)
		}

		n.at("mem://b").SetRules(failing(fault.Put, "t/"))
		r = fresh()
		if _, err := r.Run(t.Context()); err == nil {
			t.Fatal("it succeeds")
		}
		n.at("mem://b").SetRules()
		r.Request.Topics = []string{"orders"}
		if _, err := r.Run(t.Context()); !errors.Is(err, ErrInUse) {
			t.Errorf("another request goes on with an unfinished one: %v", err)
		}

		r = fresh()
		r.Source = "file://" + r.Dir + "/archive"
		if _, err := r.Run(t.Context()); !errors.Is(err, ErrRequest) {
			t.Errorf("archive in the directory: %v", err)
		}
		for _, c := range []struct {
			a, b string
			want bool
		}{{"/x/y", "/x/y", true}, {"/x/y", "/x", true}, {"/x", "/x/y/z", true}, {"/x/y", "/x/yz", false}} {
			if got := overlaps(c.a, c.b); got != c.want {
				t.Error(fmt.Sprint(c, got))
			}
		}
	})
}
