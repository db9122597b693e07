package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/tier"
)

// knownFile is what a broker remembers of its archive, in its data directory: with it, it serves what is local when it starts while the
// store is away.
const knownFile = "archive.known"

// knownWait is how long such a start waits for the store.
const knownWait = 3 * time.Second

type knownArchive struct {
	Format      int    `json:"format"`
	URL         string `json:"url"`  // without parameters
	Info        string `json:"info"` // archive.json
	Incarnation uint32 `json:"incarnation"`
}

// checkedArchive makes sure that the store is safe and the archive ours. Where the store does not answer, and this directory has been
// here before, it answers from memory, and later says what the check was of.
func (n *node) checkedArchive(ctx context.Context, bucket objstore.Bucket, address string) (info manifest.ArchiveInfo, later func(context.Context) error, err error) {
	known, seen := n.readKnown(address)
	first, cancel := ctx, context.CancelFunc(func() {})
	if seen {
		first, cancel = context.WithTimeout(ctx, knownWait)
	}
	info, err = n.checkArchive(first, bucket, address)
	cancel()
	away := objstore.Retryable(err) || errors.Is(err, context.DeadlineExceeded)
	if err == nil || !seen || !away || ctx.Err() != nil {
		return info, nil, err
	}
	n.log.Warn("the object store does not answer; serving what is local until it does", "err", err)
	return known, func(ctx context.Context) error {
		for {
			_, err := n.checkArchive(ctx, bucket, address)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				n.log.Info("the object store answers again")
				return nil
			case !objstore.Retryable(err) && !errors.Is(err, context.DeadlineExceeded):
				return err
			}
			sleep(ctx, time.Second)
		}
	}, nil
}

// checkArchive asks the store, and notes what it says.
func (n *node) checkArchive(ctx context.Context, bucket objstore.Bucket, address string) (manifest.ArchiveInfo, error) {
	found, err := objstore.Probe(ctx, bucket)
	if err != nil {
		return manifest.ArchiveInfo{}, fmt.Errorf("archive.url %s: %w", redact(address), err)
	}
	for _, w := range found.Warnings {
		n.log.Warn("object store", "warning", w)
	}
	img := n.store.Image()
	info, inc, err := tier.OpenArchive(ctx, bucket, img.Cluster)
	if err != nil {
		return info, fmt.Errorf("archive.url %s: %w", redact(address), err)
	}
	if inc != img.Incarnation {
		return info, fmt.Errorf("archive.url %s: the archive is in incarnation %d, the metadata in %d: another cluster has taken it over", redact(address), inc, img.Incarnation)
	}
	return info, n.writeKnown(address, info)
}

// readKnown is what is remembered of the archive at address; not ok for another one, or none.
func (n *node) readKnown(address string) (manifest.ArchiveInfo, bool) {
	var k knownArchive
	text, err := os.ReadFile(filepath.Join(n.c.Dir(), knownFile))
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			n.log.Warn("what is known of the archive cannot be read", "err", err)
		}
		return manifest.ArchiveInfo{}, false
	}
	info, err := manifest.DecodeArchiveInfo([]byte(k.Info))
	img := n.store.Image()
	ok := err == nil && k.Format == 1 && k.URL == redact(address) && info.Cluster == img.Cluster && k.Incarnation == img.Incarnation
	return info, ok
}

func (n *node) writeKnown(address string, info manifest.ArchiveInfo) error {
	doc, err := info.Encode()
	if err != nil {
		return err
	}
	text, err := json.Marshal(knownArchive{Format: 1, URL: redact(address), Info: string(doc), Incarnation: n.store.Image().Incarnation})
	if err != nil {
		return err
	}
	file := filepath.Join(n.c.Dir(), knownFile)
	if err := os.WriteFile(file+".tmp", text, 0o644); err != nil {
		return fmt.Errorf("note the archive: %w", err)
	}
	if err := os.Rename(file+".tmp", file); err != nil {
		return fmt.Errorf("note the archive: %w", err)
	}
	return nil
}
