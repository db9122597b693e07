package sim

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/varvelog/varve/broker/replica"
)

// Cluster is a run with several brokers. NewCluster and Run belong into the same synctest bubble.
type Cluster struct {
	stage
	shape      clusterPlan
	mutant     ClusterMutant
	nodes      []*node
	fabric     *fabric
	metaFaults *metaFaults
	owners     *owners
	faults     *saboteur
	commits    *commits

	mu      sync.Mutex
	isles   map[int32]int // guarded by mu; brokers whose way to the metadata store is cut, and how often
	clients int32         // guarded by mu; made so far
}

// clusterPlan is what a seed draws for a cluster, beside what it draws for every broker.
type clusterPlan struct {
	brokers   int
	machines  bool // machines crash, disks are lost
	partings  bool // every machine that crashes loses its disk, and is unregistered
	clocks    bool // clocks are set, and of what comes then no check goes by time
	session   time.Duration
	lagMax    time.Duration
	rebalance time.Duration
	fetchers  int
	replicas  int16 // of most topics

	unclean bool // some topics prefer a leader that may lack records to none
	sole    bool // some topics have one replica
	groups  bool // groups commit offsets
}

func drawCluster(rng *rand.Rand) (plan, clusterPlan) {
	p := draw(rng)
	p.length = time.Duration(40+rng.IntN(50)) * time.Second
	p.producers, p.consumers = 2, 1+rng.IntN(2)
	p.topics = rng.IntN(4) == 0
	p.localMax = 0
	pick := func(ms ...int64) time.Duration { return time.Duration(ms[rng.IntN(len(ms))]) * time.Millisecond }
	c := clusterPlan{
		brokers: 3, machines: rng.IntN(4) > 0, session: pick(2000, 4000, 9000), lagMax: pick(1500, 4000, 10_000),
		rebalance: pick(0, 5000, 20_000), fetchers: 1 + rng.IntN(2), replicas: 3,
	}
	if rng.IntN(5) == 0 {
		c.brokers = 5
	}
	c.clocks = rng.IntN(2) == 0
	c.unclean, c.sole, c.groups = rng.IntN(3) == 0, rng.IntN(3) == 0, rng.IntN(2) == 0
	return p, c
}

// NewCluster draws a cluster from the seed; nothing runs yet.
func NewCluster(seed uint64, o Options) *Cluster {
	c := &Cluster{mutant: o.Cluster, isles: map[int32]int{}}
	p, shape := drawCluster(rand.New(rand.NewPCG(seed, 2)))
	c.mutant.adjust(&p, &shape)
	c.shape = shape
	c.setUp(seed, "cluster", o, p, map[string]string{"min.insync.replicas": "2"})
	c.fabric = newFabric(c.rand("fabric"))
	c.metaFaults = &metaFaults{rng: c.rand("metadata faults"), slow: usualSlow}
	c.owners = newOwners(c)
	c.faults = newSaboteur(c, c.rand("saboteur"))
	c.history.replicated = true
	for id := range c.shape.brokers {
		c.nodes = append(c.nodes, newNode(c, int32(id+1)))
	}
	c.caller = func(rng *rand.Rand) caller { return newRouter(c, rng) }
	c.leader = c.led
	c.told = c.owners.told
	c.undelete = c.undeleteThrough
	c.commits = newCommits(c)
	c.history.dropped = c.commits.drop
	return c
}

// Run goes through the whole run and returns the first broken rule, or nil.
func (c *Cluster) Run() *Violation {
	c.begin()
	defer c.stop()
	c.event("plan %+v %+v mutant %q", c.plan, c.shape, c.mutant.Name)
	c.found()
	var watch sync.WaitGroup
	watching, stopWatching := context.WithCancel(context.Background())
	watch.Go(func() { c.owners.watch(watching) })
	c.work()
	c.faults.heal()
	c.settle()
	stopWatching()
	watch.Wait()
	for _, n := range c.nodes {
		n.hands.Lock()
		n.killed()
		n.hands.Unlock()
	}
	c.store.Wait()
	c.kv.Close()
	return c.verdict()
}

// found makes the cluster: the first process writes its id, the others find it.
func (c *Cluster) found() {
	if img, err := c.image(); err == nil {
		c.cluster = img.Cluster
	}
	var wg sync.WaitGroup
	for _, n := range c.nodes {
		wg.Go(func() {
			n.hands.Lock()
			defer n.hands.Unlock()
			n.start(c.ctx)
		})
	}
	wg.Wait()
}

// work runs clients and faults side by side until the plan's time is over, or a rule is broken.
func (c *Cluster) work() {
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(c.ctx, c.plan.length)
	defer cancel()
	for i := range c.plan.producers {
		wg.Go(func() { newProducer(&c.stage, i).run(ctx) })
	}
	for i := range c.plan.consumers {
		wg.Go(func() { newConsumer(&c.stage, i).run(ctx) })
	}
	wg.Go(func() { newSteward(c).run(ctx) })
	if c.shape.groups {
		for i := range 2 {
			wg.Go(func() { newGroupClient(c, i).run(ctx) })
		}
	}
	wg.Go(func() { c.auditAll(ctx) })
	c.faults.run(ctx)
	wg.Wait()
}

// led is the replica that leads p and knows it; nil if none does.
func (c *Cluster) led(p *part) *replica.Partition {
	img, err := c.image()
	if err != nil {
		return nil
	}
	t := img.TopicsByID[p.id.Topic]
	if t == nil {
		return nil
	}
	mp := t.Partitions[p.id.Partition]
	n := c.node(mp.Leader)
	if n == nil {
		return nil
	}
	rp := n.partition(p)
	if rp == nil || !rp.Leading() || rp.LeaderEpoch() != mp.LeaderEpoch {
		return nil
	}
	return rp
}

// node finds a broker, nil for an id that is none.
func (c *Cluster) node(id int32) *node {
	if id < 1 || int(id) > len(c.nodes) {
		return nil
	}
	return c.nodes[id-1]
}

// isolate cuts a broker's way to the metadata store, rejoin mends it; they count.
func (c *Cluster) isolate(id int32) { c.turnMeta(id, 1) }
func (c *Cluster) rejoin(id int32)  { c.turnMeta(id, -1) }

func (c *Cluster) turnMeta(id int32, by int) {
	c.mu.Lock()
	c.isles[id] += by
	cut := c.isles[id] > 0
	c.mu.Unlock()
	if l := c.node(id).now(); l != nil {
		if cut {
			l.meta.Disconnect()
		} else {
			l.meta.Connect()
		}
	}
}

func (c *Cluster) cutOff(id int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isles[id] > 0
}

func (c *Cluster) nextClient() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients++
	return firstClient + c.clients
}
