package localseg

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/record"
)

func plain(t *testing.T) []record.Batch {
	t.Helper()
	b, err := record.Build(nil, record.BatchOptions{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}, []record.Record{{Timestamp: 1, Value: []byte("v")}})
	if err != nil {
		t.Fatal(err)
	}
	return []record.Batch{b}
}

func TestABatchWhoseAppendTimeWasLostGetsItsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "t-0")
	l, err := Open(vfs.OS{}, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := l.Append(plain(t), 0, OriginClient); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Flush(); err != nil { // the entry of the first batch is on disk
		t.Fatal(err)
	}
	l.Close()
	name := filepath.Join(dir, "00000000000000000000")
	if err := os.Truncate(name+extAppendTime, appendEntrySize); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, fileCheckpoint)); err != nil { // all is recovered
		t.Fatal(err)
	}
	written := time.Now().Add(5 * time.Second)
	if err := os.Chtimes(name+".log", written, written); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(vfs.OS{}, dir, Options{}); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	times, err := l.AppendTimes(0, 2)
	if err != nil {
		t.Fatal(err)
	}
	if len(times) != 2 || times[1] != (AppendTime{Ms: written.UnixMilli(), Offset: 1}) {
		t.Fatalf("append times %v, want one of %d at offset 1", times, written.UnixMilli())
	}
}

func TestAppendTimesOfLostRecordsDoNotComeBack(t *testing.T) {
	for seed := range uint64(40) {
		fs := vfs.NewMem()
		l, err := Open(fs, "/t-0", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append(plain(t), 0, OriginClient); err != nil {
			t.Fatal(err)
		}
		if err := l.Flush(); err != nil {
			t.Fatal(err)
		}
		l.Close()
		// An entry of a record that a crash took, durable like the first.
		name := fileName("/t-0", 0, extAppendTime)
		f, err := fs.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		x := newIndexes()
		x.appends = []appendEntry{{1 << 41, 1}}
		b, _ := x.tail(2, 0)
		f.WriteAt(b, appendEntrySize)
		f.Sync()
		f.Close()
		if l, err = Open(fs, "/t-0", Options{}); err != nil {
			t.Fatal(err)
		}
		l.Close()
		fs.Crash(seed)
		if info, err := fs.Stat(name); err != nil || info.Size() > appendEntrySize {
			t.Fatalf("seed %d: the entry is back: %d bytes, %v", seed, info.Size(), err)
		}
	}
}
