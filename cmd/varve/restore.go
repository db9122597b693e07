package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/etcdkv"
	"github.com/varvelog/varve/recovery"
)

// restoreFlags are the flags of varve restore.
type restoreFlags struct {
	repo, kind, target, tz, cluster, format string
	topics, maps                            []string
	suffix                                  string
	into, dataDir, archiveURL               string
	replication                             int16
	dryRun                                  bool
	consistency                             string
}

func restoreCommand() *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use:   "restore",
		Short: "Bring topics, or a whole cluster, back as they were at a time or offset",
		Long: `Restore brings topics back from an archive: into a running cluster under new names (--into), or a whole cluster
into a fresh data directory for varve dev (--data-dir). Offsets, timestamps, keys, headers and batches are the originals.
Nothing is copied that need not be: what comes back refers to the archive's objects, which the archive keeps as long as a
lease is renewed. Each partition is cut by itself, by the time at which its leader appended.

The plan is printed first, to stderr; --dry-run prints only that. Exit codes: 0 restored, 1 failed, 2 usage, 3 the target
cannot be restored, 5 some topics failed (run the same command again).`,
		Args: exactly(0, "no argument"),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.repo, "repo", "", "URL of the archive: s3://bucket/prefix?..., file:///dir")
	fl.StringVar(&f.kind, "type", "", "latest, time or offset")
	fl.StringVar(&f.target, "target", "", "the time, RFC 3339 with zone; or TOPIC:PARTITION=OFFSET,... (OFFSET is the first one not restored)")
	fl.StringVar(&f.tz, "tz", "", "zone of a --target time without one, such as Europe/Berlin")
	fl.StringArrayVar(&f.topics, "topic", nil, "topic to restore, or a glob if it has * ? or [; again for each (default: all)")
	fl.StringVar(&f.cluster, "cluster", "", "id that the archive's cluster must have")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the plan and change nothing")
	fl.StringVar(&f.format, "output", "text", "text, or json on stdout")
	fl.StringVar(&f.into, "into", "", "HOST:PORT of a running cluster to restore into")
	fl.StringArrayVar(&f.maps, "map", nil, "old=new name, with --into; again for each")
	fl.StringVar(&f.suffix, "to-suffix", ".restored", "added to the names that --map does not have, with --into")
	fl.Int16Var(&f.replication, "replication-factor", -1, "replicas of what is restored, with --into (default: as the topic has in that cluster, else its default.replication.factor)")
	fl.StringVar(&f.dataDir, "data-dir", "", "directory to make for varve dev")
	fl.StringVar(&f.archiveURL, "archive-url", "", "archive of the new cluster, with --data-dir (default: a directory in it)")
	fl.StringVar(&f.consistency, "consistency", "partition", "partition: each is cut by itself; there is no other mode yet")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asJSON, err := wantsJSON(f.format)
		if err != nil {
			return err
		}
		if err := f.check(cmd); err != nil {
			return err
		}
		return f.run(cmd, asJSON)
	}
	return cmd
}

// check refuses what can be refused without reading anything.
func (f *restoreFlags) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	switch {
	case f.into != "" && f.dataDir != "":
		return usagef("--into and --data-dir are two destinations; give one")
	case f.into == "" && f.dataDir == "" && !f.dryRun:
		return usagef("no destination: give --into HOST:PORT or --data-dir DIR, or --dry-run to see the plan")
	case f.dataDir != "" && (changed("map") || changed("to-suffix")):
		return usagef("--map and --to-suffix go with --into: a cluster in a new directory keeps its names")
	case changed("replication-factor") && (f.into == "" || f.replication < 1):
		return usagef("--replication-factor is at least 1, and goes with --into")
	case f.archiveURL != "" && f.dataDir == "":
		return usagef("--archive-url goes with --data-dir")
	case f.consistency != "partition":
		return usagef("--consistency %q: only partition is there yet: each partition is cut by itself", f.consistency)
	}
	return nil
}

func (f *restoreFlags) run(cmd *cobra.Command, asJSON bool) error {
	ctx := cmd.Context()
	repo, err := repoURL("--repo", f.repo)
	if err != nil {
		return err
	}
	req, err := f.request(time.Now())
	if err != nil {
		return f.withWindow(ctx, repo, err)
	}
	out := printer{cmd.ErrOrStderr(), cmd.OutOrStdout(), asJSON}
	switch {
	case f.dryRun:
		return notRestorable(f.plan(ctx, repo, req, out))
	case f.dataDir != "":
		return notRestorable(f.intoDirectory(ctx, repo, req, out))
	}
	return notRestorable(f.intoCluster(ctx, repo, req, out))
}

