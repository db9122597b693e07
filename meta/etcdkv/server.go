package etcdkv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"

	"github.com/varvelog/varve/meta"
)

var (
	// ErrDirInUse says that another process has the data directory.
	ErrDirInUse = errors.New("etcd data directory is in use by another process")
	// ErrCorrupt says that the data directory cannot be read.
	ErrCorrupt = errors.New("etcd data directory is damaged")
)

// ServerOptions of an embedded member.
type ServerOptions struct {
	Dir string // its own; made if it does not exist
	// Members are all members of a new cluster, and ID is this one. None: a single member that listens nowhere and is
	// reached only through Server.KV.
	Members []Member
	ID      int32
	// Listen, for a single member, are addresses that serve other clients too, as host:port or unix:/path; for tests
	// and operators. There is no authentication: use loopback.
	Listen         []string
	QuotaBytes     int64         // of the database; 0: 2 GiB. Above it etcd refuses writes
	RequestTimeout time.Duration // of KV; 0: 5 s
	Logger         *slog.Logger  // nil: slog.Default()
}

// Server is an embedded etcd member. Start it, use KV, Close it.
type Server struct {
	e    *embed.Etcd
	kv   *KV
	lock *os.File
	err  chan error

	streams   *streams
	mark      string      // file to leave when etcd panics; empty: none
	broken    atomic.Bool // etcd has said its last words: parts of it are gone, and it cannot be stopped in order
	closing   atomic.Bool // etcd's complaints about it are debug
	closeOnce sync.Once
	closeErr  error
}

const defaultQuota = 2 << 30

// Start starts a member and waits until it serves, which in a cluster needs a majority of members, or until ctx ends.
// ErrDirInUse and ErrCorrupt are told within a second. A member of a cluster whose directory is empty, or older than what it has told the
// others, joins them anew, which a majority without it must agree to.
func Start(ctx context.Context, o ServerOptions) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s, err := o.start(ctx)
	if err != nil && ctx.Err() == nil && o.marked() {
		o.Logger.Warn("this etcd member does not fit what the others know of it; it joins them anew", "dir", o.Dir, "err", err)
		s, err = o.start(ctx)
	}
	return s, err
}

func (o *ServerOptions) start(ctx context.Context) (*Server, error) {
	cfg, err := o.config()
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	if err := o.prepare(ctx, cfg); err != nil {
		lock.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	s := &Server{lock: lock, err: make(chan error, 1), streams: newStreams()}
	if len(o.Members) > 1 {
		s.mark = o.markFile()
	}
	cfg.GRPCAdditionalServerOptions = append(cfg.GRPCAdditionalServerOptions, grpc.ChainStreamInterceptor(s.streams.intercept))
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZap(o.Logger, s.fatal, &s.closing))
	if s.e, err = s.startEtcd(cfg); err == nil {
		err = s.ready(ctx)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("start etcd in %s: %w", o.Dir, err)
	}
	s.kv = newKV(v3client.New(s.e.Server), o.RequestTimeout)
	return s, nil
}

// prepare makes sure that etcd can open what is in the directory. What is about to be removed is not looked at: a former start in this process may
// still hold it.
func (o *ServerOptions) prepare(ctx context.Context, cfg *embed.Config) error {
	member := filepath.Join(o.Dir, "member")
	if o.marked() {
		if err := o.rejoin(ctx, cfg); err != nil {
			return err
		}
		return probe(member)
	}
	if err := probe(member); err != nil {
		return err
	}
	return o.rejoin(ctx, cfg)
}

// fatal keeps the first of etcd's last words. Where it panics, its files are not what they have to be, and the next start of a member of a
// cluster begins without them; a fatal error, as of a full disk, says nothing against them.
func (s *Server) fatal(level zapcore.Level, msg string) {
	s.broken.Store(true)
	if level == zapcore.PanicLevel && s.mark != "" && !s.closing.Load() {
		if err := os.WriteFile(s.mark, []byte(msg+"\n"), 0o600); err != nil {
			msg += "; " + err.Error()
		}
	}
	select {
	case s.err <- fmt.Errorf("etcd stopped: %s", msg):
	default:
	}
}

