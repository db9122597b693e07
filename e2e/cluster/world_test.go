package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/e2e/proc"
	"github.com/varvelog/varve/e2e/wire"
)

// session is broker.session.timeout.ms of the tests: short, and longer than a busy machine keeps a process from running.
const session = 4 * time.Second

// lagMax is replica.lag.time.max.ms of the tests.
const lagMax = 2 * time.Second

var quick = []string{
	fmt.Sprintf("broker.session.timeout.ms=%d", session.Milliseconds()), fmt.Sprintf("replica.lag.time.max.ms=%d", lagMax.Milliseconds()),
	"archive.max.lag.ms=500", "log.retention.check.interval.ms=200", "offsets.topic.num.partitions=3",
}

// world is three brokers of one test, its clients' view of them, and what is between.
type world struct {
	*proc.Cluster
	t    *testing.T
	ctx  context.Context // of the test
	net  *wire.Lines     // nil: processes reach each other directly
	adm  *kadm.Client
	boot []string

	etcd   *exec.Cmd // nil: inside the brokers
	logged []*lines  // by the brokers
}

// together starts three brokers with an etcd member in each.
func together(t *testing.T, set ...string) *world {
	t.Helper()
	w := newWorld(t, nil, set...)
	w.start()
	return w
}

// apart is apartOn the first kind of network that there is.
func apart(t *testing.T, set ...string) *world {
	t.Helper()
	return apartOn(t, networks(t)[0], set...)
}

// apartOn starts three brokers with an etcd beside them, and a network between all that can be cut.
func apartOn(t *testing.T, kind string, set ...string) *world {
	t.Helper()
	if kind == namespaced {
		return apartOnWire(t, set...)
	}
	w := newWorld(t, nil, set...)
	w.net, w.boot = wire.NewLines(), nil
	relays := newRelays(t, w.net, w.pids)
	at := relays.relay(etcd, w.runEtcd("127.0.0.1", (*exec.Cmd).Start))
	for i, v := range w.Brokers {
		addr := relays.relay(i+1, v.Listen)
		w.boot = append(w.boot, addr)
		w.configure(v, "advertised.listeners=PLAINTEXT://"+addr, "etcd.initial.cluster=", "etcd.endpoints="+at)
	}
	w.start()
	return w
}

func (w *world) configure(v *proc.Varve, set ...string) {
	w.t.Helper()
	if err := v.Configure(set...); err != nil {
		w.t.Fatal(err)
	}
}

// newWorld lays three brokers out; hosts are those that they are on, nil: this one.
func newWorld(t *testing.T, hosts []string, set ...string) *world {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+outage(t)+time.Duration(joins(t))*joinMax)
	t.Cleanup(cancel)
	if hosts == nil {
		hosts = slices.Repeat([]string{"127.0.0.1"}, 3)
	}
	c, err := proc.NewClusterOn(hosts, bin, t.TempDir(), append(slices.Clone(quick), set...)...)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: c, t: t, ctx: ctx, boot: c.Bootstrap()}
	for _, v := range w.Brokers {
		n := &lines{}
		v.Log = n
		w.logged = append(w.logged, n)
	}
	t.Cleanup(func() {
		if w.net != nil {
			w.net.Heal()
		}
		w.wake()
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for i, v := range w.Brokers {
				t.Logf("log of broker %d:\n%s", i+1, v.Output())
			}
		}
	})
	return w
}

// runEtcd starts an etcd of its own on a host and returns its address.
func (w *world) runEtcd(host string, start func(*exec.Cmd) error) string {
	w.t.Helper()
	var at [2]string
	for i := range at {
		a, err := proc.FreeAddrOn(host)
		if err != nil {
			w.t.Fatal(err)
		}
		at[i] = "http://" + a
	}
	w.etcd = exec.Command(etcdBin, "--data-dir", filepath.Join(w.Dir, "etcd"), "--listen-client-urls", at[0], "--advertise-client-urls", at[0],
		"--listen-peer-urls", at[1], "--initial-advertise-peer-urls", at[1], "--initial-cluster", "default="+at[1], "--log-level", "error")
	if err := start(w.etcd); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		w.etcd.Process.Kill()
		w.etcd.Wait()
	})
	return strings.TrimPrefix(at[0], "http://")
}

