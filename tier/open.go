package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

const archiveKey = manifest.ArchiveKey

// OpenArchive checks that the bucket is an archive of this cluster (format version, id), or makes it one if it is empty,
// with incarnation 1 claimed and sealed. It returns the highest sealed incarnation. Brokers of one cluster may call it at
// the same time. ErrNotOurs, ErrNewerFormat: the message says what was found and what to do.
func OpenArchive(ctx context.Context, b objstore.Bucket, cluster string) (manifest.ArchiveInfo, uint32, error) {
	info, err := readArchiveInfo(ctx, b)
	if errors.Is(err, objstore.ErrNotFound) {
		if err := createArchive(ctx, b, cluster); err != nil {
			return manifest.ArchiveInfo{}, 0, err
		}
		info, err = readArchiveInfo(ctx, b)
	}
	if err != nil {
		return manifest.ArchiveInfo{}, 0, err
	}
	if info.Cluster != cluster {
		return info, 0, fmt.Errorf("%w: it is archive %s of cluster %s, this is cluster %s; use another prefix, or restore from it",
			ErrNotOurs, info.ID, info.Cluster, cluster)
	}
	inc, _, err := incarnations(ctx, b)
	if err != nil || inc > 0 {
		return info, inc, err
	}
	return info, 1, sealFirst(ctx, b, info)
}

func readArchiveInfo(ctx context.Context, b objstore.Bucket) (manifest.ArchiveInfo, error) {
	body, _, err := objstore.ReadAll(ctx, b, archiveKey, smallMax)
	if err != nil {
		return manifest.ArchiveInfo{}, fmt.Errorf("read %s: %w", archiveKey, err)
	}
	info, err := manifest.DecodeArchiveInfo(body)
	if errors.Is(err, manifest.ErrUnsupported) {
		return info, fmt.Errorf("%w: %s: %w; use the varve that wrote it, or a newer one", ErrNewerFormat, archiveKey, err)
	}
	if err != nil {
		return info, fmt.Errorf("%w: %w; use another prefix", ErrNotOurs, manifest.InObject(err, archiveKey, 0))
	}
	return info, nil
}

// createArchive writes archive.json into an empty bucket. Losing the race against another broker is success; so brokers that start at once
// see the probes of others, and what they write once the archive is there.
func createArchive(ctx context.Context, b objstore.Bucket, cluster string) error {
	for i, err := range b.List(ctx, "", "") {
		if err != nil {
			return fmt.Errorf("list the bucket: %w", err)
		}
		if strings.HasPrefix(i.Key, objstore.ProbePrefix) {
			continue
		}
		if i.Key == archiveKey {
			return nil
		}
		// The listing may be older than the archive whose object it has met.
		if _, err := b.Head(ctx, archiveKey); !errors.Is(err, objstore.ErrNotFound) {
			return err
		}
		return fmt.Errorf("%w: it has no %s but holds other objects, such as %q; use an empty prefix", ErrNotOurs, archiveKey, i.Key)
	}
	body, err := manifest.ArchiveInfo{
		ID:      fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()),
		Cluster: cluster,
		Created: time.Now().UTC().Format(time.RFC3339),
	}.Encode()
	if err != nil {
		return err
	}
	_, err = b.Put(ctx, archiveKey, objstore.BytesBody(body), objstore.Cond{IfNoneMatch: true})
	if err != nil && !errors.Is(err, objstore.ErrExists) {
		return fmt.Errorf("create %s: %w", archiveKey, err)
	}
	return nil
}

// sealFirst claims and seals incarnation 1. All brokers of a new cluster write the same bytes, so that it does not matter
// who is first, or whether an answer was lost.
func sealFirst(ctx context.Context, b objstore.Bucket, info manifest.ArchiveInfo) error {
	created, err := time.Parse(time.RFC3339, info.Created)
	if err != nil {
		return fmt.Errorf("%s: created: %w", archiveKey, err)
	}
	claim, err := manifest.Claim{Incarnation: 1, ID: info.ID, Cluster: info.Cluster, Time: created.UnixMilli()}.Encode()
	if err != nil {
		return err
	}
	if err := createOnce(ctx, b, manifest.ClaimKey(1), claim); err != nil {
		return fmt.Errorf("claim incarnation 1: %w", err)
	}
	seal, err := manifest.Seal{Incarnation: 1, ID: info.ID, Cluster: info.Cluster, Time: created.UnixMilli()}.Encode()
	if err != nil {
		return err
	}
	if err := createOnce(ctx, b, manifest.SealKey(1), seal); err != nil {
		return fmt.Errorf("seal incarnation 1: %w", err)
	}
	return nil
}

// errOthersBytes: the key exists with other bytes than ours.
var errOthersBytes = errors.New("exists with other content")

// createOnce creates an object, or finds the very same bytes there. It never overwrites.
func createOnce(ctx context.Context, b objstore.Bucket, key string, body []byte) error {
	_, err := b.Put(ctx, key, objstore.BytesBody(body), objstore.Cond{IfNoneMatch: true})
	if !errors.Is(err, objstore.ErrExists) {
		return err
	}
	got, _, err := objstore.ReadAll(ctx, b, key, int64(len(body))+1)
	switch {
	case errors.Is(err, objstore.ErrTooLarge):
		return fmt.Errorf("%s: %w", key, errOthersBytes)
	case err != nil:
		return fmt.Errorf("read %s: %w", key, err)
	case !bytes.Equal(got, body):
		return fmt.Errorf("%s: %w", key, errOthersBytes)
	}
	return nil
}

// incarnations returns the highest sealed and the highest claimed incarnation, 0 for none.
func incarnations(ctx context.Context, b objstore.Bucket) (sealed, claimed uint32, err error) {
	for i, err := range b.List(ctx, manifest.IncarnationPrefix, "") {
		if err != nil {
			return 0, 0, fmt.Errorf("list incarnations: %w", err)
		}
		inc, seal, ok := manifest.ParseIncarnationKey(i.Key)
		switch {
		case !ok:
		case seal:
			sealed = max(sealed, inc)
		default:
			claimed = max(claimed, inc)
		}
	}
	return sealed, max(claimed, sealed), nil
}
