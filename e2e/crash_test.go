package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/e2e/proc"
)

func TestNothingAcknowledgedIsLostByKills(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("kept", 2, "segment.bytes", "1048576", "local.retention.bytes", "1048576")
	l := startLoad(t, n.Listen, "kept", 2, 3000)
	for range 6 {
		l.more(300)
		n.Kill()
		n.start()
	}
	l.more(300)
	l.stop()
	l.check(c)
	for p := range int32(2) { // and the same again where most is only in the archive
		end, _ := c.offset("kept", p, latest)
		c.untilTiered("kept", p, end)
		c.untilEvicted("kept", p, 1)
	}
	l.check(c)
	want(t, varve(t, "archive", "verify", "--repo", n.archive), 0)
}

func TestKillsDuringUploadsLeaveACleanArchive(t *testing.T) {
	t.Parallel()
	n := start(t, "archive.max.lag.ms=100", "archive.upload.threads=2")
	c := connect(t, n.Listen)
	c.create("up", 1, "segment.bytes", "1048576", "local.retention.bytes", "1", "archive.restore.window.ms", "1000")
	l := startLoad(t, n.Listen, "up", 1, 10_000)
	uploaded := func() string {
		var last string
		filepath.WalkDir(strings.TrimPrefix(n.archive, "file://"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.Contains(path, "/m/") && path > last {
				last = path
			}
			return nil
		})
		return last
	}
	for i := range 6 {
		before := uploaded()
		proc.Until(t, 30*time.Second, "an upload is under way or done", func() error {
			if uploaded() == before {
				return fmt.Errorf("no new manifest")
			}
			return nil
		})
		proc.Pause(time.Duration(i) * 7 * time.Millisecond) // the kill meets another step each time
		n.Kill()
		n.start()
	}
	l.more(100)
	l.stop()
	l.check(c)
	want(t, varve(t, "archive", "verify", "--repo", n.archive), 0)
}

func TestSIGTERMUnderLoadEndsWithZeroAndNoError(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("drained", 3)
	l := startLoad(t, n.Listen, "drained", 3, 500)
	for range 3 {
		l.more(500)
		n.stop()
		n.start()
	}
	l.more(500)
	l.stop()
	l.check(c)
}

func TestRestartOnTheSameDataKeepsTopicsAndConfigs(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	id := c.create("kept", 3, "retention.ms", "123456789")
	d := c.fill("kept", 3, 300, 100)
	for _, crash := range []bool{false, true} {
		if crash {
			n.Kill()
		} else {
			n.stop()
		}
		n.start()
		c := connect(t, n.Listen)
		topics, err := c.adm.ListTopics(c.ctx)
		if err != nil || topics["kept"].ID != id || len(topics["kept"].Partitions) != 3 {
			t.Fatalf("after the restart: %v, %v", topics, err)
		}
		rs, err := c.adm.DescribeTopicConfigs(c.ctx, "kept")
		if err != nil || !strings.Contains(fmt.Sprint(configsOf(rs[0])), "retention.ms=123456789") {
			t.Fatalf("configs after the restart: %v, %v", configsOf(rs[0]), err)
		}
		c.same("kept", d)
	}
}

func TestTheSameDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	n := start(t)
	a, err := proc.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	r := want(t, varve(t, "dev", "--data-dir", n.Dir, "--listen", a, "--admin", ""), 1)
	if !strings.Contains(r.Stderr, "in use") || !strings.Contains(r.Stderr, n.Dir) {
		t.Errorf("the refusal does not say what is in use: %s", r.Stderr)
	}
	c := connect(t, n.Listen) // and the first one is as well as before
	c.create("a", 1)
	c.write(numbered("a", 0, 0, 10)...)
}

func TestAPortInUseIsRefused(t *testing.T) {
	t.Parallel()
	n := start(t)
	for _, flag := range []string{"--listen", "--admin"} {
		dir := filepath.Join(t.TempDir(), "data")
		free, err := proc.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"dev", "--data-dir", dir, "--listen", n.Listen, "--admin", free}
		if flag == "--admin" {
			args = []string{"dev", "--data-dir", dir, "--listen", free, "--admin", n.Admin}
		}
		r := want(t, varve(t, args...), 1)
		if !strings.Contains(r.Stderr, "address already in use") {
			t.Errorf("%s: %s", flag, r.Stderr)
		}
		if flag == "--listen" {
			if _, err := os.Stat(dir); err == nil {
				t.Errorf("a data directory was made although the port is taken")
			}
		}
	}
}

// configsOf is key=value of what is not default.
func configsOf(rc kadm.ResourceConfig) (list []string) {
	for _, k := range rc.Configs {
		if k.Source == kmsg.ConfigSourceDynamicTopicConfig {
			list = append(list, k.Key+"="+k.MaybeValue())
		}
	}
	return list
}

// lastLog is the active segment's file of a partition.
func (n *node) lastLog(topic string, partition int) string {
	n.t.Helper()
	logs, err := filepath.Glob(filepath.Join(n.Dir, fmt.Sprintf("%s-%d", topic, partition), "*.log"))
	if err != nil || len(logs) == 0 {
		n.t.Fatalf("segments of %s-%d: %v, %v", topic, partition, logs, err)
	}
	return logs[len(logs)-1]
}

