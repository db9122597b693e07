package recovery

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
)

// documents checks the small objects beside the topics.
func (v *verifier) documents(ctx context.Context) error {
	cluster := v.src.Reader.Info().Cluster
	for _, kind := range []struct {
		prefix string
		key    func(key string, body []byte) (string, error) // where the document says that it belongs
	}{
		{manifest.IncarnationPrefix, incarnationKey},
		{manifest.LeasePrefix, func(_ string, b []byte) (string, error) {
			l, err := manifest.DecodeLease(b)
			return manifest.LeaseKey(l.ID), err
		}},
		{manifest.AttachedPrefix(cluster), func(_ string, b []byte) (string, error) {
			a, err := manifest.DecodeAttached(b)
			return a.Key(), err
		}},
	} {
		for i, err := range v.src.Bucket.List(ctx, kind.prefix, "") {
			if err != nil {
				return fmt.Errorf("list %s: %w", kind.prefix, err)
			}
			if err := v.document(ctx, i.Key, smallMax, kind.key); err != nil {
				return err
			}
		}
	}
	return nil
}

func incarnationKey(key string, b []byte) (string, error) {
	if _, seal, _ := manifest.ParseIncarnationKey(key); seal {
		s, err := manifest.DecodeSeal(b)
		return manifest.SealKey(s.Incarnation), err
	}
	c, err := manifest.DecodeClaim(b)
	return manifest.ClaimKey(c.Incarnation), err
}

// document reads an object whole, decodes it, and compares the key that it says it has.
func (v *verifier) document(ctx context.Context, key string, limit int64, decode func(string, []byte) (string, error)) error {
	if v.known[key] {
		return nil
	}
	b, _, err := objstore.ReadAll(ctx, v.src.Bucket, key, limit)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return nil // gone since it was listed
	case errors.Is(err, objstore.ErrTooLarge):
		v.find(Finding{Damaged, key, "", err.Error()})
		return nil
	case err != nil:
		return fmt.Errorf("read %s: %w", key, err)
	}
	own, err := decode(key, b)
	var c *manifest.CorruptError
	switch {
	case errors.As(err, &c):
		v.find(Finding{Damaged, key, fmt.Sprintf("byte %d", c.Offset), c.Err.Error()})
	case err != nil:
		v.find(Finding{Damaged, key, "", err.Error()})
	case own != "" && own != key:
		v.find(Finding{Damaged, key, "", "it is " + own})
	}
	return nil
}

// manifestMax bounds a manifest or group that is read whole.
const manifestMax = 256 << 20

// leftovers checks the manifests and groups of a partition that the tip has replaced and that are not trimmed yet.
func (v *verifier) leftovers(ctx context.Context, p *Partition) error {
	for _, kind := range []struct {
		prefix string
		key    func(string, []byte) (string, error)
	}{
		{manifest.ManifestPrefix(p.ID), func(_ string, b []byte) (string, error) {
			m, err := manifest.DecodeManifest(b)
			if err != nil {
				return "", err
			}
			return m.Key(), nil
		}},
		{manifest.GroupPrefix(p.ID), func(_ string, b []byte) (string, error) {
			_, err := manifest.DecodeGroup(b)
			return "", err
		}},
	} {
		for i, err := range v.src.Bucket.List(ctx, kind.prefix, "") {
			if err != nil {
				return fmt.Errorf("list %s: %w", kind.prefix, err)
			}
			if p.Tip != nil && (i.Key == p.Tip.Key() || p.Tip.ListsGroup(i.Key)) {
				continue // checked already
			}
			if err := v.document(ctx, i.Key, manifestMax, kind.key); err != nil {
				return err
			}
		}
	}
	return nil
}
