package control

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/meta"
)

// Detector finds crashed brokers long before their leases run out. A crash closes the sockets: the controller holds a connection to each
// other broker, each other broker one to the controller, and when one breaks, or somebody says that one of his own has (Suspect), the
// broker is probed at once. If its listener refuses, the process is gone, and its registration is ended in its stead.
//
// Only a refusal counts. A broker that hangs, or that the network has cut off, does not refuse, and keeps its lease until that runs out.
// A wrong verdict costs an election and no record: the ISR protocol does not rest on it.
type Detector struct {
	store *meta.Store
	o     DetectorOptions
	wake  chan struct{} // buffered 1: the image has other brokers, or another controller

	metrics *detectorMetrics

	suspects chan registration

	mu      sync.Mutex
	watches map[registration]context.CancelFunc // guarded by mu
	evicted map[int32]time.Time                 // guarded by mu; when a broker was last evicted
}

// registration names one process of a broker.
type registration struct {
	id    int32
	epoch int64
}

// DetectorOptions of a Detector. Zero values are defaults.
type DetectorOptions struct {
	NodeID int32
	// Dial connects to a broker's inter-broker listener. Required.
	Dial func(ctx context.Context, b *meta.Broker) (net.Conn, error)
	// Refused says that an error of Dial proves that no process listens there; default: ECONNREFUSED.
	Refused func(error) bool
	// Session is broker.session.timeout.ms: no broker is evicted twice within it, whatever the probes say. Default 9 s.
	Session    time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

type detectorMetrics struct {
	suspicions, evictions prometheus.Counter
}

// NewDetector makes a detector; it starts nothing.
func NewDetector(store *meta.Store, o DetectorOptions) *Detector {
	if o.Refused == nil {
		o.Refused = func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
	}
	if o.Session <= 0 {
		o.Session = 9 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	d := &Detector{
		store: store, o: o, wake: make(chan struct{}, 1), watches: map[registration]context.CancelFunc{},
		suspects: make(chan registration, 64), evicted: map[int32]time.Time{},
		metrics: &detectorMetrics{
			suspicions: prometheus.NewCounter(prometheus.CounterOpts{Name: "control_suspicions_total", Help: "Broken connections to other brokers that led to a probe."}),
			evictions:  prometheus.NewCounter(prometheus.CounterOpts{Name: "control_evictions_total", Help: "Registrations of crashed brokers ended by this one."}),
		},
	}
	o.Registerer.MustRegister(d.metrics.suspicions, d.metrics.evictions)
	store.Subscribe(func(old, next *meta.Image) {
		if sameBrokers(old.Brokers, next.Brokers) && old.Controller == next.Controller {
			return
		}
		select {
		case d.wake <- struct{}{}:
		default:
		}
	})
	return d
}

// Suspect says that a connection to the broker broke. It does not block; if too many wait already the word is dropped.
func (d *Detector) Suspect(id int32) {
	b := d.store.Image().Brokers[id]
	if b == nil || id == d.o.NodeID {
		return
	}
	select {
	case d.suspects <- registration{id, b.Epoch}:
	default:
	}
}

const (
	probeMax      = 300 * time.Millisecond // one dial
	probeAgain    = 20 * time.Millisecond  // between the two refusals that count
	evictMax      = 300 * time.Millisecond // one try: while etcd elects a leader of its own, requests get lost
	evictPause    = 50 * time.Millisecond
	redialMin     = 50 * time.Millisecond
	redialMax     = 2 * time.Second
	suspicionsMax = 8 // probed at once
)

// Run watches until ctx ends.
func (d *Detector) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	places := make(chan struct{}, suspicionsMax)
	verdicts := make(chan registration, suspicionsMax)
	under := map[registration]bool{} // probed at the moment
	for {
		d.follow(ctx, &work)
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
		case r := <-verdicts:
			delete(under, r)
		case r := <-d.suspects:
			if under[r] || d.evictedLately(r.id) {
				continue
			}
			select {
			case places <- struct{}{}:
			default:
				continue // its lease will tell
			}
			under[r] = true
			d.metrics.suspicions.Inc()
			work.Go(func() {
				dead := d.dead(ctx, r)
				if dead {
					d.evict(ctx, r)
				}
				<-places
				select {
				case verdicts <- r:
				case <-ctx.Done():
				}
			})
		}
	}
}

