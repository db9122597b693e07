package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/varvelog/varve/broker/control"
	"github.com/varvelog/varve/broker/peer"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/meta"
)

// join registers this broker, stands for control, watches the other brokers, and waits until the controller, which may be this very
// process, has dealt with the registration: what the image then says that this broker leads is elected for this process.
func (n *node) join(ctx context.Context, advertised []meta.Listener, spawn func(string, func(context.Context) error)) error {
	previous, line, err := replica.CleanEpoch(vfs.OS{}, n.c.Dir())
	if err != nil {
		n.log.Warn("clean-shutdown marker", "err", err)
	}
	session := time.Duration(n.c.Int("broker.session.timeout.ms")) * time.Millisecond
	options := n.controlOptions()
	n.member = &control.Membership{
		Store: n.store, TTL: session, Logger: n.log, Rules: control.Rules{MinISR: options.MinISR}, Again: n.markAgain,
		Broker: meta.Broker{
			ID: n.id, Rack: n.c.String("broker.rack"), Listeners: advertised, Admin: n.admin.addr(), Directory: n.data.id, Previous: previous, Continues: line,
		},
	}
	controller := control.New(n.store, options)
	n.detector = control.NewDetector(n.store, control.DetectorOptions{
		NodeID: n.id, Dial: n.dialBroker, Session: session, Logger: n.log, Registerer: n.reg,
	})
	if err := n.member.Join(ctx); err != nil {
		return fmt.Errorf("register broker %d: %w", n.id, err)
	}
	n.leave, n.left = make(chan struct{}), make(chan struct{})
	spawn("registration", func(ctx context.Context) error {
		defer close(n.left)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-n.leave:
				cancel()
			case <-ctx.Done():
			}
		}()
		return n.member.Run(ctx)
	})
	spawn("controller", controller.Run)
	spawn("failure detector", n.detector.Run)
	return n.member.AwaitAdmission(ctx)
}

func (n *node) controlOptions() control.Options {
	o := control.Options{
		NodeID: n.id, Imbalance: n.c.Int("leader.imbalance.per.broker.percentage"), Logger: n.log, Registerer: n.reg,
		Unclean: func(t *meta.Topic) bool { return n.inForce(t).UncleanLeaderElection },
		MinISR:  n.minISR,
	}
	if n.c.Bool("auto.leader.rebalance.enable") {
		o.Rebalance = time.Duration(n.c.Int("leader.imbalance.check.interval.seconds")) * time.Second
	}
	return o
}

// dialBroker connects to another broker on the listener that brokers use among themselves.
func (n *node) dialBroker(ctx context.Context, b *meta.Broker) (net.Conn, error) {
	if len(b.Listeners) == 0 {
		return nil, fmt.Errorf("broker %d has no listener", b.ID)
	}
	name := n.c.String("inter.broker.listener.name")
	i := max(slices.IndexFunc(b.Listeners, func(l meta.Listener) bool { return l.Name == name }), 0)
	l := b.Listeners[i]
	return peerDialer.DialContext(ctx, "tcp", net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))))
}

// peerDialer finds a machine that is gone within some 4 s, where connections do not break by themselves.
var peerDialer = peer.Dialer(4 * time.Second)

// handOverMax bounds how long a stop waits for leaderships to be handed over: without a controller nobody takes them.
const handOverMax = 5 * time.Second

// forwarding is how long a broker that has handed over its leaderships goes on answering who leads now: a client whose connection ends
// without that tries again here, backs off, and asks others only then, which with some clients takes seconds.
const forwarding = time.Second

// handOver moves leaderships away while this broker still serves, and lets its clients follow them.
func (n *node) handOver(ctx context.Context) {
	drain, cancel := context.WithTimeout(ctx, handOverMax)
	defer cancel()
	began := time.Now()
	held := control.Held(n.store.Image(), n.id, n.member.Rules)
	if err := n.member.Drain(drain); err != nil {
		n.log.Warn("hand over leaderships", "err", err)
		return
	}
	n.log.Info("leaderships are handed over", "took", time.Since(began))
	if held > 0 {
		sleep(ctx, forwarding)
	}
}

// lastTogetherMax bounds how long a stopping broker with an etcd member in it stays for others that are stopping too.
const lastTogetherMax = 3 * time.Second

// deregister ends the registration. Where etcd is in this process, and all brokers that are left are about to stop as well, it then
// waits for them: without this member they might have no etcd any more to finish with, and wait for it in vain. While any broker goes
// on, that is not so, and nothing is waited for.
func (n *node) deregister(ctx context.Context) {
	close(n.leave)
	<-n.left
	if n.etcd.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lastTogetherMax)
	defer cancel()
	for ctx.Err() == nil && n.onlyStopping() {
		sleep(ctx, 5*time.Millisecond)
	}
}

// onlyStopping says that there are other brokers, and that all are about to stop.
func (n *node) onlyStopping() bool {
	others := 0
	for id, b := range n.store.Image().Brokers {
		if id == n.id {
			continue
		}
		if !b.Draining {
			return false
		}
		others++
	}
	return others > 0
}
