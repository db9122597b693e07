package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/e2e/proc"
)

// trio is three brokers of one peer that form a cluster: ids 1, 2, 3.
type trio struct {
	name  string
	nodes []*broker
	cl    *kgo.Client
	adm   *kadm.Client
	// quorum finds the id of the broker that leads the metadata quorum.
	quorum func(ctx context.Context, c *trio) (int, error)
}

func (c *trio) addr() string   { return c.each((*broker).addr) }
func (c *trio) pid() string    { return c.each((*broker).pid) }
func (c *trio) who() string    { return c.name }
func (c *trio) String() string { return fmt.Sprintf("%s (logs: %s ...)", c.name, c.nodes[0].log) }

func (c *trio) each(f func(*broker) string) string {
	var list []string
	for _, b := range c.nodes {
		list = append(list, f(b))
	}
	return strings.Join(list, ",")
}

// startTrios starts a cluster of each peer.
func startTrios(o options, dir string) ([]*trio, error) {
	kinds := []func(options, []int) ([]peer, func(context.Context, *trio) (int, error)){varveNodes}
	if o.kafkaToo {
		kinds = append(kinds, kafkaNodes)
	}
	var cs []*trio
	for _, kind := range kinds {
		c, err := startTrio(o, dir, kind)
		if err != nil {
			return nil, err
		}
		cs = append(cs, c)
	}
	return cs, nil
}

func startTrio(o options, dir string, kind func(options, []int) ([]peer, func(context.Context, *trio) (int, error))) (*trio, error) {
	first, err := freePorts(12)
	if err != nil {
		return nil, err
	}
	nodes, quorum := kind(o, []int{first, first + 4, first + 8})
	c := &trio{name: nodes[0].name, quorum: quorum}
	for i, p := range nodes {
		b, err := launch(p, filepath.Join(o.work, fmt.Sprintf("%s-%s-%d", dir, p.name, i+1)))
		if err != nil {
			return nil, err
		}
		c.nodes = append(c.nodes, b)
	}
	for _, b := range c.nodes {
		if _, err := ready(o, b, "-expect-brokers", "3", "-timeout", "180s"); err != nil {
			return nil, err
		}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.addr(), ",")...), kgo.MetadataMinAge(20*time.Millisecond), kgo.DialTimeout(time.Second))
	if err != nil {
		return nil, err
	}
	c.cl, c.adm = cl, kadm.NewClient(cl)
	return c, nil
}

func stopTrios(cs []*trio) {
	for _, c := range cs {
		c.adm.Close()
		done := make(chan struct{})
		for _, b := range c.nodes {
			go func() { b.stop(syscall.SIGTERM); done <- struct{}{} }()
		}
		for range c.nodes {
			<-done
		}
	}
}

// varveNodes are brokers with an etcd member in each and no archive, since Kafka has none beside them either.
func varveNodes(o options, ports []int) ([]peer, func(context.Context, *trio) (int, error)) {
	var members, etcd []string
	for i, p := range ports {
		etcd = append(etcd, addr(p+3))
		members = append(members, fmt.Sprintf("%d@127.0.0.1:%d:%d", i+1, p+2, p+3))
	}
	var nodes []peer
	for i, port := range ports {
		nodes = append(nodes, peer{
			name: "varve", port: port,
			prepare: func(dir string, port int) error {
				if err := os.MkdirAll(dir, 0o755); err != nil {
					return err
				}
				conf := strings.Join([]string{
					fmt.Sprintf("node.id=%d", i+1), "listeners=PLAINTEXT://" + addr(port), "admin.listen=" + addr(port+1), "log.dirs=" + filepath.Join(dir, "data"),
					"etcd.initial.cluster=" + strings.Join(members, ","), "archive.url=", "group.initial.rebalance.delay.ms=0", "offsets.topic.replication.factor=3", "",
				}, "\n")
				return os.WriteFile(filepath.Join(dir, "server.properties"), []byte(conf), 0o644)
			},
			command: func(dir string, _ int) *exec.Cmd {
				return exec.Command(o.varve, "server", "--config", filepath.Join(dir, "server.properties"))
			},
		})
	}
	return nodes, func(ctx context.Context, _ *trio) (int, error) {
		i, err := proc.QuorumLeader(ctx, etcd)
		return i + 1, err
	}
}