func (d *Detector) evictedLately(id int32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.evicted[id]
	return ok && time.Since(at) < d.o.Session
}

// follow watches whom the image says: the controller all, the others the controller.
func (d *Detector) follow(ctx context.Context, work *sync.WaitGroup) {
	img := d.store.Image()
	d.mu.Lock()
	defer d.mu.Unlock()
	want := map[registration]*meta.Broker{}
	for id, b := range img.Brokers {
		if id != d.o.NodeID && (img.Controller == d.o.NodeID || img.Controller == id) {
			want[registration{id, b.Epoch}] = b
		}
	}
	for r, stop := range d.watches {
		if want[r] == nil {
			stop()
			delete(d.watches, r)
		}
	}
	for r, b := range want {
		if d.watches[r] != nil {
			continue
		}
		wctx, stop := context.WithCancel(ctx)
		d.watches[r] = stop
		work.Go(func() { d.watch(wctx, r, b) })
	}
}

// watch holds a connection to a broker until ctx ends, and suspects it each time it breaks or cannot be made.
func (d *Detector) watch(ctx context.Context, r registration, b *meta.Broker) {
	wait := redialMin
	for ctx.Err() == nil {
		began := time.Now()
		if d.hold(ctx, b) {
			d.suspect(ctx, r)
		}
		if time.Since(began) > redialMax {
			wait = redialMin
		}
		pause(ctx, wait)
		wait = min(2*wait, redialMax)
	}
}

func (d *Detector) suspect(ctx context.Context, r registration) {
	select {
	case d.suspects <- r:
	case <-ctx.Done():
	}
}

// hold connects and waits for the end of the connection; broken is false when ctx has ended it.
func (d *Detector) hold(ctx context.Context, b *meta.Broker) (broken bool) {
	dctx, cancel := context.WithTimeout(ctx, redialMax)
	c, err := d.o.Dial(dctx, b)
	cancel()
	if err != nil {
		return ctx.Err() == nil
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	defer c.Close()
	// Nothing is ever sent on it. A broker that closes it because it is idle is probed, and is alive.
	_, _ = io.Copy(io.Discard, c)
	return ctx.Err() == nil
}

// dead probes: two refusals, while the registration is still the present one and does not say that it ends.
func (d *Detector) dead(ctx context.Context, r registration) bool {
	for try := range 2 {
		if try > 0 && !pause(ctx, probeAgain) {
			return false
		}
		b := d.store.Image().Brokers[r.id]
		if b == nil || b.Epoch != r.epoch || b.Draining {
			return false
		}
		pctx, cancel := context.WithTimeout(ctx, probeMax)
		c, err := d.o.Dial(pctx, b)
		cancel()
		if err == nil {
			c.Close()
			return false
		}
		if !d.o.Refused(err) {
			return false
		}
	}
	return true
}

// evict ends the registration, until the image shows it.
func (d *Detector) evict(ctx context.Context, r registration) {
	began := time.Now()
	for {
		b := d.store.Image().Brokers[r.id]
		if b == nil || b.Epoch != r.epoch {
			break
		}
		ectx, cancel := context.WithTimeout(ctx, evictMax)
		err := d.store.Evict(ectx, r.id, r.epoch)
		cancel()
		if err != nil {
			d.o.Logger.Debug("evict", "broker", r.id, "err", err)
		}
		if !pause(ctx, evictPause) {
			return
		}
	}
	d.mu.Lock()
	d.evicted[r.id] = time.Now()
	d.mu.Unlock()
	d.metrics.evictions.Inc()
	d.o.Logger.Warn("broker has crashed; its registration is ended", "broker", r.id, "epoch", r.epoch, "took", time.Since(began))
}