// request reads the target. A time in the future is found by its window, which is named then.
func (f *restoreFlags) request(now time.Time) (recovery.Request, error) {
	req := recovery.Request{Topics: f.topics, Cluster: f.cluster, Internal: f.into == ""}
	if f.into != "" {
		m, err := keyValues("--map", f.maps)
		if err != nil {
			return req, err
		}
		req.Rename = recovery.Rename{Map: map[string]string{}, Suffix: f.suffix}
		for old, name := range m {
			req.Rename.Map[old] = *name
		}
	}
	switch {
	case f.kind == string(recovery.Latest) && f.target == "":
		req.Target = recovery.Target{Kind: recovery.Latest}
	case f.kind == string(recovery.Latest):
		return req, usagef("--type latest takes no --target")
	case f.kind == string(recovery.AtTime) && f.target != "":
		t, err := parseTime("--target", f.target, f.tz)
		if err != nil {
			return req, err
		}
		req.Target = recovery.Target{Kind: recovery.AtTime, Time: t.UnixMilli()}
	case f.kind == string(recovery.Offsets) && f.target != "":
		list, err := recovery.ParseOffsets(f.target)
		if err != nil {
			return req, &exitError{exitUsage, err}
		}
		req.Target = recovery.Target{Kind: recovery.Offsets, Offsets: list}
	case f.kind == string(recovery.AtTime), f.kind == string(recovery.Offsets):
		return req, usagef("--type %s needs --target", f.kind)
	case f.kind == "":
		return req, usagef("--type is needed: latest, time or offset")
	default:
		return req, usagef("--type %q is none of latest, time, offset", f.kind)
	}
	return req, nil
}

// withWindow adds to an error about a time what times there are, if the archive can be read.
func (f *restoreFlags) withWindow(ctx context.Context, repo string, err error) error {
	if f.kind != string(recovery.AtTime) || f.target == "" {
		return err
	}
	s, oerr := recovery.OpenSource(ctx, repo, openRepository)
	if oerr != nil {
		return err
	}
	inv, oerr := recovery.TakeInventory(ctx, s)
	if oerr != nil {
		return err
	}
	return usagef("%v; the restorable window is %s", err, windowText(inv.Describe(nil).Window))
}

// plan only says what would be done.
func (f *restoreFlags) plan(ctx context.Context, repo string, req recovery.Request, out printer) error {
	p, err := prepare(ctx, repo, req)
	if err != nil {
		return err
	}
	out.plan(p)
	if out.json {
		return printJSON(out.stdout, p)
	}
	return nil
}

// prepare makes the plan of a request from what the archive holds now.
func prepare(ctx context.Context, repo string, req recovery.Request) (*recovery.Plan, error) {
	s, err := recovery.OpenSource(ctx, repo, openRepository)
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", repo, err)
	}
	inv, err := recovery.TakeInventory(ctx, s)
	if err != nil {
		return nil, err
	}
	return recovery.Prepare(ctx, s, inv, req)
}