// kafkaNodes are combined KRaft nodes.
func kafkaNodes(o options, ports []int) ([]peer, func(context.Context, *trio) (int, error)) {
	var boot, initial []string
	for i, p := range ports {
		boot = append(boot, addr(p+1))
		initial = append(initial, fmt.Sprintf("%d@%s:%s", i+1, addr(p+1), kafkaUUID()))
	}
	bin := func(name string) string { return filepath.Join(o.kafka, "bin", name) }
	var nodes []peer
	for i, port := range ports {
		one := kafkaPeer(o)
		one.port = port
		one.prepare = func(dir string, port int) error {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
			conf, err := exec.Command(bin("mkconf"), dir, strconv.Itoa(i+1), strconv.Itoa(port), strconv.Itoa(port+1), strings.Join(boot, ","), "3").Output()
			if err != nil {
				return fmt.Errorf("mkconf: %w", err)
			}
			file := filepath.Join(dir, "server.properties")
			if err := os.WriteFile(file, conf, 0o644); err != nil {
				return err
			}
			out, err := exec.Command(bin("kafka-storage"), "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", file, "--initial-controllers", strings.Join(initial, ",")).CombinedOutput()
			if err != nil {
				return fmt.Errorf("kafka-storage format: %w\n%s", err, out)
			}
			return nil
		}
		nodes = append(nodes, one)
	}
	return nodes, func(ctx context.Context, c *trio) (int, error) {
		req := kmsg.NewPtrDescribeQuorumRequest()
		t, p := kmsg.NewDescribeQuorumRequestTopic(), kmsg.NewDescribeQuorumRequestTopicPartition()
		t.Topic, t.Partitions = "__cluster_metadata", append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		resp, err := req.RequestWith(ctx, c.cl)
		if err != nil {
			return 0, err
		}
		if len(resp.Topics) == 0 || len(resp.Topics[0].Partitions) == 0 || resp.Topics[0].Partitions[0].LeaderID < 1 {
			return 0, fmt.Errorf("no quorum leader: error %d", resp.ErrorCode)
		}
		return int(resp.Topics[0].Partitions[0].LeaderID), nil
	}
}

// kafkaUUID is a random id in Kafka's text form, which must not begin with a dash.
func kafkaUUID() string {
	for {
		var b [16]byte
		rand.Read(b[:])
		if s := base64.RawURLEncoding.EncodeToString(b[:]); s[0] != '-' {
			return s
		}
	}
}

// settle waits until all partitions of the topics have a leader and all replicas in sync, and the cluster three brokers.
func (c *trio) settle(topics ...string) error {
	var last error
	for range 600 {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		m, err := c.adm.Metadata(ctx, topics...)
		cancel()
		if last = err; err == nil {
			n, behind := 0, 0
			for _, t := range m.Topics {
				for _, p := range t.Partitions {
					n++
					if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
						behind++
					}
				}
			}
			if len(m.Brokers) == 3 && n > 0 && behind == 0 {
				return nil
			}
			last = fmt.Errorf("%d brokers, %d of %d partitions not in sync", len(m.Brokers), behind, n)
		}
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("%s: topics %v do not settle: %w", c, topics, last)
}

// ledByOthers counts the partitions of a topic that brokers other than the given one lead.
func (c *trio) ledByOthers(topic string, id int) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	m, err := c.adm.Metadata(ctx, topic)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, p := range m.Topics[topic].Partitions {
		if p.Leader >= 0 && int(p.Leader) != id && p.Err == nil {
			n++
		}
	}
	return n, nil
}

// restart starts a node that was stopped, on its directory.
func (c *trio) restart(o options, id int) error {
	old := c.nodes[id-1]
	b, err := launch(old.peer, old.dir)
	if err != nil {
		return err
	}
	c.nodes[id-1] = b
	_, err = ready(o, b, "-expect-brokers", "3", "-timeout", "180s")
	return err
}

// assignment is all three ids, the given one first: it leads.
func assignment(leader int) string {
	ids := []string{strconv.Itoa(leader)}
	for id := 1; id <= 3; id++ {
		if id != leader {
			ids = append(ids, strconv.Itoa(id))
		}
	}
	return strings.Join(ids, ",")
}

// otherThan picks a broker that is not the given one.
func otherThan(id int) int { return id%3 + 1 }