// startEtcd runs etcd's start in a goroutine of its own, since etcd ends that when it finds its files damaged: then the
// goroutine's leftovers stay until the process ends.
func (s *Server) startEtcd(cfg *embed.Config) (*embed.Etcd, error) {
	type started struct {
		e   *embed.Etcd
		err error
	}
	done := make(chan started, 1)
	go func() {
		r := started{err: ErrCorrupt}
		defer func() {
			if p := recover(); p != nil {
				r = started{err: fmt.Errorf("%w: %v", ErrCorrupt, p)}
			}
			done <- r
		}()
		e, err := embed.StartEtcd(cfg)
		r = started{e, err}
	}()
	select {
	case r := <-done:
		select {
		case err := <-s.err:
			return r.e, fmt.Errorf("%w: %w", ErrCorrupt, err)
		default:
		}
		return r.e, startError(r.err)
	case err := <-s.err:
		late := time.NewTimer(time.Second)
		defer late.Stop()
		select {
		case r := <-done: // it has listeners, which have to be closed
			return r.e, fmt.Errorf("%w: %w", ErrCorrupt, err)
		case <-late.C:
			return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
		}
	}
}

// startError tells damage from what the system refuses, as a port in use or a full disk.
func startError(err error) error {
	var sys syscall.Errno
	var network *net.OpError
	if err == nil || errors.As(err, &sys) || errors.As(err, &network) || errors.Is(err, ErrCorrupt) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrCorrupt, err)
}

func (s *Server) ready(ctx context.Context) error {
	select {
	case <-s.e.Server.ReadyNotify():
		return nil
	case <-s.e.Server.StopNotify():
		select {
		case err := <-s.err:
			return err
		default:
			return errors.New("etcd stopped while it started")
		}
	case err := <-s.err:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no majority of members yet: %w: %w", meta.ErrUnavailable, ctx.Err())
	}
}

// KV is the member's own client, without sockets between. Close of the server closes it.
func (s *Server) KV() *KV { return s.kv }

// Err yields an error if etcd ends by itself, as on a failing disk: the process should end too.
func (s *Server) Err() <-chan error { return s.err }

// Close closes the client, then the server, and waits for both.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		if s.kv != nil {
			s.closeErr = s.kv.Close()
		}
		s.closing.Store(true)
		s.streams.end()
		switch {
		case s.e == nil:
		case s.broken.Load():
			s.abandon()
		default:
			// One that is not ready yet would wait for its listeners, and these for it.
			if s.kv == nil && s.e.Server != nil {
				s.e.Server.Stop()
			}
			if s.kv != nil {
				s.transfer()
			}
			s.e.Close()
		}
		if err := s.lock.Close(); err != nil && s.closeErr == nil {
			s.closeErr = fmt.Errorf("close etcd: %w", err)
		}
	})
	return s.closeErr
}

// abandon gives up the ports of an etcd that has lost one of its goroutines, and would be waited for in vain. What else it has stays until the
// process ends.
func (s *Server) abandon() {
	for _, l := range s.e.Peers {
		if l != nil && l.Listener != nil {
			l.Listener.Close()
		}
	}
	for _, l := range s.e.Clients {
		if l != nil {
			l.Close()
		}
	}
}

// transferMax bounds the hand-over of etcd's leadership. A member that lives has it within an election timeout.
const transferMax = time.Second

// transfer hands etcd's leadership, if it is here, to another member, so that the others need not wait for an election. Etcd itself would do
// so, and wait 7 s for a member that is stopping at the same time; one that has not taken it in time is not waited for.
func (s *Server) transfer() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Its error says only that nobody has taken over.
		_ = s.e.Server.TryTransferLeadershipOnShutdown()
	}()
	late := time.NewTimer(transferMax)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		s.e.Server.HardStop() // ends the transfer too, and one that Close would begin
		<-done
	}
}

