package main

import (
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/varvelog/varve/broker"
	"github.com/varvelog/varve/broker/replica"
	"github.com/varvelog/varve/meta"
)

// replicaOptions are those of the partitions that this broker hosts.
func (n *node) replicaOptions() replica.Options {
	c := n.c
	ms := func(key string) time.Duration { return time.Duration(c.Int(key)) * time.Millisecond }
	return replica.Options{
		NodeID: n.id, Dir: c.Dir(), TopicConfig: n.topicConfig, LocalMaxBytes: max(c.Int("archive.local.max.bytes"), 0),
		RetentionCheck: ms("log.retention.check.interval.ms"), OpenFiles: int(c.Int("log.open.files.max")), Logger: n.log, Registerer: n.reg,

		Controlled: true, Intact: n.member.Intact(), BrokerEpoch: n.brokerEpoch,
		MinISR:   n.minISR,
		Throttle: n.throttle, Throttled: n.throttled,
		Upstream: &broker.Upstream{NodeID: n.id, Peers: n.peers},
		LagMax:   ms("replica.lag.time.max.ms"), Fetchers: int(c.Int("num.replica.fetchers")), FetchWait: ms("replica.fetch.wait.max.ms"),
		FetchMin: int(c.Int("replica.fetch.min.bytes")), FetchMax: int(c.Int("replica.fetch.response.max.bytes")),
		FetchPartMax: int(c.Int("replica.fetch.max.bytes")), FetchBackoff: ms("replica.fetch.backoff.ms"),
		AnswerMax:    ms("replica.socket.timeout.ms"),
		HWCheckpoint: ms("replica.high.watermark.checkpoint.interval.ms"),
	}
}

// peerAddress is where another broker listens for its like: the listener inter.broker.listener.name, or its first.
func (n *node) peerAddress(id int32) (address string, epoch int64, ok bool) {
	b := n.store.Image().Brokers[id]
	if b == nil || len(b.Listeners) == 0 {
		return "", 0, false
	}
	l := b.Listeners[0]
	name := n.c.String("inter.broker.listener.name")
	if i := slices.IndexFunc(b.Listeners, func(l meta.Listener) bool { return l.Name == name }); i >= 0 {
		l = b.Listeners[i]
	}
	return net.JoinHostPort(l.Host, strconv.Itoa(int(l.Port))), b.Epoch, true
}

// peerDown is told that a broker does not answer.
func (n *node) peerDown(id int32) { n.detector.Suspect(id) }

// brokerEpoch is that of this process's registration, -1 before there is one.
func (n *node) brokerEpoch() int64 {
	if r := n.store.Registration(); r.Epoch != 0 {
		return r.Epoch
	}
	return -1
}
