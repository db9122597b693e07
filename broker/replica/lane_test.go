package replica

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// scripted is a leader that answers what say says of a partition that is asked for, and has nothing new else.
type scripted struct {
	say func(FetchPart) *FetchedPart // nil: nothing new

	mu    sync.Mutex
	asked []FetchPart     // guarded by mu
	waits []time.Duration // guarded by mu; MaxWait of each request
}

func (s *scripted) Fetch(ctx context.Context, _ int32, _ int, req *FetchRequest) (*FetchAnswer, error) {
	ans := &FetchAnswer{Session: 1}
	s.mu.Lock()
	s.asked = append(s.asked, req.Parts...)
	s.waits = append(s.waits, req.MaxWait)
	s.mu.Unlock()
	for _, part := range req.Parts {
		if a := s.say(part); a != nil {
			a.ID = part.ID
			ans.Parts = append(ans.Parts, *a)
		}
	}
	if len(ans.Parts) > 0 {
		return ans, nil
	}
	return ans, wait(ctx, req.MaxWait)
}

func (s *scripted) requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits)
}

// times is how often a partition was asked for from offset.
func (s *scripted) times(id manifest.PartitionID, offset int64) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, part := range s.asked {
		if part.ID == id && part.Offset == offset {
			n++
		}
	}
	return n
}

// follow has b follow two partitions; it returns the first.
func (s *scripted) follow(t *testing.T, b *broker) manifest.PartitionID {
	t.Helper()
	tp, err := b.store.CreateTopic(t.Context(), meta.TopicSpec{Name: "t", Assignment: [][]int32{{2, 1}, {2, 1}}})
	if err != nil {
		t.Fatal(err)
	}
	return manifest.PartitionID{Topic: tp.ID}
}

// The acknowledgements of a partition wait for who asks again, which must not wait for records of others.
func TestPartitionThatIsRefusedIsAskedForAgainWhileOthersWait(t *testing.T) {
	var mu sync.Mutex
	refused, again := time.Time{}, time.Duration(0)
	s := &scripted{say: func(part FetchPart) *FetchedPart {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case part.ID.Partition == 1:
			return nil
		case refused.IsZero():
			refused = time.Now()
			return &FetchedPart{Err: ErrUnknownEpoch}
		case again == 0:
			again = time.Since(refused)
		}
		return nil
	}}
	c := newCluster(t)
	c.upstream = s
	s.follow(t, c.start())
	until(t, "the partition is asked for again", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return again > 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waits) > 2 && s.waits[1] > 100*time.Millisecond {
		t.Fatalf("asked again after %s; requests waited up to %v", again, s.waits)
	}
}

func TestOthersAreFetchedWhileALogIsCutBack(t *testing.T) {
	batch := one(t, 0, 1000)
	slow := make(chan func()) // what lets the log be cut
	var once, differ sync.Once
	var b *broker
	s := &scripted{}
	s.say = func(part FetchPart) (a *FetchedPart) {
		switch {
		case part.ID.Partition == 0 && part.Offset == 0:
			once.Do(func() { a = &FetchedPart{Records: batch} })
		case part.ID.Partition == 0 && part.Offset == 1:
			differ.Do(func() {
				p, _ := b.m.find(TopicPartition{ID: part.ID.Topic})
				p.appendMu.Lock() // nothing is done to the log now, as if the disk were slow
				slow <- p.appendMu.Unlock
			})
			a = &FetchedPart{Diverging: true, DivergingEpoch: 0, DivergingEnd: 0}
		}
		return a
	}
	c := newCluster(t)
	c.upstream = s
	b = c.start()
	id := s.follow(t, b)
	done := sync.OnceFunc(<-slow)
	defer done()
	requests := s.requests()
	until(t, "the other partition is fetched", func() bool { return s.requests() >= requests+5 })
	if n := s.times(id, 0); n != 1 {
		t.Fatalf("asked %d times from offset 0 before the log is cut", n)
	}
	done()
	until(t, "the log is cut and fetched from there", func() bool { return s.times(id, 0) > 1 })
}
