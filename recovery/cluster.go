package recovery

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// ClusterRestore makes a fresh data directory of one broker that has a cluster as it was. The new cluster has its own id
// and archive, and reads the source's objects under a lease that it has to renew. Zero fields have the defaults named.
type ClusterRestore struct {
	Source  string // URL of the archive
	Request Request
	Dir     string // absolute; empty, or not there, or left by an interrupted run of the same
	Archive string // URL of the new archive; empty: file://Dir/ArchiveDir

	ArchiveDir string // name below Dir, default archive
	NodeID     int32  // the broker that will lead everything, default 1
	LeaseTTL   time.Duration

	Open Opener
	// OpenMetadata opens the metadata store below Dir; wipe removes it. Close ends it.
	OpenMetadata func(ctx context.Context, dir string) (kv meta.KV, close func() error, err error)
	WipeMetadata func(dir string) error

	Planned  func(*Plan)                             // called before anything is made
	Progress func(what string, done, total int)      // called now and then, from one goroutine at a time or several
	Logger   *slog.Logger                            // default: discards
	mutate   func(b objstore.Bucket) objstore.Bucket // tests
}

// Result is what a restore has made.
type Result struct {
	Plan     *Plan           `json:"plan"`
	Cluster  string          `json:"cluster,omitempty"`  // id of the new one
	Dir      string          `json:"data_dir,omitempty"` //
	Archive  string          `json:"archive,omitempty"`  // URL of the new one
	LeaseTTL string          `json:"lease_ttl,omitempty"`
	Topics   []RestoredTopic `json:"topics"`

	Groups         []string `json:"groups,omitempty"`          // consumer groups whose committed offsets are back
	GroupsUnlisted bool     `json:"groups_unlisted,omitempty"` // there are too many to be listed
}

// RestoredTopic is one topic of a result.
type RestoredTopic struct {
	Name    string           `json:"name"`
	ID      manifest.TopicID `json:"id"`
	Ends    []int64          `json:"ends"`              // next offset of each partition
	Aborted int              `json:"aborted,omitempty"` // transactions that were open at the cut
	Error   string           `json:"error,omitempty"`
	Done    bool             `json:"done"`
}

func (r *ClusterRestore) fill() error {
	if r.ArchiveDir == "" {
		r.ArchiveDir = "archive"
	}
	if r.NodeID == 0 {
		r.NodeID = 1
	}
	if r.LeaseTTL <= 0 {
		r.LeaseTTL = DefaultLeaseTTL
	}
	if r.Logger == nil {
		r.Logger = slog.New(slog.DiscardHandler)
	}
	if r.Progress == nil {
		r.Progress = func(string, int, int) {}
	}
	if r.Planned == nil {
		r.Planned = func(*Plan) {}
	}
	if r.Archive == "" {
		r.Archive = (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Join(r.Dir, r.ArchiveDir))}).String()
	}
	if u, err := url.Parse(r.Source); err == nil && u.Scheme == "file" && overlaps(filepath.FromSlash(u.Path), r.Dir) {
		return fmt.Errorf("%w: the archive %s and the data directory %s lie in each other", ErrRequest, r.Source, r.Dir)
	}
	if r.Archive == r.Source {
		return fmt.Errorf("%w: the new cluster needs an archive of its own, not %s", ErrRequest, r.Source)
	}
	return nil
}

