package cache

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/internal/vfs"
)

// onDisk is a cache whose memory tier keeps nothing.
func onDisk(t testing.TB, fs vfs.FS, diskBytes int64) *Cache {
	return open(t, Options{MemoryBytes: 1, Dir: "/cache", DiskBytes: diskBytes, FS: fs})
}

// settle waits until the writes under way have ended.
func settle() { synctest.Wait() }

func damage(t *testing.T, fs vfs.FS, k Key, f func(vfs.File)) {
	t.Helper()
	d := &disk{dir: "/cache/" + chunkDir}
	file, err := fs.OpenFile(d.path(idOf(k)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	f(file)
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestDiskServesWhatMemoryHasPutOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := onDisk(t, vfs.NewMem(), 1<<20), &origin{}
		for i := range 5 {
			get(t, c, o, key(i), 1000)
		}
		settle()
		for i := range 5 {
			get(t, c, o, key(i), 1000)
		}
		if n := o.fills.Load(); n != 5 {
			t.Fatalf("%d fills", n)
		}
		if n := value(t, c.metrics.diskHits); n != 5 {
			t.Fatalf("%v disk hits", n)
		}
		closed(t, c)
	})
}

func TestDiskIsTakenOverAtTheNextStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, o := vfs.NewMem(), &origin{}
		c := onDisk(t, mem, 1<<20)
		for i := range 5 {
			get(t, c, o, key(i), 1000)
			time.Sleep(time.Second) // age goes by the files' times
		}
		closed(t, c)
		c = onDisk(t, mem, 3*(1000+headerLen)) // and what is too much goes, oldest first
		if n := c.diskBytes(); n != 3*(1000+headerLen) {
			t.Fatalf("%d bytes on disk", n)
		}
		for i := 4; i >= 2; i-- {
			get(t, c, o, key(i), 1000)
		}
		if n := o.fills.Load(); n != 5 {
			t.Fatalf("%d fills", n)
		}
		closed(t, c)
	})
}

func TestADamagedFileIsAMissAndIsReplaced(t *testing.T) {
	flip := func(at int64) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fs vfs.FS) {
			damage(t, fs, key(1), func(f vfs.File) {
				b := make([]byte, 1)
				_, err := f.ReadAt(b, at)
				b[0] ^= 0x10
				if _, werr := f.WriteAt(b, at); err != nil || werr != nil {
					t.Fatal(err, werr)
				}
			})
		}
	}
	cut := func(size int64) func(*testing.T, vfs.FS) {
		return func(t *testing.T, fs vfs.FS) {
			damage(t, fs, key(1), func(f vfs.File) {
				if err := f.Truncate(size); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
	for name, harm := range map[string]func(*testing.T, vfs.FS){
		"magic": flip(0), "version": flip(5), "reserved": flip(6), "size": flip(15), "key": flip(20), "checksum": flip(headerLen - 1),
		"first byte": flip(headerLen), "last byte": flip(headerLen + 999), "cut": cut(headerLen + 999), "empty": cut(0), "longer": cut(headerLen + 1001),
		"removed": func(t *testing.T, fs vfs.FS) {
			d := &disk{dir: "/cache/" + chunkDir}
			if err := fs.Remove(d.path(idOf(key(1)))); err != nil {
				t.Fatal(err)
			}
		},
		"another chunk's": func(t *testing.T, fs vfs.FS) {
			d := &disk{dir: "/cache/" + chunkDir}
			if err := fs.Rename(d.path(idOf(key(2))), d.path(idOf(key(1)))); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem, o := vfs.NewMem(), &origin{}
				c := onDisk(t, mem, 1<<20)
				get(t, c, o, key(1), 1000)
				get(t, c, o, key(2), 1000)
				settle()
				harm(t, mem)
				get(t, c, o, key(1), 1000)
				settle()
				if n := o.fills.Load(); n != 3 {
					t.Fatalf("%d fills", n)
				}
				get(t, c, o, key(1), 1000)
				if n := o.fills.Load(); n != 3 {
					t.Fatalf("%d fills after the repair", n)
				}
				closed(t, c)
			})
		})
	}
}

func TestAnyCrashLeavesSoundChunksOrMisses(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			mem, o := vfs.NewMem(), &origin{}
			c := onDisk(t, mem, 1<<20)
			for i := range 8 {
				get(t, c, o, key(i), 4000)
			}
			settle()
			mem.StopAfter(int(seed) * 2)
			for i := range 20 {
				get(t, c, o, key(i), 4000) // a dead disk does not matter
			}
			closed(t, c)
			mem.Crash(seed)
			c = onDisk(t, mem, 1<<20)
			for range 2 {
				for i := range 20 {
					get(t, c, o, key(i), 4000)
				}
				settle()
			}
			names, err := mem.ReadDir("/cache/" + chunkDir)
			if err != nil || len(names) != 20 {
				t.Fatalf("%d files, %v", len(names), err)
			}
			closed(t, c)
		})
	}
}

func TestAFullDiskCostsOnlyTheDiskTier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, o := vfs.NewMem(), &origin{}
		c := onDisk(t, mem, 1<<20)
		mem.SetSpace(1500)
		for i := range 5 {
			get(t, c, o, key(i), 1000)
			settle()
		}
		if n := c.diskBytes(); n != 1000+headerLen {
			t.Fatalf("%d bytes on disk", n)
		}
		if n := value(t, c.metrics.diskErrors); n != 4 {
			t.Fatalf("%v errors", n)
		}
		closed(t, c)
	})
}

func TestOnlyFilesOfTheCacheAreTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		for _, name := range []string{"/cache/mine", "/cache/chunks-v1/notes.txt", "/cache/chunks-v1/short.chunk", "/cache/chunks-v1/7.tmp"} {
			if err := mem.MkdirAll("/cache/chunks-v1", 0o755); err != nil {
				t.Fatal(err)
			}
			f, err := mem.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		c := onDisk(t, mem, 10)
		closed(t, c)
		names, err := mem.ReadDir("/cache/chunks-v1")
		if err != nil || len(names) != 2 {
			t.Fatalf("%v, %v: want the temporary file gone and the others kept", names, err)
		}
	})
}

func TestTheRealDiskWorksToo(t *testing.T) {
	o, dir := &origin{}, t.TempDir()
	c := open(t, Options{MemoryBytes: 1, Dir: dir})
	get(t, c, o, key(1), 100_000)
	closed(t, c)
	c = open(t, Options{MemoryBytes: 1, Dir: dir})
	chunk, err := c.Get(context.Background(), key(1), 100_000, o.fill(key(1)))
	if err != nil || o.fills.Load() != 1 {
		t.Fatalf("%v, %d fills", err, o.fills.Load())
	}
	chunk.Release()
	closed(t, c)
}
