package tier

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/varvelog/varve/cache"
	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/record"
)

// ReaderOptions: zero values are defaults.
type ReaderOptions struct {
	Cache       *cache.Cache // nil: chunks are read each time
	FooterBytes int64        // footers and groups kept in memory; default 32 MiB
	// Foreign and Lease are as in Options, for entries that refer to other archives.
	Foreign func(archive string) (objstore.Bucket, error)
	Lease   func(archive string) *Lease
}

// Reader reads an archive from its bucket alone (PROTOCOLS 2.1), without a metadata store. It takes no lease: whoever
// relies on what it lists while the archive's owner lives creates one first. Safe for concurrent use.
type Reader struct {
	objects *objects
	info    manifest.ArchiveInfo
	inc     uint32
}

// OpenBucket reads what archive the bucket holds and its highest sealed incarnation. ErrNotOurs: it holds none.
func OpenBucket(ctx context.Context, b objstore.Bucket, o ReaderOptions) (*Reader, error) {
	info, err := readArchiveInfo(ctx, b)
	if errors.Is(err, objstore.ErrNotFound) {
		return nil, fmt.Errorf("%w: it has no %s; check the URL and its prefix", ErrNotOurs, archiveKey)
	}
	if err != nil {
		return nil, err
	}
	sealed, _, err := incarnations(ctx, b)
	if err != nil {
		return nil, err
	}
	if sealed == 0 {
		return nil, fmt.Errorf("%s: %w: it was never opened to the end, or an object is lost", info.ID, ErrNotSealed)
	}
	opts := Options{FooterBytes: o.FooterBytes, Foreign: o.Foreign, Lease: o.Lease}
	opts.fill()
	r := &Reader{info: info, inc: sealed}
	r.objects = newObjects(b, info.ID, o.Cache, &opts, newMetrics(nil, nil, nil, nil))
	return r, nil
}

// Info is archive.json. Incarnation is the highest sealed one when the bucket was opened.
func (r *Reader) Info() manifest.ArchiveInfo { return r.info }
func (r *Reader) Incarnation() uint32        { return r.inc }

// Topic is all that the bucket says of a topic's history, oldest record first.
type Topic struct {
	ID      manifest.TopicID
	Records []manifest.TopicRecord
}

// Last is the newest record. Its Event tells whether the topic is deleted.
func (t Topic) Last() manifest.TopicRecord { return t.Records[len(t.Records)-1] }

// Topics yields the topics that have a record, deleted ones too, by id. A damaged record is yielded as a *CorruptError and
// the walk goes on.
func (r *Reader) Topics(ctx context.Context) iter.Seq2[Topic, error] {
	return func(yield func(Topic, error) bool) {
		for id, err := range r.topicIDs(ctx) {
			t := Topic{ID: id}
			if err == nil {
				err = r.records(ctx, &t)
			}
			if err == nil && len(t.Records) == 0 {
				continue
			}
			if !yield(t, err) {
				return
			}
			var c *CorruptError
			if err != nil && !errors.As(err, &c) {
				return
			}
		}
	}
}

func (r *Reader) records(ctx context.Context, t *Topic) error {
	for i, err := range r.objects.bucket.List(ctx, manifest.TopicRecordPrefix(t.ID), "") {
		if err != nil {
			return fmt.Errorf("list records of topic %v: %w", t.ID, err)
		}
		rec, err := r.objects.topicRecord(ctx, i.Key)
		if errors.Is(err, objstore.ErrNotFound) {
			continue // collected meanwhile
		}
		if err != nil {
			return err
		}
		t.Records = append(t.Records, *rec)
	}
	return nil
}

// topicIDs steps from topic to topic with one LIST each, whatever lies below them.
func (r *Reader) topicIDs(ctx context.Context) iter.Seq2[manifest.TopicID, error] {
	return func(yield func(manifest.TopicID, error) bool) {
		after := ""
		for {
			key, err := r.firstAfter(ctx, manifest.TopicsPrefix, after)
			if err != nil {
				yield(manifest.TopicID{}, err)
				return
			}
			if key == "" {
				return
			}
			id, ok := topicOf(key)
			if !ok {
				after = key // not ours; the next one
				continue
			}
			if !yield(id, nil) {
				return
			}
			after = behind(manifest.TopicPrefix(id))
		}
	}
}

