package s3api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/varvelog/varve/objstore"
)

var errOrder = errors.New("the store lists out of byte order")

// List implements objstore.Bucket. Some stores list directory by directory, which is not byte order: each page is
// sorted, and a page that begins before the end of the one before is ErrUnsupported rather than a wrong order.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := objstore.CheckPrefix(prefix); err != nil {
			yield(objstore.Info{}, fmt.Errorf("list: %w", err))
			return
		}
		start, token, last := "", "", after
		if after != "" {
			start = b.prefix + after
		}
		for {
			page, next, err := b.page(ctx, prefix, start, token)
			if err != nil {
				yield(objstore.Info{}, err)
				return
			}
			for _, info := range page {
				switch {
				case info.Key <= after:
					continue
				case info.Key <= last:
					yield(objstore.Info{}, &Error{Op: "list", Key: prefix, Store: b.store, Class: objstore.ErrUnsupported, Failure: Failure{
						Err: fmt.Errorf("%w: %q comes after %q", errOrder, info.Key, last),
					}})
					return
				}
				last = info.Key
				if !yield(info, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			if next == token {
				yield(objstore.Info{}, &Error{Op: "list", Key: prefix, Store: b.store, Class: objstore.ErrUnsupported, Failure: Failure{
					Err: errors.New("the store repeats its continuation token"),
				}})
				return
			}
			token = next
		}
	}
}

// page returns one answer, sorted, keys without the bucket's prefix.
func (b *Bucket) page(ctx context.Context, prefix, start, token string) ([]objstore.Info, string, error) {
	var page []objstore.Info
	var next string
	a, err := b.call(ctx, "list", prefix, objstore.Cond{}, func(ctx context.Context) (err error) {
		page, next, err = b.api.ListPage(ctx, b.prefix+prefix, start, token, b.c.PageKeys)
		return err
	})
	if err != nil {
		return nil, "", err
	}
	kept := page[:0]
	for _, info := range page {
		key, ours := strings.CutPrefix(info.Key, b.prefix)
		// Consoles and directory-like stores show "dir/" objects: no key of ours ends so.
		if !ours || !strings.HasPrefix(key, prefix) || key == "" || strings.HasSuffix(key, "/") {
			continue
		}
		info.Key, info.Date = key, a.Date
		kept = append(kept, info)
	}
	slices.SortFunc(kept, func(x, y objstore.Info) int { return cmp.Compare(x.Key, y.Key) })
	return kept, next, nil
}
