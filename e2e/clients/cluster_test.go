//go:build clients

package clients

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

// trio is three brokers of one test.
type trio struct {
	*proc.Cluster
	t *testing.T
}

func startThree(t *testing.T, set ...string) *trio {
	t.Helper()
	c, err := proc.NewCluster(env(t, "VARVE_BIN"), t.TempDir(), 3, set...)
	if err != nil {
		t.Fatal(err)
	}
	w := &trio{c, t}
	t.Cleanup(func() {
		for _, v := range c.Brokers {
			if v.Started() && !v.Ended() {
				v.Signal(syscall.SIGCONT)
			}
		}
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			for i, v := range c.Brokers {
				t.Logf("log of broker %d:\n%s", i+1, v.Output())
			}
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return w
}

// tool runs one of Kafka's command-line tools against all brokers.
func (w *trio) tool(name string, args ...string) string {
	w.t.Helper()
	return sh(w.t, "", kafka(w.t, name), append(args, "--bootstrap-server", w.boot())...)
}

// quorum is the tool whose options come first.
func (w *trio) quorum(what string) string {
	w.t.Helper()
	return sh(w.t, "", kafka(w.t, "kafka-metadata-quorum"), "--bootstrap-server", w.boot(), "describe", what)
}

func (w *trio) boot() string { return strings.Join(w.Bootstrap(), ",") }

// eventually repeats a tool until what it prints holds the expressions.
func (w *trio) eventually(name string, args []string, wants ...string) {
	w.t.Helper()
	var out string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		out = w.tool(name, args...)
		all := true
		for _, x := range wants {
			all = all && regexp.MustCompile(x).MatchString(out)
		}
		if all {
			return
		}
	}
	w.t.Fatalf("%s %v: not within a minute: %q in:\n%s", name, args, wants, out)
}

func (w *trio) restart(id int32) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.Broker(id).Start(ctx); err != nil {
		w.t.Fatal(err)
	}
}

func (w *trio) stop(id int32) {
	w.t.Helper()
	if err := w.Broker(id).Stop(); err != nil {
		w.t.Fatal(err)
	}
}

