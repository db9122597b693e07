package recovery

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// smallMax bounds documents that are read whole.
const smallMax = 8 << 20

// Opener opens the bucket of a URL, with what repetition and budgets the caller wants. It need not make a request.
type Opener func(ctx context.Context, url string) (objstore.Bucket, error)

// Source is an archive to restore from, with the other archives that its manifests refer to. Safe for concurrent use.
type Source struct {
	URL      string
	Bucket   objstore.Bucket
	Reader   *tier.Reader
	Attached map[string]string // archives that it refers to: URL by id

	open   Opener
	damage []Damage // records of Attached that cannot be read

	mu      sync.Mutex
	buckets map[string]objstore.Bucket // guarded by mu; by archive id
}

// OpenSource opens the archive at a URL. ErrEmpty, ErrNotArchive, tier.ErrNewerFormat say that there is none that can be
// restored; other errors are the store's.
func OpenSource(ctx context.Context, url string, open Opener) (*Source, error) {
	b, err := open(ctx, url)
	if err != nil {
		return nil, err
	}
	s := &Source{URL: url, Bucket: b, open: open}
	return s, s.load(ctx)
}

// load reads what the bucket says of itself.
func (s *Source) load(ctx context.Context) (err error) {
	s.Attached, s.buckets = map[string]string{}, map[string]objstore.Bucket{}
	if s.Reader, err = tier.OpenBucket(ctx, s.Bucket, tier.ReaderOptions{Foreign: s.foreign}); err != nil {
		return notArchive(ctx, s.Bucket, err)
	}
	for i, err := range s.Bucket.List(ctx, manifest.AttachedPrefix(s.Reader.Info().Cluster), "") {
		if err != nil {
			return fmt.Errorf("list attached archives: %w", err)
		}
		a, err := readAttached(ctx, s.Bucket, i.Key)
		var c *manifest.CorruptError
		switch {
		case errors.As(err, &c):
			s.damage = append(s.damage, Damage{i.Key, err.Error()})
			continue
		case err != nil:
			return err
		}
		s.Attached[a.Archive] = a.URL
	}
	return nil
}

// RootError: there is an archive, but what it begins with is damaged or missing, so that nothing of it can be reached.
type RootError struct{ Finding Finding }

func (e *RootError) Error() string {
	return fmt.Sprintf("%s is %s: %s", e.Finding.Object, e.Finding.Kind, e.Finding.What)
}

// Report is what a verification of such an archive finds.
func (e *RootError) Report() *Report { return &Report{Findings: []Finding{e.Finding}} }

// notArchive tells an empty bucket from one that holds something else, and both from an archive that has lost its root.
func notArchive(ctx context.Context, b objstore.Bucket, cause error) error {
	var c *manifest.CorruptError
	switch {
	case errors.As(cause, &c):
		return &RootError{Finding{Damaged, c.Object, fmt.Sprintf("byte %d", c.Offset), c.Err.Error()}}
	case errors.Is(cause, tier.ErrNotSealed):
		return &RootError{Finding{Absent, manifest.IncarnationPrefix, "", cause.Error()}}
	case !errors.Is(cause, tier.ErrNotOurs):
		return cause
	}
	for i, err := range b.List(ctx, manifest.IncarnationPrefix, "") {
		if err != nil {
			return fmt.Errorf("list incarnations: %w", err)
		}
		if _, _, ok := manifest.ParseIncarnationKey(i.Key); ok {
			return &RootError{Finding{Absent, manifest.ArchiveKey, "", fmt.Sprintf("the bucket holds an archive's %s without it", i.Key)}}
		}
	}
	for i, err := range b.List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("list the bucket: %w", err)
		}
		return fmt.Errorf("%w: it holds other objects, such as %q; check the URL and its prefix", ErrNotArchive, i.Key)
	}
	return fmt.Errorf("%w; check the URL and its prefix, or wait until the cluster has archived something", ErrEmpty)
}

func readAttached(ctx context.Context, b objstore.Bucket, key string) (manifest.Attached, error) {
	body, _, err := objstore.ReadAll(ctx, b, key, smallMax)
	if err != nil {
		return manifest.Attached{}, fmt.Errorf("read attached archive: %w", err)
	}
	a, err := manifest.DecodeAttached(body)
	if err == nil && a.Key() != key {
		err = &manifest.CorruptError{Err: fmt.Errorf("it is %s", a.Key())}
	}
	return a, manifest.InObject(err, key, 0)
}

// ID is the archive's id.
func (s *Source) ID() string { return s.Reader.Info().ID }

// foreign opens another archive that this one refers to.
func (s *Source) foreign(archive string) (objstore.Bucket, error) {
	s.mu.Lock()
	b, url := s.buckets[archive], s.Attached[archive]
	s.mu.Unlock()
	if b != nil {
		return b, nil
	}
	if url == "" {
		return nil, fmt.Errorf("archive %s refers to objects of archive %s, and has no record of where that is", s.ID(), archive)
	}
	b, err := s.open(context.Background(), url)
	if err != nil {
		return nil, fmt.Errorf("open attached archive %s: %w", archive, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[archive] = b
	return b, nil
}

// bucketOf is the bucket that holds an entry's object.
func (s *Source) bucketOf(archive string) (objstore.Bucket, error) {
	if archive == "" || archive == s.ID() {
		return s.Bucket, nil
	}
	return s.foreign(archive)
}
