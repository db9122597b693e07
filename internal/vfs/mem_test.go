package vfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"testing"
)

func create(t *testing.T, f FS, name string, data []byte) File {
	t.Helper()
	w, err := f.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	return w
}

func content(t *testing.T, f FS, name string) []byte {
	t.Helper()
	r, err := f.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n, err := r.Size()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	if _, err := r.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return b
}

// Both file systems answer alike while nothing crashes.
func TestOSAndMemAgree(t *testing.T) {
	for name, f := range map[string]FS{"os": OS{}, "mem": NewMem()} {
		t.Run(name, func(t *testing.T) {
			dir := path.Join(t.TempDir(), "a", "b")
			if err := f.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			p := path.Join(dir, "x")
			w := create(t, f, p, []byte("hello"))
			if _, err := w.WriteAt([]byte("J"), 0); err != nil {
				t.Fatal(err)
			}
			if err := w.Truncate(7); err != nil {
				t.Fatal(err)
			}
			if got := content(t, f, p); string(got) != "Jello\x00\x00" {
				t.Fatalf("content = %q", got)
			}
			if err := w.Truncate(2); err != nil {
				t.Fatal(err)
			}
			if n, err := w.ReadAt(make([]byte, 9), 0); n != 2 || err != io.EOF {
				t.Fatalf("short read = %d, %v", n, err)
			}
			if err := f.Rename(p, p+"2"); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Stat(p); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("stat of a renamed file: %v", err)
			}
			if _, err := f.OpenFile(p+"2", os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o644); !errors.Is(err, fs.ErrExist) {
				t.Fatalf("exclusive create: %v", err)
			}
			es, err := f.ReadDir(dir)
			if err != nil || len(es) != 1 || es[0].Name() != "x2" {
				t.Fatalf("readdir = %v, %v", es, err)
			}
			if err := f.SyncDir(dir); err != nil {
				t.Fatal(err)
			}
			if err := f.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := f.ReadDir(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("readdir of a removed directory: %v", err)
			}
			if w.Close() != nil || w.Close() == nil {
				t.Fatal("the second close of a file must fail")
			}
		})
	}
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	for seed := range uint64(200) {
		m := NewMem()
		m.MkdirAll("/d", 0o755)
		m.SyncDir("/")
		w := create(t, m, "/d/x", bytes.Repeat([]byte{1}, 1000))
		w.Sync()
		m.SyncDir("/d")
		w.Write(bytes.Repeat([]byte{2}, 2000))
		m.Crash(seed)
		got := content(t, m, "/d/x")
		if len(got) < 1000 || !bytes.Equal(got[:1000], bytes.Repeat([]byte{1}, 1000)) {
			t.Fatalf("seed %d: synced bytes changed, %d left", seed, len(got))
		}
		if _, err := w.Write([]byte{3}); !errors.Is(err, ErrCrashed) {
			t.Fatalf("write to a file of before the crash: %v", err)
		}
	}
}

func TestCrashTearsAndForgetsWhatWasNotSynced(t *testing.T) {
	torn, whole, gone, lost := false, false, false, false
	for seed := range uint64(300) {
		m := NewMem()
		w := create(t, m, "/x", bytes.Repeat([]byte{1}, 4096))
		w.Sync()
		create(t, m, "/y", nil)
		m.Crash(seed)
		if _, err := m.Stat("/y"); err != nil {
			lost = true
		}
		if _, err := m.Stat("/x"); err != nil {
			gone = true
			continue
		}
		w, _ = m.OpenFile("/x", os.O_RDWR, 0)
		w.WriteAt(bytes.Repeat([]byte{2}, 4096), 0)
		m.Crash(seed + 1)
		got := content(t, m, "/x")
		one, two := bytes.Contains(got, []byte{1}), bytes.Contains(got, []byte{2})
		torn = torn || one && two
		whole = whole || one != two
	}
	if !torn || !gone || !lost {
		t.Fatalf("torn %v, whole %v, unsynced entry gone %v %v: a crash must be able to do each", torn, whole, gone, lost)
	}
}

func TestRenameIsAtomicOverACrash(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(50) {
		m := NewMem()
		create(t, m, "/x", []byte("old")).Sync()
		m.SyncDir("/")
		create(t, m, "/x.tmp", []byte("new")).Sync()
		m.Rename("/x.tmp", "/x")
		m.Crash(seed)
		got := string(content(t, m, "/x"))
		seen[got] = true
		if got != "old" && got != "new" {
			t.Fatalf("seed %d: %q", seed, got)
		}
	}
	if len(seen) != 2 {
		t.Fatalf("outcomes %v, want both", seen)
	}
}

func TestFaults(t *testing.T) {
	m := NewMem()
	w := create(t, m, "/a.log", nil)
	m.FailNth(2, "write", ".log", nil)
	if _, err := w.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	if n, err := w.Write([]byte("cdef")); !errors.Is(err, ErrInjected) || n != 2 {
		t.Fatalf("second write = %d, %v", n, err)
	}
	m.SetSpace(3)
	if n, err := w.Write([]byte("ghijk")); !errors.Is(err, syscall.ENOSPC) || n != 3 {
		t.Fatalf("full disk: %d, %v", n, err)
	}
	m.SetSpace(-1)
	m.StopAfter(1)
	if err := w.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(); !errors.Is(err, ErrCrashed) {
		t.Fatalf("after the stop: %v", err)
	}
	m.Kill()
	if got := string(content(t, m, "/a.log")); got != "abcdghi" {
		t.Fatalf("content = %q", got)
	}
}

func TestTrace(t *testing.T) {
	m := NewMem()
	m.StartTrace()
	w := create(t, m, "/x.tmp", []byte("1"))
	w.Sync()
	m.Rename("/x.tmp", "/x")
	m.SyncDir("/")
	want := []string{"create x.tmp", "write x.tmp 1", "sync x.tmp", "rename x", "syncdir /"}
	if got := m.Trace(); !slices.Equal(got, want) {
		t.Fatalf("trace = %q", got)
	}
}

func TestSyncFSMakesAllDurable(t *testing.T) {
	for seed := range uint64(20) {
		m := NewMem()
		m.MkdirAll("/d", 0o755)
		create(t, m, "/d/x", []byte("hello"))
		var _ FSSyncer = OS{}
		if err := m.SyncFS("/"); err != nil {
			t.Fatal(err)
		}
		m.Crash(seed)
		if got := string(content(t, m, "/d/x")); got != "hello" {
			t.Fatalf("seed %d: %q", seed, got)
		}
	}
	if err := (OS{}).SyncFS(t.TempDir()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Fatal(err)
	}
}

func TestCopyIsDurableAndOnItsOwn(t *testing.T) {
	m := NewMem()
	f := create(t, m, "/a", []byte("one"))
	c := m.Copy()
	if _, err := f.Write([]byte(" more")); err != nil {
		t.Fatal(err)
	}
	create(t, m, "/b", []byte("two"))
	c.Crash(1)
	if got := string(content(t, c, "/a")); got != "one" {
		t.Fatalf("/a is %q", got)
	}
	if _, err := c.Stat("/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("/b: %v", err)
	}
	create(t, c, "/a", []byte("ONE"))
	if got := string(content(t, m, "/a")); got != "one more" {
		t.Fatalf("/a is %q", got)
	}
}
