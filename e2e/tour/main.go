// Tour does varve's main job on real input and checks each step: a Kafka client produces, the log moves to the archive and leaves
// the broker, everything is read back identical, and the topic is restored to a moment between two writes, into the running cluster
// and into a new one. `make run` calls it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/varvelog/varve/e2e/digest"
	"github.com/varvelog/varve/e2e/proc"
)

func main() {
	t := &tour{}
	flag.StringVar(&t.bin, "varve", "bin/varve", "the binary")
	flag.Int64Var(&t.bytes, "bytes", 96<<20, "bytes to produce before the moment that is restored")
	flag.StringVar(&t.archive, "archive", "", "archive URL (default: a directory of the data directory)")
	flag.BoolVar(&t.verbose, "v", false, "show the broker's log")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	if err := t.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
}

type tour struct {
	bin, archive string
	bytes        int64
	verbose      bool
	dir          string
	broker       *proc.Varve
}

const topic = "orders"

func (t *tour) run(ctx context.Context) (err error) {
	if t.bin, err = filepath.Abs(t.bin); err != nil {
		return err
	}
	if t.dir, err = os.MkdirTemp("", "varve-tour-"); err != nil {
		return err
	}
	defer os.RemoveAll(t.dir)
	data := filepath.Join(t.dir, "data")
	if t.archive == "" {
		t.archive = "file://" + filepath.Join(data, "archive")
	}
	t.broker = t.process(data, "archive.url="+t.archive, "archive.max.lag.ms=2000", "log.retention.check.interval.ms=500")
	start := time.Now()
	if err := t.broker.Start(ctx); err != nil {
		return err
	}
	defer func() {
		if !t.broker.Ended() {
			t.broker.Kill()
		}
	}()
	t.say("varve serves at %s, %d ms after its start, an empty directory", t.broker.Listen, time.Since(start).Milliseconds())
	return t.story(ctx)
}

func (t *tour) process(dir string, set ...string) *proc.Varve {
	v := &proc.Varve{Bin: t.bin, Dir: dir}
	for _, s := range set {
		v.Args = append(v.Args, "--set", s)
	}
	if t.verbose {
		v.Log = os.Stderr
	}
	return v
}

func (t *tour) say(format string, args ...any) { fmt.Printf("  "+format+"\n", args...) }

// story is the job, step by step.
func (t *tour) story(ctx context.Context) error {
	c, err := connect(t.broker.Listen)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.create(ctx, topic, 3, map[string]string{"segment.bytes": "4194304", "local.retention.bytes": "4194304"}); err != nil {
		return err
	}
	start := time.Now()
	written, err := c.produce(ctx, topic, t.bytes, "good")
	if err != nil {
		return err
	}
	t.say("produced %d records, %d MiB, acks=all, in %.1f s", written.Records, written.Bytes>>20, time.Since(start).Seconds())

	if err := c.untilEvicted(ctx, topic); err != nil {
		return err
	}
	if err := t.untilArchived(ctx); err != nil {
		return err
	}
	back, err := c.consume(ctx, topic)
	if err != nil {
		return err
	}
	if err := written.Same(back); err != nil {
		return fmt.Errorf("read back from the archive: %w", err)
	}
	t.say("everything is archived, the older segments are gone from the broker, and all is read back identical (%s)", back.Sum())

	time.Sleep(50 * time.Millisecond)
	moment := time.Now()
	time.Sleep(50 * time.Millisecond)
	bad, err := c.produce(ctx, topic, 1<<20, "bad deploy")
	if err != nil {
		return err
	}
	if err := t.untilArchivedThrough(ctx, time.Now()); err != nil {
		return err
	}
	t.say("at %s a bad deploy begins and writes %d more records", moment.UTC().Format(time.RFC3339Nano), bad.Records)
	if err := t.restoreInto(ctx, c, moment, written); err != nil {
		return err
	}
	return t.restoreFresh(ctx, moment, written)
}

// restoreInto attaches the topic as it was under a new name, in the running cluster.
func (t *tour) restoreInto(ctx context.Context, c *client, moment time.Time, want *digest.Digest) error {
	start := time.Now()
	if err := t.varve(ctx, "restore", "--repo", t.archive, "--type", "time", "--target", moment.UTC().Format(time.RFC3339Nano), "--topic", topic, "--into", t.broker.Listen, "--to-suffix", ".restored"); err != nil {
		return err
	}
	took := time.Since(start)
	got, err := c.consume(ctx, topic+".restored")
	if err != nil {
		return err
	}
	if err := want.Same(got); err != nil {
		return fmt.Errorf("the restored topic: %w", err)
	}
	t.say("%s.restored is the topic as it was: restored in %d ms, read and compared", topic, took.Milliseconds())
	return nil
}

// restoreFresh makes a new cluster that has the topic as it was, and stops the old one first: only its archive is needed.
func (t *tour) restoreFresh(ctx context.Context, moment time.Time, want *digest.Digest) error {
	if err := t.broker.Stop(); err != nil {
		return err
	}
	dir := filepath.Join(t.dir, "restored")
	if err := t.varve(ctx, "restore", "--repo", t.archive, "--type", "time", "--target", moment.UTC().Format(time.RFC3339Nano), "--topic", topic, "--data-dir", dir); err != nil {
		return err
	}
	fresh := t.process(dir)
	if err := fresh.Start(ctx); err != nil {
		return err
	}
	defer func() {
		if !fresh.Ended() {
			fresh.Kill()
		}
	}()
	c, err := connect(fresh.Listen)
	if err != nil {
		return err
	}
	defer c.close()
	got, err := c.consume(ctx, topic)
	if err != nil {
		return err
	}
	if err := want.Same(got); err != nil {
		return fmt.Errorf("the topic in the new cluster: %w", err)
	}
	t.say("a new cluster, made from the archive alone, has it too; the broker's log: %s", filepath.Base(dir))
	if err := t.varve(ctx, "archive", "verify", "--repo", t.archive); err != nil {
		return err
	}
	t.say("archive verify finds nothing wrong")
	return fresh.Stop()
}