func (f *restoreFlags) intoDirectory(ctx context.Context, repo string, req recovery.Request, out printer) error {
	dir, err := filepath.Abs(f.dataDir)
	if err != nil {
		return err
	}
	archive := ""
	if f.archiveURL != "" {
		if archive, err = repoURL("--archive-url", f.archiveURL); err != nil {
			return err
		}
	}
	progress := &progress{w: out.stderr}
	r := recovery.ClusterRestore{
		Source: repo, Request: req, Dir: dir, Archive: archive, ArchiveDir: archiveDir, NodeID: 1,
		Open: openRepository, OpenMetadata: openEmbedded, WipeMetadata: func(dir string) error { return os.RemoveAll(filepath.Join(dir, etcdDir)) },
		Planned: out.plan, Progress: progress.say, Logger: slog.New(slog.NewTextHandler(out.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	res, err := r.Run(ctx)
	if err != nil {
		return err
	}
	return out.result(res, fmt.Sprintf("cluster %s is in %s; start it with: varve dev --data-dir %s\nit reads %s under a lease of %s that it renews while it runs",
		res.Cluster, dir, dir, repo, res.LeaseTTL))
}

// openEmbedded starts the etcd of a data directory as varve dev does.
func openEmbedded(ctx context.Context, dir string) (meta.KV, func() error, error) {
	s, err := etcdkv.Start(ctx, etcdkv.ServerOptions{Dir: filepath.Join(dir, etcdDir), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, err
	}
	return s.KV(), s.Close, nil
}

// printer writes for people to stderr, and documents to stdout.
type printer struct {
	stderr, stdout io.Writer
	json           bool
}

func (p printer) plan(plan *recovery.Plan) { printPlan(p.stderr, plan) }

func (p printer) result(res *recovery.Result, last string) error {
	fmt.Fprintln(p.stderr)
	failed := 0
	for _, t := range res.Topics {
		switch {
		case !t.Done:
			failed++
			fmt.Fprintf(p.stderr, "FAILED %s: %s\n", t.Name, t.Error)
		case t.Aborted > 0:
			fmt.Fprintf(p.stderr, "restored %s; %d transactions that were open at the target are aborted\n", t.Name, t.Aborted)
		default:
			fmt.Fprintf(p.stderr, "restored %s\n", t.Name)
		}
	}
	if n := len(res.Groups); n > 0 {
		const most = 20
		fmt.Fprintf(p.stderr, "consumer groups with their offsets: %s", strings.Join(res.Groups[:min(n, most)], ", "))
		if n > most {
			fmt.Fprintf(p.stderr, " and %d more", n-most)
		}
		fmt.Fprintln(p.stderr)
	}
	if p.json {
		if err := printJSON(p.stdout, res); err != nil {
			return err
		}
	}
	if failed > 0 {
		return &exitError{exitPartial, fmt.Errorf("%d of %d topics were not restored; run the same command again for them", failed, len(res.Topics))}
	}
	fmt.Fprintln(p.stderr, last)
	return nil
}

// progress says how far long work is, every few seconds and at its end.
type progress struct {
	w    io.Writer
	mu   sync.Mutex
	last time.Time
}

func (p *progress) say(what string, done, total int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); done >= total || now.Sub(p.last) > 2*time.Second {
		p.last = now
		fmt.Fprintf(p.w, "%s: %d of %d\n", what, done, total)
	}
}

func printPlan(w io.Writer, p *recovery.Plan) {
	target := string(p.Kind)
	if p.Time != nil {
		target = p.Time.String()
	}
	fmt.Fprintf(w, "restore %s of archive %s, cluster %s, as of %s\n", p.URL, p.Archive, p.Cluster, target)
	fmt.Fprintf(w, "restorable window %s; consistency %s: each partition is cut by itself\n", windowText(p.Window), p.Consistency)
	for _, t := range p.Topics {
		name := t.Source
		if t.Name != t.Source {
			name += " as " + t.Name
		}
		if t.Note != "" {
			name += " (" + t.Note + ")"
		}
		fmt.Fprintf(w, "\n%s: %d partitions%s\n", name, len(t.Partitions), configText(t.Configs))
		const most = 64
		for i := range t.Partitions {
			if i == most {
				fmt.Fprintf(w, "  ... and %d more partitions\n", len(t.Partitions)-most)
				break
			}
			printPartition(w, &t.Partitions[i])
		}
	}
	for _, s := range p.Skipped {
		fmt.Fprintf(w, "\nleft out: %s (%s), %s", s.Topic, s.ID, s.Reason)
	}
	if len(p.Skipped) > 0 {
		fmt.Fprintln(w)
	}
	for _, x := range p.Warnings {
		fmt.Fprintf(w, "warning: %s\n", x)
	}
}

func printPartition(w io.Writer, p *recovery.PartitionPlan) {
	cut := ""
	if p.Cut {
		cut = ", cut inside the last one"
	}
	fmt.Fprintf(w, "  %d: offsets [%d, %d) in %d objects, %s%s\n", p.Partition, p.Start, p.End, p.Segments, size(p.Bytes), cut)
	for _, g := range p.Gaps {
		fmt.Fprintf(w, "     gap [%d, %d): %d offsets do not come back, %s\n", g.From, g.To, g.To-g.From, g.Reason)
	}
}

func configText(c map[string]string) string {
	var list []string
	for k, v := range c {
		list = append(list, k+"="+v)
	}
	if len(list) == 0 {
		return ""
	}
	slices.Sort(list)
	return ", " + strings.Join(list, ", ")
}