// behind sorts after everything below the folder and before what follows it.
func behind(folder string) string { return folder[:len(folder)-1] + "0" }

func topicOf(key string) (manifest.TopicID, bool) {
	if p, _, ok := manifest.ParsePartitionKey(key); ok {
		return p.Topic, true
	}
	id, _, ok := manifest.ParseTopicRecordKey(key)
	return id, ok
}

func (r *Reader) firstAfter(ctx context.Context, prefix, after string) (string, error) {
	for i, err := range r.objects.bucket.List(ctx, prefix, after) {
		if err != nil {
			return "", fmt.Errorf("list %s: %w", prefix, err)
		}
		return i.Key, nil
	}
	return "", nil
}

// Partitions lists the partitions of a topic that have anything in the bucket, ascending.
func (r *Reader) Partitions(ctx context.Context, id manifest.TopicID) ([]manifest.PartitionID, error) {
	var list []manifest.PartitionID
	after := ""
	for {
		key, err := r.firstAfter(ctx, manifest.TopicPrefix(id), after)
		if err != nil || key == "" {
			return list, err
		}
		p, _, ok := manifest.ParsePartitionKey(key)
		if !ok {
			after = key
			continue
		}
		list = append(list, p)
		after = behind(manifest.PartitionPrefix(p))
	}
}

// Tip is the manifest that a reader of the bucket alone takes: of the sealed incarnation the one with the last key. It may
// be uncommitted: it descends from everything committed before its epoch. Nil: the partition has none. The owner may
// trim the manifest between the LIST and the GET; then the tip is looked for again.
func (r *Reader) Tip(ctx context.Context, p manifest.PartitionID) (*manifest.Manifest, error) {
	for range 5 {
		last := ""
		for i, err := range r.objects.bucket.List(ctx, manifest.ManifestIncarnationPrefix(p, r.inc), "") {
			if err != nil {
				return nil, fmt.Errorf("list manifests of %v: %w", p, err)
			}
			if _, ok := manifest.ParseManifestKey(i.Key); ok {
				last = i.Key
			}
		}
		if last == "" {
			return nil, nil
		}
		m, err := r.Manifest(ctx, last)
		if !errors.Is(err, objstore.ErrNotFound) {
			return m, err
		}
	}
	return nil, fmt.Errorf("the newest manifest of %v is replaced faster than it can be read: %w", p, objstore.ErrUnavailable)
}

// Manifest reads the manifest with the key.
func (r *Reader) Manifest(ctx context.Context, key string) (*manifest.Manifest, error) {
	b, _, err := objstore.ReadAll(ctx, r.objects.bucket, key, manifestMax)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	m, err := manifest.DecodeManifest(b)
	if err == nil && m.Key() != key {
		err = fmt.Errorf("it is %s", m.Key())
	}
	if err != nil {
		return nil, &CorruptError{Object: key, Chunk: -1, Err: err}
	}
	return m, nil
}

// Entries yields all entries of a manifest, through its groups, in order: live, dead and doomed ones. They are read only.
func (r *Reader) Entries(ctx context.Context, m *manifest.Manifest) iter.Seq2[*manifest.Entry, error] {
	return r.objects.all(ctx, m, -1)
}

// Footer reads the footer of an entry's object and checks it against the entry.
func (r *Reader) Footer(ctx context.Context, e *manifest.Entry) (*manifest.Footer, error) {
	return r.objects.footer(ctx, e)
}

