//go:build clients

package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

// tool runs one of Kafka's command-line tools against v.
func tool(t *testing.T, v *proc.Varve, stdin, name string, args ...string) string {
	t.Helper()
	return sh(t, stdin, kafka(t, name), append(args, "--bootstrap-server", v.Listen)...)
}

func kafka(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(env(t, "VARVE_KAFKA"), "bin", name)
}

func holds(t *testing.T, what, text string, wants ...string) {
	t.Helper()
	for _, w := range wants {
		if !regexp.MustCompile(w).MatchString(text) {
			t.Fatalf("%s: no %q in:\n%s", what, w, text)
		}
	}
}

func TestKafkaToolsAdministerTopics(t *testing.T) {
	v := start(t)
	tool(t, v, "", "kafka-topics", "--create", "--topic", "tools", "--partitions", "3", "--replication-factor", "1", "--config", "segment.bytes=1048576")
	holds(t, "describe", tool(t, v, "", "kafka-topics", "--describe", "--topic", "tools"), `PartitionCount: 3`, `segment.bytes=1048576`, `Leader: 1`, `Isr: 1`)
	holds(t, "list", tool(t, v, "", "kafka-topics", "--list"), `(?m)^tools$`)
	tool(t, v, "", "kafka-topics", "--alter", "--topic", "tools", "--partitions", "5")
	holds(t, "describe", tool(t, v, "", "kafka-topics", "--describe", "--topic", "tools"), `PartitionCount: 5`)
	tool(t, v, "", "kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "tools", "--add-config", "retention.ms=3600000")
	holds(t, "configs", tool(t, v, "", "kafka-configs", "--describe", "--entity-type", "topics", "--entity-name", "tools"), `retention.ms=3600000`)
	holds(t, "broker configs", tool(t, v, "", "kafka-configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1"), `log.segment.bytes=1073741824`, `archive.max.lag.ms=500`)
	holds(t, "api versions", tool(t, v, "", "kafka-broker-api-versions"), `Produce\(0\): 0 to 13`, `Fetch\(1\): 4 to 18`, `CreateTopics\(19\): 2 to 7`)
	tool(t, v, "", "kafka-topics", "--delete", "--topic", "tools")
	if out := tool(t, v, "", "kafka-topics", "--list"); strings.Contains(out, "tools") {
		t.Fatalf("deleted topic is listed:\n%s", out)
	}
}

func TestKafkaToolsProduceConsumeAndFollowGroups(t *testing.T) {
	v := start(t)
	tool(t, v, "", "kafka-topics", "--create", "--topic", "console", "--partitions", "2")
	want := lines(0, 300)
	tool(t, v, want, "kafka-console-producer", "--topic", "console", "--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
	got := tool(t, v, "", "kafka-console-consumer", "--topic", "console", "--from-beginning", "--max-messages", "300", "--timeout-ms", "30000", "--group", "console-group",
		"--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
	sameLines(t, "console", want, got)
	holds(t, "offsets", tool(t, v, "", "kafka-get-offsets", "--topic", "console", "--time", "-2"), `console:0:0`, `console:1:0`)
	holds(t, "groups", tool(t, v, "", "kafka-consumer-groups", "--list"), `console-group`)
	holds(t, "group", tool(t, v, "", "kafka-consumer-groups", "--describe", "--group", "console-group"), `console\s+0\s+\d+\s+\d+\s+0`)
	tool(t, v, "", "kafka-consumer-groups", "--group", "console-group", "--topic", "console", "--reset-offsets", "--to-earliest", "--execute")
	holds(t, "reset group", tool(t, v, "", "kafka-consumer-groups", "--describe", "--group", "console-group"), `console\s+0\s+0\s+`)
	tool(t, v, "", "kafka-consumer-groups", "--delete", "--group", "console-group")
	spec := filepath.Join(t.TempDir(), "delete.json")
	if err := os.WriteFile(spec, []byte(`{"partitions":[{"topic":"console","partition":0,"offset":1}],"version":1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	holds(t, "delete records", tool(t, v, "", "kafka-delete-records", "--offset-json-file", spec), `low_watermark: 1`)
	holds(t, "log dirs", tool(t, v, "", "kafka-log-dirs", "--describe", "--topic-list", "console"), `"partition":"console-0"`)
	holds(t, "perf", tool(t, v, "", "kafka-producer-perf-test", "--topic", "console", "--num-records", "5000", "--record-size", "200", "--throughput", "-1", "--producer-props", "acks=all"), `5000 records sent`)
}

// TestDumpLogReadsOurSegments holds the files to Kafka's own reader: log, indexes, snapshot.
func TestDumpLogReadsOurSegments(t *testing.T) {
	v := start(t, "archive.url=")
	tool(t, v, "", "kafka-topics", "--create", "--topic", "dump", "--partitions", "1", "--config", "segment.bytes=1048576")
	tool(t, v, "", "kafka-producer-perf-test", "--topic", "dump", "--num-records", "30000", "--record-size", "100", "--throughput", "-1", "--producer-props", "acks=all", "compression.type=lz4")
	tool(t, v, "", "kafka-producer-perf-test", "--topic", "dump", "--num-records", "30000", "--record-size", "100", "--throughput", "-1", "--producer-props", "acks=all", "enable.idempotence=true")
	time.Sleep(300 * time.Millisecond) // a round of retention, which rolls and syncs
	files, err := filepath.Glob(filepath.Join(v.Dir, "dump-0", "*.log"))
	if err != nil || len(files) < 3 {
		t.Fatalf("%v, %v: want at least 3 segments", files, err)
	}
	dump := filepath.Join(env(t, "VARVE_KAFKA"), "bin", "kafka-dump-log")
	bad := regexp.MustCompile(`(?i)mismatch|isvalid: false|corrupt|exception|failed|trailing`)
	records := 0
	for i, f := range files {
		out := sh(t, "", dump, "--files", f, "--deep-iteration", "--print-data-log")
		if m := bad.FindString(out); m != "" {
			t.Fatalf("%s: %q in:\n%.2000s", f, m, out)
		}
		records += strings.Count(out, "| offset:")
		for _, ext := range []string{".index", ".timeindex"} {
			index := strings.TrimSuffix(f, ".log") + ext
			if _, err := os.Stat(index); os.IsNotExist(err) && i == len(files)-1 {
				continue // the active segment's is in memory until it is flushed
			} else if err != nil {
				t.Fatal(err)
			}
			if out := sh(t, "", dump, "--files", index); bad.MatchString(out) {
				t.Fatalf("%s:\n%.2000s", index, out)
			}
		}
	}
	if records != 60000 {
		t.Fatalf("kafka-dump-log shows %d records, want 60000", records)
	}
	snaps, _ := filepath.Glob(filepath.Join(v.Dir, "dump-0", "*.snapshot"))
	if len(snaps) == 0 {
		t.Fatal("no producer snapshot")
	}
	for _, f := range snaps {
		if out := sh(t, "", dump, "--files", f); bad.MatchString(out) || !strings.Contains(out, "producerId:") {
			t.Fatalf("%s:\n%.2000s", f, out)
		}
	}
}