// Run restores. Everything it makes is its own until it says so in Dir/restore.json, so after an error, or a crash, the
// same call starts over from nothing, with the same outcome:
//
//  1. take the directory, look at what is there: something else is ErrInUse, a finished restore ErrDone;
//  2. take leases in the source, and in the archives that it refers to; only then read them, and plan;
//  3. write restore.json: running, with the new cluster's id, its archive, and the leases;
//  4. the new archive: archive.json, what it refers to, each partition's first manifest;
//  5. the metadata: topics with pointers and leader epochs, attached archives, producer ids;
//  6. read it back: each manifest, its first and last batch, the next offset;
//  7. write restore.json: complete.
//
// An error before 3 leaves nothing behind.
func (r *ClusterRestore) Run(ctx context.Context) (*Result, error) {
	if err := r.fill(); err != nil {
		return nil, err
	}
	lock, undo, err := claimDir(r.Dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	st, err := r.begin(ctx)
	if err != nil {
		undo()
		return nil, err
	}
	src, plan, err := r.plan(ctx, st)
	if err != nil {
		undo()
		return nil, errors.Join(err, dropLeases(ctx, r.Open, st.Leases))
	}
	r.Planned(plan)
	if err := st.write(r.Dir); err != nil {
		return nil, err
	}
	res, err := r.execute(ctx, src, plan, st)
	if err != nil {
		return nil, fmt.Errorf("%w; nothing was restored yet: run the same command again to start over, or remove %s", err, r.Dir)
	}
	st.State = stateComplete
	return res, st.write(r.Dir)
}

// begin looks at the directory and wipes what an interrupted run has left.
func (r *ClusterRestore) begin(ctx context.Context) (*dirState, error) {
	id, err := newClusterID()
	if err != nil {
		return nil, err
	}
	next := &dirState{State: stateRunning, Cluster: id, Archive: r.Archive, Source: r.Source,
		Digest: digest([]any{r.Source, r.Request, r.Archive, r.NodeID})}
	old, err := checkDir(r.Dir)
	switch {
	case err != nil:
		return nil, err
	case old == nil:
		return next, nil
	case old.State == stateComplete:
		return nil, fmt.Errorf("%w: %s has cluster %s from %s; start it with varve dev --data-dir %s", ErrDone, r.Dir, old.Cluster, old.Source, r.Dir)
	case old.Digest != next.Digest:
		return nil, fmt.Errorf("%w: %s has an unfinished restore of another request: repeat that one, or remove the directory", ErrInUse, r.Dir)
	}
	return next, r.wipe(ctx, old)
}

func newClusterID() (string, error) {
	for {
		var b [16]byte
		if _, err := rand.Read(b[:]); err != nil {
			return "", err
		}
		if s := base64.RawURLEncoding.EncodeToString(b[:]); s[0] != '-' {
			return s, nil
		}
	}
}

// wipe removes what an interrupted run has made, restore.json last: it can be interrupted too.
func (r *ClusterRestore) wipe(ctx context.Context, old *dirState) error {
	if err := r.WipeMetadata(r.Dir); err != nil {
		return fmt.Errorf("remove the unfinished metadata: %w", err)
	}
	b, err := r.openBucket(ctx, old.Archive)
	if err != nil {
		return err
	}
	if err := wipeArchive(ctx, b, old.Cluster); err != nil {
		return fmt.Errorf("remove the unfinished archive %s: %w", old.Archive, err)
	}
	if err := dropLeases(ctx, r.Open, old.Leases); err != nil {
		r.Logger.Warn("a lease of the interrupted restore stays until it expires", "err", err)
	}
	return os.Remove(filepath.Join(r.Dir, stateFile))
}

// wipeArchive deletes an archive that an interrupted restore began; archive.json goes last, since it says whose it is.
func wipeArchive(ctx context.Context, b objstore.Bucket, cluster string) error {
	body, _, err := objstore.ReadAll(ctx, b, manifest.ArchiveKey, smallMax)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := manifest.DecodeArchiveInfo(body)
	if err != nil {
		return manifest.InObject(err, manifest.ArchiveKey, 0)
	}
	if info.Cluster != cluster {
		return fmt.Errorf("%w: it belongs to cluster %s", ErrInUse, info.Cluster)
	}
	var keys []string
	flush := func() error {
		if len(keys) == 0 {
			return nil
		}
		err := b.Delete(ctx, keys...)
		keys = keys[:0]
		return err
	}
	for i, err := range b.List(ctx, "", "") {
		if err != nil {
			return err
		}
		if i.Key == manifest.ArchiveKey {
			continue
		}
		if keys = append(keys, i.Key); len(keys) == 1000 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return b.Delete(ctx, manifest.ArchiveKey)
}

func (r *ClusterRestore) openBucket(ctx context.Context, url string) (objstore.Bucket, error) {
	b, err := r.Open(ctx, url)
	if err == nil && r.mutate != nil {
		b = r.mutate(b)
	}
	return b, err
}

// plan takes the leases and plans under them.
func (r *ClusterRestore) plan(ctx context.Context, st *dirState) (*Source, *Plan, error) {
	src, err := OpenSource(ctx, r.Source, r.Open)
	if err != nil {
		return nil, nil, err
	}
	if err := leaseAll(ctx, src, st, r.LeaseTTL); err != nil {
		return nil, nil, err
	}
	inv, err := TakeInventory(ctx, src)
	if err != nil {
		return nil, nil, err
	}
	req := r.Request
	req.Internal = true
	plan, err := Prepare(ctx, src, inv, req)
	return src, plan, err
}

func leaseAll(ctx context.Context, src *Source, st *dirState, ttl time.Duration) error {
	l, err := takeLease(ctx, src.Bucket, src.ID(), src.URL, st.Cluster, ttl)
	if err != nil {
		return err
	}
	st.Leases = append(st.Leases, l)
	for id, url := range src.Attached {
		b, err := src.foreign(id)
		if err != nil {
			return err
		}
		if l, err = takeLease(ctx, b, id, url, st.Cluster, ttl); err != nil {
			return err
		}
		st.Leases = append(st.Leases, l)
	}
	return nil
}

// buildWorkers bounds the partitions that are written at once.
const buildWorkers = 8

func (r *ClusterRestore) execute(ctx context.Context, src *Source, plan *Plan, st *dirState) (*Result, error) {
	bucket, err := r.openBucket(ctx, r.Archive)
	if err != nil {
		return nil, err
	}
	info, inc, err := tier.OpenArchive(ctx, bucket, st.Cluster)
	if err != nil {
		return nil, fmt.Errorf("new archive %s: %w", r.Archive, err)
	}
	for _, l := range st.Leases {
		a := manifest.Attached{Cluster: st.Cluster, Archive: l.Archive, URL: l.URL}
		if err := putDocument(ctx, bucket, a.Key(), a.Encode); err != nil {
			return nil, err
		}
	}
	now, err := storeNow(ctx, bucket)
	if err != nil {
		return nil, err
	}
	b := &builder{src: src, bucket: bucket, archive: info.ID, cluster: st.Cluster, incarnation: inc, now: now}
	made, err := r.buildAll(ctx, b, plan)
	if err != nil {
		return nil, err
	}
	res := &Result{Plan: plan, Cluster: st.Cluster, Dir: r.Dir, Archive: r.Archive, LeaseTTL: r.LeaseTTL.String()}
	if err := r.commit(ctx, bucket, plan, st, made, res); err != nil {
		return nil, err
	}
	if err := r.check(ctx, bucket, plan, made); err != nil {
		return nil, err
	}
	return res, r.listGroups(ctx, bucket, plan, made, res)
}

func putDocument(ctx context.Context, b objstore.Bucket, key string, encode func() ([]byte, error)) error {
	body, err := encode()
	if err != nil {
		return err
	}
	if _, err := b.Put(ctx, key, objstore.BytesBody(body), objstore.Cond{IfNoneMatch: true}); err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// buildAll writes the first manifest of every partition: made[topic][partition].
func (r *ClusterRestore) buildAll(ctx context.Context, b *builder, plan *Plan) ([][]built, error) {
	made := make([][]built, len(plan.Topics))
	total := 0
	for i := range plan.Topics {
		made[i] = make([]built, len(plan.Topics[i].Partitions))
		total += len(made[i])
	}
	var done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(buildWorkers)
	for i := range plan.Topics {
		t := &plan.Topics[i]
		for n := range t.Partitions {
			g.Go(func() error {
				id := manifest.PartitionID{Topic: t.ID, Partition: int32(n)}
				var err error
				if made[i][n], err = b.build(ctx, id, t.Name, &t.Partitions[n]); err != nil {
					return fmt.Errorf("restore %s:%d: %w", t.Name, n, err)
				}
				r.Progress("manifests", int(done.Add(1)), total)
				return nil
			})
		}
	}
	return made, g.Wait()
}