// ReadEntry returns whole batches of one entry from offset off on, of at most max bytes but at least one batch, cut at the
// entry's End. No parts: the entry has nothing at or above off. Release the data.
func (r *Reader) ReadEntry(ctx context.Context, e *manifest.Entry, off int64, max int) (Data, error) {
	d := Data{Base: -1, Next: off}
	if _, err := r.objects.readEntry(ctx, &d, e, off, max); err != nil {
		d.Release()
		return Data{}, err
	}
	if d.size == 0 {
		d.Base, d.Next = e.End, e.End
	}
	return d, nil
}

// Read returns batches of a manifest's live entries as Partition.Read does.
func (r *Reader) Read(ctx context.Context, m *manifest.Manifest, off int64, max int) (Data, error) {
	return r.objects.read(ctx, m, off, max)
}

// Batches yields the batches of an entry from the one that holds off on, the last one cut at the entry's End. A batch is
// valid until the next one is asked for.
func (r *Reader) Batches(ctx context.Context, e *manifest.Entry, off int64) iter.Seq2[record.Batch, error] {
	return func(yield func(record.Batch, error) bool) {
		for off < e.End {
			d, err := r.ReadEntry(ctx, e, off, batchesRead)
			if err != nil {
				yield(nil, err)
				return
			}
			stop := !yieldBatches(d, e, yield)
			off = d.Next
			d.Release()
			if stop {
				return
			}
		}
	}
}

const batchesRead = 4 << 20

func yieldBatches(d Data, e *manifest.Entry, yield func(record.Batch, error) bool) bool {
	for _, part := range d.Parts {
		for len(part) > 0 {
			b, rest, err := nextBatch(part)
			if err != nil {
				yield(nil, &CorruptError{Archive: e.Archive, Object: e.Object, Chunk: -1, Err: err})
				return false
			}
			if !yield(b, nil) {
				return false
			}
			part = rest
		}
	}
	return true
}

// StartState is where an empty local log begins whose past is in the archive: what localseg.Log.StartAt wants.
type StartState struct {
	LogStart   int64
	Through    int64
	Epochs     []record.Epoch
	Producers  []byte // snapshot at Through, nil if nothing is archived
	LastAppend int64  // ms
}

// StartState reads the committed state of a partition, for a new follower or after a *DivergedError.
func (a *Archive) StartState(ctx context.Context, id manifest.PartitionID) (StartState, error) {
	ptr, err := a.pointers.Load(ctx, id)
	if err != nil {
		return StartState{}, fmt.Errorf("load pointer of %v: %w", id, err)
	}
	m, err := a.objects.manifestOf(ctx, a.o.Cluster, id, ptr)
	if err != nil {
		return StartState{}, err
	}
	return a.objects.startState(ctx, m)
}

func (o *objects) startState(ctx context.Context, m *manifest.Manifest) (StartState, error) {
	s := StartState{LogStart: m.LogStart, Through: m.Through, Epochs: m.Epochs, LastAppend: m.ThroughTime}
	last, err := o.newest(ctx, m)
	if err != nil || last == nil {
		return s, err
	}
	f, err := o.footer(ctx, last)
	if err != nil {
		return s, err
	}
	s.Producers = f.Producers
	return s, nil
}

// newest is the last entry whose object has to be there, nil if there is none: the last live one, where a deletion of the topic or retention
// has not reached that. The log of an undeleted topic starts from the archive before its leader revives the entries.
func (o *objects) newest(ctx context.Context, m *manifest.Manifest) (*manifest.Entry, error) {
	last := func(list []manifest.Entry) *manifest.Entry {
		for i := range slices.Backward(list) {
			if e := &list[i]; e.State == manifest.Live || e.State == manifest.Dead && e.Reason != manifest.Superseded {
				return e
			}
		}
		return nil
	}
	if e := last(m.Entries); e != nil {
		return e, nil
	}
	for i := range slices.Backward(m.Groups) {
		if g := &m.Groups[i]; g.Doomed < g.Count {
			list, err := o.group(ctx, g)
			if err != nil {
				return nil, err
			}
			if e := last(list); e != nil {
				return e, nil
			}
		}
	}
	return nil, nil
}