// BUG-034 a-c.
func TestGarbageAtTheTailIsCutOff(t *testing.T) {
	t.Parallel()
	huge := make([]byte, 61) // the header of a batch that says to be of 2^31-1 bytes
	binary.BigEndian.PutUint64(huge, 1000)
	binary.BigEndian.PutUint32(huge[8:], 1<<31-1)
	huge[16] = 2
	random := make([]byte, 37)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	n := start(t)
	c := connect(t, n.Listen)
	c.create("torn", 1)
	d := c.fill("torn", 1, 1000, 100)
	for name, garbage := range map[string][]byte{"37 random bytes": random, "a huge size": huge, "512 zeros": make([]byte, 512)} {
		n.Kill()
		f, err := os.OpenFile(n.lastLog("torn", 0), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.Write(garbage)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		n.start()
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("%s: ready after %s", name, took)
		}
		if end, _ := c.offset("torn", 0, latest); end != 1000 {
			t.Fatalf("%s: latest is %d, want 1000", name, end)
		}
		c.same("torn", d)
	}
	c.write(numbered("torn", 0, 1000, 1)...)
	recs := c.read("torn")[0]
	dense(t, recs, 0, 1001)
}

func TestATailLostLocallyComesBackFromTheArchive(t *testing.T) {
	t.Parallel()
	n := start(t)
	c := connect(t, n.Listen)
	c.create("cut", 1)
	d := c.fill("cut", 1, 1000, 100)
	c.untilTiered("cut", 0, 1000)
	n.Kill()
	log := n.lastLog("cut", 0)
	st, err := os.Stat(log)
	if err == nil {
		err = os.Truncate(log, st.Size()-10)
	}
	if err != nil {
		t.Fatal(err)
	}
	n.start()
	c.same("cut", d)
	c.write(numbered("cut", 0, 1000, 1)...)
	dense(t, c.read("cut")[0], 0, 1001)

	n.stop() // and with the whole directory lost
	if err := os.RemoveAll(filepath.Dir(log)); err != nil {
		t.Fatal(err)
	}
	n.start()
	dense(t, c.read("cut")[0], 0, 1001)
	c.write(numbered("cut", 0, 1001, 1)...)
	dense(t, c.read("cut")[0], 0, 1002)
}

// BUG-095.
func TestDamagedIndexFilesAreMadeAnew(t *testing.T) {
	t.Parallel()
	n := start(t, "archive.url=") // all is answered from the local log
	c := connect(t, n.Listen, kgo.ProducerBatchCompression(kgo.NoCompression()))
	c.create("indexed", 1, "segment.bytes", "1048576")
	base := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for i := range 100 {
		recs := numbered("indexed", 0, i*10, 10)
		for j, r := range recs {
			r.Timestamp = base.Add(time.Duration(i*10+j) * time.Second)
			r.Value = append(r.Value, make([]byte, 10_000)...)
		}
		c.write(recs...)
	}
	p := newRaw(c, "indexed", 0)
	first := p.send(0, 5)
	d := c.digest("indexed")
	damage := map[string]func(path string, size int64) error{
		"zeroed":    func(path string, size int64) error { return os.WriteFile(path, make([]byte, size), 0o644) },
		"deleted":   func(path string, _ int64) error { return os.Remove(path) },
		"cut at 13": func(path string, _ int64) error { return os.Truncate(path, 13) },
	}
	for name, harm := range damage {
		for _, crash := range []bool{false, true} {
			if crash {
				n.Kill()
			} else {
				n.stop()
			}
			files, err := filepath.Glob(filepath.Join(n.Dir, "indexed-0", "*"))
			if err != nil {
				t.Fatal(err)
			}
			harmed := 0
			for _, f := range files {
				switch filepath.Ext(f) {
				case ".index", ".timeindex", ".txnindex", ".snapshot", ".appendtime":
					st, err := os.Stat(f)
					if err != nil || st.Size() == 0 && name != "deleted" {
						continue
					}
					if err := harm(f, st.Size()); err != nil {
						t.Fatal(err)
					}
					harmed++
				}
			}
			if harmed < 10 {
				t.Fatalf("only %d files to harm in %v", harmed, files)
			}
			n.start()
			where := fmt.Sprintf("%s, crash %v", name, crash)
			c.same("indexed", d)
			for i := 0; i < 1000; i += 50 {
				if o, _ := c.offset("indexed", 0, base.Add(time.Duration(i)*time.Second).UnixMilli()); o != int64(i) {
					t.Fatalf("%s: record of second %d is at %d", where, i, o)
				}
				if r := c.one("indexed", 0, int64(i)); r.Offset != int64(i) || !bytes.HasPrefix(r.Value, fmt.Append(nil, i)) {
					t.Fatalf("%s: a fetch at %d gives offset %d", where, i, r.Offset)
				}
			}
			if again := p.send(0, 5); again != first {
				t.Fatalf("%s: the same batch of an idempotent producer got offset %d, then %d", where, first, again)
			}
			if end, _ := c.offset("indexed", 0, latest); end != first+5 {
				t.Fatalf("%s: latest is %d, want %d", where, end, first+5)
			}
		}
	}
}

// one fetches the record at an offset.
func (c *client) one(topic string, partition int32, offset int64) *kgo.Record {
	c.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().At(offset)}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.FetchMaxPartitionBytes(1))
	if err != nil {
		c.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.ctx, 20*time.Second)
	defer cancel()
	f := cl.PollRecords(ctx, 1)
	if err := f.Err(); err != nil || f.NumRecords() == 0 {
		c.t.Fatalf("fetch %s:%d at %d: %v", topic, partition, offset, err)
	}
	return f.Records()[0]
}