// pids are those of the brokers that run.
func (w *world) pids() map[int]int {
	m := map[int]int{}
	for i, v := range w.Brokers {
		if v.Started() && !v.Ended() {
			m[v.Pid()] = i + 1
		}
	}
	return m
}

func (w *world) start() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	if err := w.Start(ctx); err != nil {
		w.t.Fatal(err)
	}
	w.adm = kadm.NewClient(w.client())
	proc.Until(w.t, 30*time.Second, "three brokers are there", func() error {
		m, err := w.adm.BrokerMetadata(w.ctx)
		if err == nil && len(m.Brokers) != 3 {
			err = fmt.Errorf("brokers %v", m.Brokers.NodeIDs())
		}
		return err
	})
}

// startOne starts a broker that had ended, and waits until it serves.
func (w *world) startOne(id int32) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	if err := w.Broker(id).Start(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// sleep pauses brokers as SIGSTOP does: their sockets stay open.
func (w *world) sleep(ids ...int32) {
	w.t.Helper()
	for _, id := range ids {
		if err := w.Broker(id).Signal(syscall.SIGSTOP); err != nil {
			w.t.Fatal(err)
		}
		proc.Until(w.t, 10*time.Second, "the process has stopped", func() error {
			status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.Broker(id).Pid()))
			if err == nil && !strings.Contains(string(status), "State:\tT") {
				err = fmt.Errorf("it runs")
			}
			return err
		})
	}
}

// wake lets all that sleep go on.
func (w *world) wake() {
	w.t.Helper()
	for _, v := range w.Brokers {
		if !v.Started() || v.Ended() {
			continue
		}
		if err := v.Signal(syscall.SIGCONT); err != nil {
			w.t.Error(err)
		}
	}
}

// stopOne ends a broker by SIGTERM.
func (w *world) stopOne(id int32) {
	w.t.Helper()
	if err := w.Broker(id).Stop(); err != nil {
		w.t.Fatal(err)
	}
}

// client is one that tries as long as the test goes on, and is closed with it.
func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.boot...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(50 * time.Millisecond), kgo.MetadataMaxAge(time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }), kgo.RequestRetries(1000), kgo.RetryTimeout(time.Minute),
		kgo.DialTimeout(time.Second), kgo.RequestTimeoutOverhead(2 * time.Second), kgo.ProduceRequestTimeout(2 * time.Second),
		kgo.FetchMaxWait(200 * time.Millisecond), kgo.ProducerBatchCompression(kgo.NoCompression()),
	}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cl.Close)
	return cl
}

// topic makes one with a partition for each list of replicas; the first of a list leads. One without followers needs none in sync.
func (w *world) topic(name string, replicas ...[]int32) {
	w.t.Helper()
	if err := w.tryTopic(name, replicas...); err != nil {
		w.t.Fatal(err)
	}
	w.inSync(name)
}

// tryTopic makes a topic, or finds it made by an earlier try.
func (w *world) tryTopic(name string, replicas ...[]int32) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	for p, ids := range replicas {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = int32(p), ids
		t.ReplicaAssignment = append(t.ReplicaAssignment, a)
	}
	in := kmsg.NewCreateTopicsRequestTopicConfig()
	in.Name, in.Value = "min.insync.replicas", kmsg.StringPtr(strconv.Itoa(min(len(replicas[0]), 2)))
	t.Configs = append(t.Configs, in)
	req.Topics = append(req.Topics, t)
	cl := w.client()
	defer cl.Close()
	ctx, cancel := context.WithTimeout(w.ctx, 20*time.Second)
	defer cancel()
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// each broker leads one of three partitions.
var each = [][]int32{{1, 2, 3}, {2, 3, 1}, {3, 1, 2}}