// spec leaves a file with this content.
func (w *trio) spec(content string) string {
	w.t.Helper()
	f := filepath.Join(w.t.TempDir(), "spec.json")
	if err := os.WriteFile(f, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
	return f
}

var describe = []string{"--describe", "--topic", "repl"}

func TestKafkaToolsSeeThreeBrokers(t *testing.T) {
	w := startThree(t)
	w.tool("kafka-topics", "--create", "--topic", "repl", "--replica-assignment", "1:2:3,2:3:1,3:1:2", "--config", "segment.bytes=1048576")
	w.tool("kafka-topics", "--create", "--topic", "placed", "--partitions", "4", "--replication-factor", "3")
	holds(t, "describe", w.tool("kafka-topics", "--describe", "--topic", "placed"), `PartitionCount: 4\s+ReplicationFactor: 3`, `Isr: \d,\d,\d`)
	holds(t, "api versions", w.tool("kafka-broker-api-versions"), `\(id: 1 rack: rack-1`, `\(id: 2 rack: rack-2`, `\(id: 3 rack: rack-3`)
	holds(t, "cluster id", w.tool("kafka-cluster", "cluster-id"), `Cluster ID: \S{22}`)
	holds(t, "endpoints", w.tool("kafka-cluster", "list-endpoints"), `(?m)^1\s`, `(?m)^2\s`, `(?m)^3\s`)
	holds(t, "quorum", w.quorum("--status"), `LeaderId:\s+[123]`, `CurrentVoters:`)
	holds(t, "quorum", w.quorum("--replication"), `NodeId\s+.*LogEndOffset`, `Leader`)

	w.tool("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "2", "--add-config", "leader.replication.throttled.rate=1000000")
	holds(t, "broker config", w.tool("kafka-configs", "--describe", "--entity-type", "brokers", "--entity-name", "2"), `leader.replication.throttled.rate=1000000`)
	w.tool("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-name", "2", "--delete-config", "leader.replication.throttled.rate")
	w.tool("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "repl", "--add-config", "min.insync.replicas=1")
	holds(t, "topic config", w.tool("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "repl"), `min.insync.replicas=1`)

	if out := w.tool("kafka-topics", "--describe", "--under-replicated-partitions"); strings.TrimSpace(out) != "" {
		t.Fatalf("under-replicated with three brokers:\n%s", out)
	}
	w.stop(1)
	holds(t, "under-replicated", w.tool("kafka-topics", "--describe", "--under-replicated-partitions"), `Topic: repl\s+Partition: 0\s+Leader: [23]`, `Topic: placed`)
	if out := w.tool("kafka-topics", "--describe", "--unavailable-partitions"); strings.TrimSpace(out) != "" {
		t.Fatalf("unavailable with two brokers:\n%s", out)
	}
	w.restart(1)
	w.eventually("kafka-topics", describe, `Partition: 0\s+Leader: [23]\s+Replicas: 1,2,3\s+Isr: (1,|2,3,1|3,2,1|2,1|3,1)`)
	w.eventually("kafka-topics", []string{"--describe", "--under-replicated-partitions"}, `^\s*$`)
	holds(t, "election", w.tool("kafka-leader-election", "--election-type", "preferred", "--all-topic-partitions"), `repl-0`)
	w.eventually("kafka-topics", describe, `Partition: 0\s+Leader: 1`, `Partition: 1\s+Leader: 2`, `Partition: 2\s+Leader: 3`)

	w.stop(3)
	holds(t, "unregister", w.tool("kafka-cluster", "unregister", "--id", "3"), `Broker 3 is no longer registered`)
	w.restart(3)
	w.eventually("kafka-topics", describe, `Partition: 2\s+Leader: \d\s+Replicas: 3,1,2\s+Isr: \d,\d,\d`)
}

func TestKafkaToolsReassignPartitions(t *testing.T) {
	w := startThree(t, "broker.session.timeout.ms=60000")
	w.tool("kafka-topics", "--create", "--topic", "repl", "--replica-assignment", "1:2,2:3", "--config", "min.insync.replicas=1")
	w.tool("kafka-producer-perf-test", "--topic", "repl", "--num-records", "20000", "--record-size", "500", "--throughput", "-1", "--producer-props", "acks=all")

	topics := w.spec(`{"topics":[{"topic":"repl"}],"version":1}`)
	holds(t, "generate", w.tool("kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2,3"),
		`Current partition replica assignment`, `"replicas":\[1,2\]`, `Proposed partition reassignment configuration`)

	plan := w.spec(`{"version":1,"partitions":[{"topic":"repl","partition":0,"replicas":[3,2]},{"topic":"repl","partition":1,"replicas":[2,3,1]}]}`)
	holds(t, "execute", w.tool("kafka-reassign-partitions", "--execute", "--reassignment-json-file", plan, "--throttle", "50000000"), `Successfully started partition reassignments`)
	verify := []string{"--verify", "--reassignment-json-file", plan}
	w.eventually("kafka-reassign-partitions", verify, `partition repl-0 is completed`, `partition repl-1 is completed`, `Clearing broker-level throttles`, `Clearing topic-level throttles`)
	w.eventually("kafka-topics", describe, `Partition: 0\s+Leader: [23]\s+Replicas: 3,2\s+Isr: (3,2|2,3)\s`, `Partition: 1\s+Leader: [23]\s+Replicas: 2,3,1\s+Isr: \d,\d,\d`)
	if out := w.tool("kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "repl"); strings.Contains(out, "throttled") {
		t.Fatalf("throttles are left:\n%s", out)
	}

	// One that cannot end, since the new replica sleeps, is listed and cancelled.
	sleeper := int32(1)
	if m := regexp.MustCompile(`LeaderId:\s+(\d)`).FindStringSubmatch(w.quorum("--status")); m != nil && m[1] == "1" {
		w.stop(1) // another one becomes controller
		w.restart(1)
	}
	w.tool("kafka-topics", "--create", "--topic", "stuck", "--replica-assignment", "2:3", "--config", "min.insync.replicas=1")
	if err := w.Broker(sleeper).Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	boot := strings.Join(w.Bootstrap()[1:], ",")
	awake := func(name string, args ...string) string {
		t.Helper()
		return sh(t, "", kafka(t, name), append(args, "--bootstrap-server", boot)...)
	}
	plan = w.spec(`{"version":1,"partitions":[{"topic":"stuck","partition":0,"replicas":[2,1]}]}`)
	awake("kafka-reassign-partitions", "--execute", "--reassignment-json-file", plan)
	holds(t, "list", awake("kafka-reassign-partitions", "--list"), `stuck-0: replicas: .*adding: 1\. removing: 3`)
	holds(t, "cancel", awake("kafka-reassign-partitions", "--cancel", "--preserve-throttles", "--reassignment-json-file", plan), `Successfully cancelled partition reassignment for: stuck-0`)
	holds(t, "list", awake("kafka-reassign-partitions", "--list"), `No partition reassignments found`)
	if err := w.Broker(sleeper).Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	holds(t, "describe", awake("kafka-topics", "--describe", "--topic", "stuck"), `Replicas: 2,3\s`)
}

func TestKafkaToolsFollowGroupsWhoseCoordinatorRestarts(t *testing.T) {
	w := startThree(t, "offsets.topic.num.partitions=3")
	w.tool("kafka-topics", "--create", "--topic", "repl", "--partitions", "3", "--replication-factor", "3")
	w.tool("kafka-producer-perf-test", "--topic", "repl", "--num-records", "3000", "--record-size", "100", "--throughput", "-1", "--producer-props", "acks=all")
	w.tool("kafka-console-consumer", "--topic", "repl", "--from-beginning", "--max-messages", "3000", "--timeout-ms", "60000", "--group", "g")
	committed := `repl\s+0\s+\d+\s+\d+\s+0`
	holds(t, "group", w.tool("kafka-consumer-groups", "--describe", "--group", "g"), committed)
	for range 2 {
		state := w.tool("kafka-consumer-groups", "--describe", "--group", "g", "--state")
		m := regexp.MustCompile(`127\.0\.0\.1:\d+\s+\((\d)\)`).FindStringSubmatch(state)
		if m == nil {
			t.Fatalf("no coordinator in:\n%s", state)
		}
		id, _ := strconv.Atoi(m[1])
		w.stop(int32(id))
		holds(t, "group, coordinator stopped", w.tool("kafka-consumer-groups", "--describe", "--group", "g"), committed)
		if again := w.tool("kafka-consumer-groups", "--describe", "--group", "g", "--state"); strings.Contains(again, m[0]) {
			t.Fatalf("the coordinator is the broker that was stopped:\n%s", again)
		}
		w.restart(int32(id))
		holds(t, "group, coordinator back", w.tool("kafka-consumer-groups", "--describe", "--group", "g"), committed)
	}
}

// TestJavaProducerNoticesNoRollingRestart runs Kafka's producer while each broker is stopped and started in turn.
func TestJavaProducerNoticesNoRollingRestart(t *testing.T) {
	w := startThree(t)
	w.tool("kafka-topics", "--create", "--topic", "repl", "--replica-assignment", "1:2:3,2:3:1,3:1:2")
	const records, rate = 40_000, 1000
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, kafka(t, "kafka-producer-perf-test"), "--topic", "repl", "--num-records", strconv.Itoa(records), "--record-size", "100",
		"--throughput", strconv.Itoa(rate), "--bootstrap-server", w.boot(), "--producer-props", "acks=all", "enable.idempotence=true")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for id := int32(1); id <= 3; id++ {
		time.Sleep(2 * time.Second) // the producer writes meanwhile
		w.stop(id)
		time.Sleep(time.Second)
		w.restart(id)
		w.eventually("kafka-topics", []string{"--describe", "--under-replicated-partitions"}, `^\s*$`)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("producer: %v\n%s", err, out.String())
	}
	holds(t, "producer", out.String(), fmt.Sprintf(`%d records sent`, records))
	for _, line := range strings.Split(out.String(), "\n") { // a warning names what was tried again; an error is what the application gets
		if !strings.Contains(line, "] WARN [") && regexp.MustCompile(`\bERROR\b|Exception|xpired`).MatchString(line) {
			t.Fatalf("%q in the producer's output:\n%s", line, out.String())
		}
	}
	total := 0
	for _, l := range strings.Fields(w.tool("kafka-get-offsets", "--topic", "repl")) {
		n, _ := strconv.Atoi(l[strings.LastIndexByte(l, ':')+1:])
		total += n
	}
	if total != records {
		t.Fatalf("the topic has %d records, want %d: lost or doubled", total, records)
	}
}
