package control

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/varvelog/varve/internal/wallclock"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// Archivist writes every change of a topic's metadata to the bucket, so that the bucket alone tells what existed when, and collects
// deleted topics when their restore window has passed. Each broker runs one; that of the controller works.
type Archivist struct {
	NodeID  int32
	Store   *meta.Store
	Archive *tier.Archive
	Window  func(*meta.Topic) int64 // archive.restore.window.ms of a topic
	Pause   time.Duration           // between rounds of collection
	Wall    wallclock.Clock         // nil: the system's
	Logger  *slog.Logger

	strange map[int32]bool     // brokers with a mark that the last round did not know
	gone    map[int32]*absence // brokers without a registration
}

const (
	retryFirst = 200 * time.Millisecond
	retryMax   = 30 * time.Second
)

// Run follows the image until ctx ends. While the object store is away it tries again with back-off; topics are created and
// altered meanwhile.
func (a *Archivist) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	a.Store.Subscribe(func(old, next *meta.Image) {
		if !sameTopics(old, next) || old.Controller != next.Controller {
			select {
			case changed <- struct{}{}:
			default:
			}
		}
	})
	collect := time.NewTicker(a.Pause)
	defer collect.Stop()
	look := time.NewTicker(goneLook)
	defer look.Stop()
	pause := retryFirst
	for {
		var again <-chan time.Time
		if err := a.record(ctx); err != nil {
			a.Logger.Warn("archive topic records", "err", err, "retry", pause)
			again = time.After(pause)
			pause = min(2*pause, retryMax)
		} else {
			pause = retryFirst
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		case <-collect.C:
			a.collect(ctx)
			a.dropMarks(ctx)
		case <-look.C:
			a.dropGone(ctx)
		}
	}
}

// sameTopics tells whether no topic record differs; pointer commits change partitions, not versions.
func sameTopics(old, next *meta.Image) bool {
	if len(old.TopicsByID) != len(next.TopicsByID) || len(old.Deleted) != len(next.Deleted) {
		return false
	}
	for id, t := range next.TopicsByID {
		if o := old.TopicsByID[id]; o != t && (o == nil || o.Version != t.Version) {
			return false
		}
	}
	return true
}

// record writes what the bucket does not have yet.
func (a *Archivist) record(ctx context.Context) error {
	img := a.Store.Image()
	if img.Controller != a.NodeID {
		return nil
	}
	var errs []error
	for _, topics := range []map[manifest.TopicID]*meta.Topic{img.TopicsByID, img.Deleted} {
		for _, t := range topics {
			if t.Version <= t.Archived || ctx.Err() != nil {
				continue
			}
			if err := a.put(ctx, img, t); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func (a *Archivist) put(ctx context.Context, img *meta.Image, t *meta.Topic) error {
	if err := a.putSkipped(ctx, img, t); err != nil {
		return err
	}
	if err := a.Archive.PutTopic(ctx, TopicRecord(img, t)); err != nil {
		return err
	}
	return a.Store.SetTopicArchived(ctx, t.ID, t.Version)
}

// putSkipped writes one record for all versions but the newest that the bucket does not have: else a topic that was created and altered
// while the store was away would not have existed in between, for a restore. It says that what the newest has was so since the first of
// these changes: partitions that came later are empty then.
func (a *Archivist) putSkipped(ctx context.Context, img *meta.Image, t *meta.Topic) error {
	for n := t.Archived + 1; n < t.Version; n++ {
		r := TopicRecord(img, t)
		r.N, r.Event, r.Time = n, manifest.TopicAltered, t.BehindMs
		switch {
		case t.Archived == 0:
			r.Event, r.Time = manifest.TopicCreated, t.CreatedMs
		case r.Time == 0: // of before that was noted
			r.Time = t.ChangedMs
		}
		// Where one is there already, it was written when it was the newest, and what came then is skipped.
		if err := a.Archive.PutTopic(ctx, r); !errors.Is(err, objstore.ErrExists) {
			return err
		}
	}
	return nil
}

// TopicRecord is a topic as the bucket has it.
func TopicRecord(img *meta.Image, t *meta.Topic) manifest.TopicRecord {
	r := manifest.TopicRecord{
		Cluster: img.Cluster, Incarnation: img.Incarnation, N: t.Version, Event: manifest.TopicAltered, Time: t.ChangedMs,
		ID: t.ID, Name: t.Name, Partitions: int32(len(t.Partitions)), Configs: t.Configs, Internal: t.Internal,
	}
	switch {
	case t.DeletedMs > 0:
		r.Event, r.Time = manifest.TopicDropped, t.DeletedMs
	case t.Version == 1:
		r.Event, r.Time = manifest.TopicCreated, t.CreatedMs
	}
	return r
}

// collect works on deleted topics, and forgets those of which nothing is left.
func (a *Archivist) collect(ctx context.Context) {
	if a.Store.Image().Controller != a.NodeID {
		return
	}
	for id, t := range a.Store.Image().Deleted {
		if t.Version > t.Archived || ctx.Err() != nil {
			continue // the bucket must know of the deletion first
		}
		window, err := a.window(ctx, t)
		done := false
		if err == nil {
			done, err = a.Archive.CollectDeleted(ctx, id, int32(len(t.Partitions)), t.DeletedMs, window)
		}
		if err == nil && done {
			err = a.Store.ForgetTopic(ctx, id)
		}
		if err != nil {
			a.Logger.Warn("collect deleted topic", "topic", t.Name, "id", id.String(), "err", err)
		} else if done {
			a.Logger.Info("deleted topic is collected", "topic", t.Name, "id", id.String())
		}
	}
}

// keepMs is a window that does not end: about a hundred years.
const keepMs = 100 * 365 * 24 * 3_600_000

// window is the topic's restore window, ms. Until it is noted that the topic cannot be undeleted any more nothing of it may be doomed. It
// has passed when the store's clock says so: this broker's, and that of the one that deleted the topic, may be wrong.
func (a *Archivist) window(ctx context.Context, t *meta.Topic) (int64, error) {
	ms := max(a.Window(t), 1)
	if t.Collecting {
		return ms, nil
	}
	if a.Wall.Ms()-t.DeletedMs < ms { // not worth asking yet
		return keepMs, nil
	}
	if over, err := a.Archive.WindowOver(ctx, t.ID, t.DeletedMs, ms); !over || err != nil {
		return keepMs, err
	}
	return ms, a.Store.BeginCollect(ctx, t.ID)
}
