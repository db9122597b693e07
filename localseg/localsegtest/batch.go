// Package localsegtest builds batches and sample logs for the tests of localseg and of the packages above it.
package localsegtest

import (
	"fmt"
	"testing"

	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/localseg"
	"github.com/varvelog/varve/record"
)

// Batch builds one batch of records "k<i>"="v<i>" with these timestamps, offsets from o.BaseOffset on.
func Batch(t testing.TB, o record.BatchOptions, timestamps ...int64) record.Batch {
	t.Helper()
	recs := make([]record.Record, len(timestamps))
	for i, ms := range timestamps {
		recs[i] = record.Record{Offset: o.BaseOffset + int64(i), Timestamp: ms,
			Key: fmt.Appendf(nil, "k%d", i), Value: fmt.Appendf(nil, "v%d", i)}
	}
	b, err := record.Build(nil, o, recs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Plain is a batch without producer id.
func Plain(t testing.TB, timestamps ...int64) record.Batch {
	t.Helper()
	return Batch(t, record.BatchOptions{ProducerID: -1}, timestamps...)
}

// Idempotent is a batch of a producer, with sequences from seq on.
func Idempotent(t testing.TB, id int64, epoch int16, seq int32, timestamps ...int64) record.Batch {
	t.Helper()
	return Batch(t, record.BatchOptions{ProducerID: id, ProducerEpoch: epoch, BaseSequence: seq}, timestamps...)
}

// Transactional is Idempotent inside a transaction.
func Transactional(t testing.TB, id int64, epoch int16, seq int32, timestamps ...int64) record.Batch {
	t.Helper()
	return Batch(t, record.BatchOptions{ProducerID: id, ProducerEpoch: epoch, BaseSequence: seq, Transactional: true}, timestamps...)
}

// Marker ends a transaction.
func Marker(id int64, epoch int16, ms int64, commit bool) record.Batch {
	return record.BuildMarker(nil, id, epoch, ms, record.Marker{Commit: commit, CoordinatorEpoch: 0})
}

// Sample fills the log in dir with several segments of every kind of batch, as a reader of the files should find them:
// plain ones of each codec, an idempotent producer, a committed and an aborted transaction, two leader epochs.
func Sample(t testing.TB, fs vfs.FS, dir string) {
	t.Helper()
	l, err := localseg.Open(fs, dir, localseg.Options{Topic: "sample", TopicID: [16]byte{1, 2, 3},
		Config: localseg.Config{SegmentBytes: 32 << 10, IndexIntervalBytes: 1024}})
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1700000000000)
	add := func(b record.Batch, epoch int32, from localseg.Origin) {
		t.Helper()
		if _, err := l.Append([]record.Batch{b}, epoch, from); err != nil {
			t.Fatal(err)
		}
		now += 7
	}
	for i := range 400 {
		epoch := int32(i / 200)
		ms := now + int64(i%5)
		add(Batch(t, record.BatchOptions{ProducerID: -1, Codec: record.Codec(i % 5)}, ms, ms+3, ms+1), epoch, localseg.OriginClient)
		add(Idempotent(t, 7, 0, int32(2*i), now, now), epoch, localseg.OriginClient)
		if i%10 == 0 {
			add(Transactional(t, 8, 0, int32(i/10), now), epoch, localseg.OriginClient)
		}
		if i%10 == 4 {
			add(Marker(8, 0, now, i%20 == 4), epoch, localseg.OriginInternal)
		}
	}
	if err := l.CloseClean(); err != nil {
		t.Fatal(err)
	}
}
