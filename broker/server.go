package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/meta"
)

// Server answers Kafka clients on the listeners handed to Serve. Its exported fields are set by New and read only afterwards.
type Server struct {
	Store    *meta.Store
	Replicas *replica.Manager
	Options  Options

	apis     map[kmsg.Key]api
	budget   *budget
	sessions *sessions

	producerIDs *producerIDs
	groups      *groups
	rules       rulesCache
	metrics     *metrics

	mu       sync.Mutex
	conns    map[*conn]struct{} // guarded by mu
	stopping bool               // guarded by mu; no new connection after that
	done     sync.WaitGroup     // one a connection
}

// New makes a server; it starts nothing.
func New(store *meta.Store, replicas *replica.Manager, o Options) (*Server, error) {
	if err := o.fill(); err != nil {
		return nil, err
	}
	s := &Server{
		Store:    store,
		Replicas: replicas,
		Options:  o,
		apis:     apiTable(),
		conns:    map[*conn]struct{}{},

		producerIDs: newProducerIDs(),
	}
	s.groups = newGroups(s)
	s.metrics = newMetrics(o.Registerer)
	s.budget = newBudget(o.MaxQueuedBytes, s.metrics.budgetWaits)
	s.sessions = newSessions(o.FetchSessionSlots, s.metrics.sessions)
	store.Subscribe(func(was, img *meta.Image) {
		if len(img.TopicsByID) < len(was.TopicsByID) {
			s.rules.forget(img.TopicsByID)
		}
	})
	return s, nil
}

// Serve accepts connections on all listeners until ctx ends or a listener fails; it closes the listeners. Connections live on:
// call Shutdown. The i-th listener is the one that Options.Advertised[i] names; clients are told addresses of the same name.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.groups.run(ctx) })
	for i, l := range listeners {
		name := s.Options.Advertised[min(i, len(s.Options.Advertised)-1)].Name
		stop := context.AfterFunc(ctx, func() { l.Close() })
		g.Go(func() error {
			defer stop()
			return s.accept(ctx, l, name)
		})
	}
	return g.Wait()
}

// accept hands each connection to a goroutine of its own. Errors of single accepts (out of descriptors) are waited out.
func (s *Server) accept(ctx context.Context, l net.Listener, name string) error {
	defer l.Close()
	const firstPause = 5 * time.Millisecond
	pause := firstPause
	for {
		nc, err := l.Accept()
		if ctx.Err() != nil {
			if err == nil {
				nc.Close()
			}
			return nil
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return fmt.Errorf("listener %s closed: %w", l.Addr(), err)
			}
			s.Options.Logger.Warn("accept", "listener", l.Addr().String(), "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(pause):
			}
			pause = min(2*pause, time.Second)
			continue
		}
		pause = firstPause
		s.serveConn(nc, name)
	}
}

// serveConn starts a connection, or refuses it over the limit or while stopping.
func (s *Server) serveConn(nc net.Conn, listener string) {
	c := newConn(s, nc, listener)
	s.mu.Lock()
	full := s.Options.MaxConnections > 0 && len(s.conns) >= s.Options.MaxConnections
	if s.stopping || full {
		s.mu.Unlock()
		c.cut()
		if full {
			s.metrics.refused.Inc()
		}
		return
	}
	s.conns[c] = struct{}{}
	s.done.Add(1)
	s.mu.Unlock()
	s.metrics.connections.Inc()
	go func() {
		defer s.done.Done()
		c.run()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		s.metrics.connections.Dec()
	}()
}

// Shutdown finishes: idle connections are closed, those with requests under way when these are answered; when ctx ends, all are
// cut. It returns when all connections have ended, with ctx's error if some had to be cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for c := range s.conns {
		c.drain()
	}
	s.mu.Unlock()

	ended := make(chan struct{})
	go func() {
		s.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		c.cut()
	}
	s.mu.Unlock()
	<-ended
	return ctx.Err()
}
