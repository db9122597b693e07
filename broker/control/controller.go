package control

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/meta"
)

// Options of a Controller. Zero values are defaults.
type Options struct {
	NodeID int32
	// Unclean is unclean.leader.election.enable of a topic, as it is in force; default: never.
	Unclean func(*meta.Topic) bool
	// MinISR is min.insync.replicas of a topic, as it is in force; default: 1.
	MinISR func(*meta.Topic) int32
	// Rebalance is leader.imbalance.check.interval.seconds, 0: leaders are not moved back (auto.leader.rebalance.enable).
	Rebalance time.Duration
	// Imbalance is leader.imbalance.per.broker.percentage.
	Imbalance int64

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) fill() {
	if o.Unclean == nil {
		o.Unclean = func(*meta.Topic) bool { return false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
}

// Controller is a broker's candidacy for control of the cluster, and the control itself while it is elected: it brings the partitions
// to what Decide says of each image. All brokers run one; the lease in the metadata elects.
type Controller struct {
	store   *meta.Store
	o       Options
	metrics *metrics
	wake    chan struct{} // buffered 1

	mu    sync.Mutex
	scope Scope // guarded by mu; what has changed and not been decided on
}

// New makes a controller; it starts nothing.
func New(store *meta.Store, o Options) *Controller {
	o.fill()
	c := &Controller{store: store, o: o, wake: make(chan struct{}, 1), scope: Scope{All: true}}
	c.metrics = newMetrics(o.Registerer, c)
	store.Subscribe(c.changed)
	return c
}

// changed is told of each image. It must not block.
func (c *Controller) changed(old, next *meta.Image) {
	s := difference(old, next)
	if s.empty() && old.Controller == next.Controller && old.Term == next.Term {
		return
	}
	c.widen(s)
}

// widen adds to what has to be looked at.
func (c *Controller) widen(s Scope) {
	c.mu.Lock()
	c.scope.All = c.scope.All || s.All
	if len(s.Topics) > 0 && c.scope.Topics == nil {
		c.scope.Topics = map[manifest.TopicID]bool{}
	}
	for id := range s.Topics {
		c.scope.Topics[id] = true
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// take returns what has to be looked at, and begins anew.
func (c *Controller) take() Scope {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.scope
	c.scope = Scope{}
	return s
}

// difference is the scope of what next has changed: all topics if a broker has come, gone or begun to drain, or if the configuration that
// topics inherit is another one, as Rules may be then; else those that have another record or other partitions.
func difference(old, next *meta.Image) Scope {
	if !sameBrokers(old.Brokers, next.Brokers) || !sameBrokers(old.Known, next.Known) || !sameConfigs(old.Configs, next.Configs) {
		return Scope{All: true}
	}
	var s Scope
	for id, t := range next.TopicsByID {
		if old.TopicsByID[id] == t {
			continue
		}
		if s.Topics == nil {
			s.Topics = map[manifest.TopicID]bool{}
		}
		s.Topics[id] = true
	}
	return s
}

// sameBrokers compares pointers: an image shares what has not changed.
func sameBrokers(a, b map[int32]*meta.Broker) bool {
	if len(a) != len(b) {
		return false
	}
	for id, x := range a {
		if b[id] != x {
			return false
		}
	}
	return true
}

func sameConfigs(a, b map[string]map[string]string) bool {
	return maps.EqualFunc(a, b, func(x, y map[string]string) bool { return maps.Equal(x, y) })
}

const (
	retryControlMin = 20 * time.Millisecond
	retryControlMax = time.Second
	// candidacyMax bounds one try to become controller: while etcd has no leader, or believes in a dead one, a request may be lost,
	// and is better sent again.
	candidacyMax = 500 * time.Millisecond
	// writeMax bounds the writing of one decision, and writeEach what is added for each change.
	writeMax  = 2 * time.Second
	writeEach = 2 * time.Millisecond
)

// Run stands for control, and controls, until ctx ends. meta.Store.Run must be running, and the broker registered by Store.Register;
// before that, and while it drains, it does not stand.
func (c *Controller) Run(ctx context.Context) error {
	var rebalance <-chan time.Time
	if c.o.Rebalance > 0 {
		t := time.NewTicker(c.o.Rebalance)
		defer t.Stop()
		rebalance = t.C
	}
	pause := retryControlMin
	for {
		var again <-chan time.Time
		if err := c.act(ctx); err == nil {
			pause = retryControlMin
		} else if ctx.Err() == nil {
			if !errors.Is(err, meta.ErrConflict) {
				c.o.Logger.Warn("control", "err", err, "retry", pause)
			}
			again = time.After(pause)
			pause = min(2*pause, retryControlMax)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		case <-again:
		case <-rebalance:
			if term := c.term(); term != 0 {
				c.apply(ctx, term, Rebalance(c.store.Image(), c.o.Imbalance))
			}
		}
	}
}

// term is that in which this broker is the controller, by its own knowledge and by the image's; 0: it is not. What is decided is written in
// this term, whatever the store's is by then: a write in none would not be guarded by it.
func (c *Controller) term() int64 {
	if term := c.store.Term(); c.store.Image().Term == term {
		return term
	}
	return 0
}

// act does what the image demands of this broker: to stand for control, or to decide.
func (c *Controller) act(ctx context.Context) error {
	img := c.store.Image()
	// The image's controller may be this very process, by a write whose answer was lost: standing again adopts it.
	if img.Controller < 0 || img.Controller == c.o.NodeID && img.Term != c.store.Term() {
		if err := c.stand(ctx, img); err != nil {
			return err
		}
	}
	if term := c.term(); term != 0 {
		return c.decide(ctx, term)
	}
	return nil
}

// stand tries to become controller.
func (c *Controller) stand(ctx context.Context, img *meta.Image) error {
	self := img.Brokers[c.o.NodeID]
	if self == nil || self.Draining || c.store.Registration().Epoch != self.Epoch {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, candidacyMax)
	defer cancel()
	won, err := c.store.TakeControl(ctx, c.o.NodeID)
	if err != nil {
		return err
	}
	if won {
		c.o.Logger.Info("controller", "broker", c.o.NodeID, "term", c.store.Term())
		c.widen(Scope{All: true})
	}
	return nil
}

// decide brings the partitions to what the image demands. What could not be done stays to be looked at.
func (c *Controller) decide(ctx context.Context, term int64) error {
	scope := c.take()
	img := c.store.Image()
	d := Decide(img, scope, Rules{Unclean: c.o.Unclean, MinISR: c.o.MinISR})
	err := c.apply(ctx, term, d.Changes)
	for _, b := range d.Admit {
		if err != nil {
			break
		}
		wctx, cancel := context.WithTimeout(ctx, writeMax)
		if err = c.store.Admit(wctx, term, b); err == nil {
			c.o.Logger.Info("broker admitted", "broker", b.ID, "epoch", b.Epoch, "clean", cleanly(img, b))
		}
		cancel()
	}
	if err != nil {
		c.widen(scope)
		if errors.Is(err, meta.ErrNotController) {
			c.o.Logger.Warn("control lost", "term", term)
			return c.store.Resign(ctx)
		}
	}
	return err
}

// apply writes changes.
func (c *Controller) apply(ctx context.Context, term int64, changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	began := time.Now()
	// Elections first: clients wait for them, and for nothing else.
	slices.SortStableFunc(changes, func(a, b Change) int {
		switch {
		case a.Edit.Elect == b.Edit.Elect:
			return 0
		case a.Edit.Elect:
			return -1
		}
		return 1
	})
	edits := make([]meta.Edit, len(changes))
	for i, x := range changes {
		edits[i] = x.Edit
	}
	wctx, cancel := context.WithTimeout(ctx, writeMax+time.Duration(len(edits))*writeEach)
	defer cancel()
	err := c.store.EditPartitions(wctx, term, edits)
	reasons := map[Reason]int{}
	for _, x := range changes {
		reasons[x.Reason]++
		level := slog.LevelDebug
		if x.Reason == Offline || x.Reason == Unclean {
			level = slog.LevelWarn
		}
		c.o.Logger.Log(ctx, level, "partition changes", "topic", x.Topic, "partition", x.Edit.Base.ID.Partition, "reason", string(x.Reason),
			"leader", x.Edit.Leader, "was", x.Edit.Base.Leader, "isr", x.Edit.ISR)
	}
	for why, n := range reasons {
		if err == nil {
			c.metrics.changes.WithLabelValues(string(why)).Add(float64(n))
		}
		c.o.Logger.Info("partitions change", "reason", string(why), "partitions", n, "took", time.Since(began), "err", err)
	}
	return err
}