// config is etcd's, tuned: small in memory, quick to start, compacting its history, and listening only where told.
func (o *ServerOptions) config() (*embed.Config, error) {
	if o.Dir == "" {
		return nil, fmt.Errorf("%w: no directory", meta.ErrInvalid)
	}
	c := embed.NewConfig()
	c.Dir = o.Dir
	c.Logger, c.LogLevel = "zap", "info" // "debug" would serve pprof
	c.EnableGRPCGateway = false
	c.AutoCompactionMode = embed.CompactorModeRevision
	c.AutoCompactionRetention = "10000"
	c.QuotaBackendBytes = o.QuotaBytes
	if c.QuotaBackendBytes <= 0 {
		// The quota also sets the size of the address space that bbolt maps; etcd's default maps 10 GiB.
		c.QuotaBackendBytes = defaultQuota - 1
	}
	c.WarningApplyDuration = 500 * time.Millisecond        // etcd's 100 ms is told many times over by any disk that is busy
	c.SnapshotCount, c.SnapshotCatchUpEntries = 5000, 2500 // entries kept in memory, and read again at a start
	c.MaxWalFiles, c.MaxSnapFiles = 3, 3
	c.ListenPeerUrls, c.ListenClientUrls, c.AdvertiseClientUrls = nil, nil, nil
	c.InitialClusterToken = "varve"
	if len(o.Members) > 0 {
		return c, o.clustered(c)
	}
	return c, o.single(c)
}

func (o *ServerOptions) single(c *embed.Config) error {
	c.Name = "varve"
	// A member must have an address, though nobody will call it.
	nowhere := url.URL{Scheme: "http", Host: "localhost:1"}
	c.AdvertisePeerUrls = []url.URL{nowhere}
	c.InitialCluster = c.Name + "=" + nowhere.String()
	// Alone it always wins its election: the timeout, up to five ticks of which a start waits for, only delays it.
	c.TickMs, c.ElectionMs = 50, 250
	c.PreVote = false
	// No follower has to catch up, and a start reads again and decodes what came after the last snapshot.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 500, 100
	for _, l := range o.Listen {
		u := url.URL{Scheme: "http", Host: l}
		if path, ok := strings.CutPrefix(l, "unix:"); ok {
			u = url.URL{Scheme: "unix", Path: path}
		}
		c.ListenClientUrls = append(c.ListenClientUrls, u)
		c.AdvertiseClientUrls = append(c.AdvertiseClientUrls, u)
	}
	return nil
}

func (o *ServerOptions) clustered(c *embed.Config) error {
	var initial []string
	var self *Member
	for i, m := range o.Members {
		initial = append(initial, m.name()+"="+m.peerURL())
		if m.ID == o.ID {
			self = &o.Members[i]
		}
	}
	if self == nil {
		return fmt.Errorf("%w: broker %d is not among the etcd members", meta.ErrInvalid, o.ID)
	}
	peer, err := url.Parse(self.peerURL())
	if err != nil {
		return fmt.Errorf("%w: %w", meta.ErrInvalid, err)
	}
	client, err := url.Parse(self.clientURL())
	if err != nil {
		return fmt.Errorf("%w: %w", meta.ErrInvalid, err)
	}
	c.Name = self.name()
	c.InitialCluster = strings.Join(initial, ",")
	c.ListenPeerUrls = []url.URL{bindURL(self.Host, self.PeerPort)}
	c.ListenClientUrls = []url.URL{bindURL(self.Host, self.ClientPort)}
	c.AdvertisePeerUrls, c.AdvertiseClientUrls = []url.URL{*peer}, []url.URL{*client}
	c.TickMs, c.ElectionMs = 100, 1000
	c.PreVote = true
	return nil
}
