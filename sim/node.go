package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/meta"
)

// node is one broker of a cluster, over all its lives.
type node struct {
	c  *Cluster
	id int32

	// Owned by whoever holds hands.
	files *vfs.Mem
	dir   string    // id of the data directory: another disk has another one
	older *snapshot // what the disk was like at some time; nil: nothing kept
	disks int       // made so far

	doubtful bool // a call to the disk has failed, or will: only a new process helps

	hands baton // held by who starts or ends a life, also while that takes its time: a fault of this node waits for the last one

	draining  atomic.Bool  // it is about to leave
	storeAway atomic.Bool  // the way to the object store is cut
	ahead     atomic.Int64 // by how much its clock is ahead of the true time, ns

	mu   sync.Mutex
	life *life // guarded by mu; nil: none
}

// snapshot is a copy of a disk.
type snapshot struct {
	files *vfs.Mem
	dir   string
}

func newNode(c *Cluster, id int32) *node {
	n := &node{c: c, id: id, hands: newBaton()}
	n.newDisk()
	return n
}

func (n *node) newDisk() {
	n.disks++
	n.files, n.dir = vfs.NewMem(), fmt.Sprintf("disk %d of broker %d", n.disks, n.id)
	n.files.SetClock(n.wall)
}

// wall is what the broker's clock says.
func (n *node) wall() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) }

// now is the life that runs, nil if none does.
func (n *node) now() *life {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.life
}

func (n *node) set(l *life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.life = l
}

// start runs processes until one serves, as a supervisor would. With hands held.
func (n *node) start(ctx context.Context) {
	n.c.fabric.booted(n.id)
	n.doubtful = false
	for ctx.Err() == nil {
		l := newLife(n)
		n.set(l)
		err := l.start(ctx)
		if err == nil {
			n.c.event("broker %d serves, epoch %d", n.id, l.store.Registration().Epoch)
			return
		}
		n.c.event("broker %d: start refused: %v", n.id, err)
		n.c.fabric.killed(n.id)
		l.kill()
		n.files.Kill()
		n.c.history.blur(false)
		n.set(nil)
		pause(ctx, startPause)
	}
}

// killed ends the process without warning; what it wrote is there for the next one. With hands held.
func (n *node) killed() {
	n.c.fabric.killed(n.id)
	if l := n.now(); l != nil {
		l.kill()
	}
	n.set(nil)
	if n.c.mutant.Forgetful {
		n.files.Crash(0)
		return
	}
	n.files.Kill()
	n.c.history.blur(false)
}

// partition is the replica of p on this node; nil if it has none that can be used.
func (n *node) partition(p *part) *replica.Partition {
	l := n.now()
	if l == nil {
		return nil
	}
	return l.partition(p)
}

func (l *life) partition(p *part) *replica.Partition {
	m := l.manager.Load()
	if m == nil {
		return nil
	}
	for _, rp := range m.All() {
		if rp.ID() == p.id {
			return rp
		}
	}
	return nil
}

// admitted says that the controller has dealt with the running process.
func (n *node) admitted(img *meta.Image) bool {
	l := n.now()
	if l == nil || !l.serving.Load() {
		return false
	}
	return img.Admitted(n.id, l.store.Registration().Epoch)
}
