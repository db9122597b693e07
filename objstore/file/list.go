package file

import (
	"context"
	"fmt"
	"io/fs"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/objstore"
)

// List implements objstore.Bucket. It holds the entries of one directory a level, and skips those directories that
// cannot have a key of the range.
func (b *Bucket) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := objstore.CheckPrefix(prefix); err != nil {
			yield(objstore.Info{}, fmt.Errorf("list: %w", err))
			return
		}
		l := lister{b: b, ctx: ctx, prefix: prefix, after: after, yield: yield}
		// No key can be outside the directory that the prefix names.
		start := "."
		if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
			start = prefix[:i]
		}
		if strings.HasPrefix(start, reserved) {
			return
		}
		if err := l.walk(start); err != nil {
			yield(objstore.Info{}, err)
		}
	}
}

type lister struct {
	b             *Bucket
	ctx           context.Context // of the one call of List that the lister lives for
	prefix, after string
	yield         func(objstore.Info, error) bool
	stopped       bool
}

// walk yields the objects below dir. Directories sort as if their names ended with a slash, as keys do.
func (l *lister) walk(dir string) error {
	if err := l.ctx.Err(); err != nil {
		return fmt.Errorf("list %s: %w: %w", l.prefix, objstore.ErrUnavailable, err)
	}
	entries, err := fs.ReadDir(l.b.root.FS(), dir)
	if absent(err) {
		return nil // nothing there, or deleted meanwhile
	}
	if err != nil {
		return classify("list", dir, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch {
		case strings.HasPrefix(e.Name(), reserved):
		case e.IsDir():
			names = append(names, e.Name()+"/")
		case e.Type().IsRegular():
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	for _, name := range names {
		key := name
		if dir != "." {
			key = dir + "/" + name
		}
		if err := l.visit(key); err != nil || l.stopped {
			return err
		}
	}
	return nil
}

func (l *lister) visit(key string) error {
	if sub, isDir := strings.CutSuffix(key, "/"); isDir {
		inside := strings.HasPrefix(key, l.prefix) || strings.HasPrefix(l.prefix, key)
		passed := key <= l.after && !strings.HasPrefix(l.after, key)
		if !inside || passed {
			return nil
		}
		return l.walk(path.Clean(sub))
	}
	if !strings.HasPrefix(key, l.prefix) || key <= l.after {
		return nil
	}
	st, err := l.b.root.Lstat(key)
	if absent(err) {
		return nil
	}
	if err != nil {
		return classify("list", key, err)
	}
	info := describe(key, st)
	info.Date = time.Now()
	l.stopped = !l.yield(info, nil)
	return nil
}