// partition is what the cluster says of one.
func (w *world) partition(topic string, p int32) (kadm.PartitionDetail, error) {
	ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
	defer cancel()
	m, err := w.adm.Metadata(ctx, topic)
	if err != nil {
		return kadm.PartitionDetail{}, err
	}
	d, ok := m.Topics[topic].Partitions[p]
	if !ok {
		return d, fmt.Errorf("%s:%d is not in the metadata: %v", topic, p, m.Topics[topic].Err)
	}
	return d, nil
}

// ledBy waits until a partition has another leader than the one given, and returns it.
func (w *world) notLedBy(topic string, p, not int32) (leader int32) {
	w.t.Helper()
	proc.Until(w.t, 20*time.Second, fmt.Sprintf("%s:%d has another leader than %d", topic, p, not), func() error {
		d, err := w.partition(topic, p)
		if err == nil && (d.Leader < 0 || d.Leader == not) {
			err = fmt.Errorf("leader %d, isr %v", d.Leader, d.ISR)
		}
		leader = d.Leader
		return err
	})
	return leader
}

// isr waits until a partition's ISR has so many members.
func (w *world) isr(topic string, p int32, n int) {
	w.t.Helper()
	proc.Until(w.t, 30*time.Second, fmt.Sprintf("%s:%d has %d in sync", topic, p, n), func() error {
		d, err := w.partition(topic, p)
		if err == nil && len(d.ISR) != n {
			err = fmt.Errorf("leader %d, isr %v", d.Leader, d.ISR)
		}
		return err
	})
}

// inSync waits until every partition of a topic has all of its replicas in sync.
func (w *world) inSync(topic string) {
	w.t.Helper()
	proc.Until(w.t, 40*time.Second, "all replicas of "+topic+" are in sync", func() error {
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		defer cancel()
		m, err := w.adm.Metadata(ctx, topic)
		if err != nil {
			return err
		}
		for _, p := range m.Topics[topic].Partitions {
			if p.Leader < 0 || len(p.ISR) != len(p.Replicas) {
				return fmt.Errorf("partition %d: leader %d, isr %v of %v", p.Partition, p.Leader, p.ISR, p.Replicas)
			}
		}
		return m.Topics[topic].Err
	})
}

// verb runs a verb of the binary.
func (w *world) verb(args ...string) proc.Result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	r, err := proc.Run(ctx, bin, nil, nil, args...)
	if err != nil {
		w.t.Fatalf("varve %q: %v\n%s%s", args, err, r.Stdout, r.Stderr)
	}
	return r
}

// controller is the present one's id.
func (w *world) controller() int32 {
	w.t.Helper()
	var id int32
	proc.Until(w.t, 20*time.Second, "there is a controller", func() error {
		m, err := w.adm.BrokerMetadata(w.ctx)
		if id = m.Controller; err == nil && id < 0 {
			err = fmt.Errorf("none")
		}
		return err
	})
	return id
}

// sameReplicas stops the brokers and compares their files: what all have of a partition is the same, byte for byte, up to the end. One
// that started from the archive has only the later part. The archive that they leave is whole: what former leaders put there is not part of it.
func (w *world) sameReplicas(topic string, partitions int) {
	w.t.Helper()
	if err := w.Stop(); err != nil {
		w.t.Fatal(err)
	}
	if r := w.verb("archive", "verify", "--repo", "file://"+filepath.Join(w.Dir, "archive")); r.Code != 0 {
		w.t.Errorf("archive verify ends with %d:\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	for p := range partitions {
		var longest []byte
		var logs [][]byte
		for _, v := range w.Brokers {
			files, err := filepath.Glob(filepath.Join(v.Dir, fmt.Sprintf("%s-%d", topic, p), "*.log"))
			if err != nil {
				w.t.Fatal(err)
			}
			slices.Sort(files)
			var all []byte
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					w.t.Fatal(err)
				}
				all = append(all, b...)
			}
			logs = append(logs, all)
			if len(all) > len(longest) {
				longest = all
			}
		}
		for i, l := range logs {
			if !strings.HasSuffix(string(longest), string(l)) || len(l) == 0 && len(longest) > 0 {
				w.t.Errorf("%s:%d: broker %d's log, %d bytes, is not the end of the longest, %d bytes", topic, p, i+1, len(l), len(longest))
			}
		}
	}
}
