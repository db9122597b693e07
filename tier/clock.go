package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/objstore"
)

// errNoDate: the store does not say what time it is, so nothing may ever be doomed by it.
var errNoDate = errors.New("object store answers without a Date")

// storeClock follows the object store's clock, the only one that expiry and leases trust.
type storeClock struct {
	mu   sync.Mutex
	date time.Time // of the newest answer
	at   time.Time // ours, when that answer came
}

// saw records the Date of an answer.
func (c *storeClock) saw(i objstore.Info) {
	if i.Date.IsZero() {
		return
	}
	c.mu.Lock()
	if i.Date.After(c.date) {
		c.date, c.at = i.Date, time.Now()
	}
	c.mu.Unlock()
}

// guess extrapolates the store's clock for planning: when it may be worth asking. Decisions use ask.
func (c *storeClock) guess() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.date.IsZero() {
		return now
	}
	return c.date.Add(now.Sub(c.at))
}

func (c *storeClock) known() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.date.IsZero()
}

// ask returns the Date of a fresh answer: never later than the store's clock is when it returns.
func (c *storeClock) ask(ctx context.Context, b objstore.Bucket) (time.Time, error) {
	i, err := b.Head(ctx, archiveKey)
	if err != nil {
		return time.Time{}, fmt.Errorf("ask the store's clock: %w", err)
	}
	if i.Date.IsZero() {
		return time.Time{}, errNoDate
	}
	c.saw(i)
	return i.Date, nil
}
