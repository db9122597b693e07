package etcdkv

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

const (
	rejoinDial  = time.Second      // for the others to answer at all: those of a new cluster do not
	rejoinAll   = 30 * time.Second // to leave and join
	rejoinPause = 200 * time.Millisecond
)

// markFile is left in a member's directory when etcd finds that its files lack what this member has told the others, as an older copy of
// a disk does: raft panics when the others commit what it says to have and has not.
func (o *ServerOptions) markFile() string { return filepath.Join(o.Dir, "rejoin") }

func (o *ServerOptions) marked() bool {
	if len(o.Members) < 2 {
		return false
	}
	_, err := os.Stat(o.markFile())
	return err == nil
}

// rejoin prepares the start of a member with an empty directory, or with one that is marked as older than what the others know, where these
// may have been a cluster with it before: one that has lost its disk, or a part of it, cannot take up its former identity, whose votes it has
// forgotten. It is removed and added anew, which the others' majority must agree to, and starts as a new member of theirs; what it had is
// removed after that, the mark last. In a new cluster nobody answers yet, and nothing is done.
func (o *ServerOptions) rejoin(ctx context.Context, cfg *embed.Config) error {
	if wals, err := filepath.Glob(filepath.Join(o.Dir, "member", "wal", "*.wal")); err != nil || len(wals) > 0 && !o.marked() {
		return err
	}
	var self Member
	var others []string
	for _, m := range o.Members {
		if m.ID == o.ID {
			self = m
		} else {
			others = append(others, m.Endpoint())
		}
	}
	if len(others) == 0 {
		return nil
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: others, DialTimeout: rejoinDial, Logger: newZap(o.Logger, nil, new(atomic.Bool))})
	if err != nil {
		return fmt.Errorf("client of the other members: %w", err)
	}
	defer c.Close()
	lctx, cancel := context.WithTimeout(ctx, rejoinDial)
	list, err := c.MemberList(lctx)
	cancel()
	if err != nil {
		o.Logger.Debug("no cluster of other members answers", "err", err)
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, rejoinAll)
	defer cancel()
	listed := false
	for _, m := range list.Members {
		if !slices.Contains(m.PeerURLs, self.peerURL()) {
			continue
		}
		if listed = m.Name == ""; listed {
			continue // it has never started, or was added anew before a crash
		}
		o.Logger.Warn("etcd directory is empty or too old, the other members know this one: it joins them anew", "dir", o.Dir, "member", self.ID)
		err := whenHealthy(ctx, func() error { _, err := c.MemberRemove(ctx, m.ID); return err })
		if err != nil {
			return fmt.Errorf("remove the former member: %w", err)
		}
	}
	if !listed {
		err := whenHealthy(ctx, func() error { _, err := c.MemberAdd(ctx, []string{self.peerURL()}); return err })
		if err != nil {
			return fmt.Errorf("join the other members: %w", err)
		}
	}
	cfg.ClusterState = embed.ClusterStateFlagExisting
	if err := os.RemoveAll(filepath.Join(o.Dir, "member")); err != nil {
		return err
	}
	if err := os.Remove(o.markFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// whenHealthy tries a change of the members again while etcd refuses it because not all of them have been connected for some seconds.
func whenHealthy(ctx context.Context, change func() error) error {
	for {
		err := change()
		if !is(err, rpctypes.ErrUnhealthy) && !is(err, rpctypes.ErrMemberNotEnoughStarted) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(rejoinPause):
		}
	}
}
