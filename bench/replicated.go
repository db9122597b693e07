package main

import (
	"context"
	"fmt"
	"strconv"
	"syscall"
	"time"
)

// failoverSuite: the longest time without an acknowledgement (acks=all, min.insync.replicas=2, 2,000 records a second to one partition) when its
// leader is killed, when it is stopped, and when it also leads the metadata quorum and is killed.
func failoverSuite(o options, r *report) error {
	cases := []struct {
		name   string
		quorum bool
		sig    syscall.Signal
	}{{"failover/kill", false, syscall.SIGKILL}, {"failover/kill-quorum", true, syscall.SIGKILL}, {"failover/term", false, syscall.SIGTERM}}
	if !anyMatch(o, cases[0].name, cases[1].name, cases[2].name) {
		return nil
	}
	cs, err := startTrios(o, "failover")
	if err != nil {
		return err
	}
	defer stopTrios(cs)
	for n, k := range cases {
		err := pair(o, r, k.name, cs, func(c *trio, run int) (map[string]float64, error) {
			return failover(o, c, fmt.Sprintf("f%d-%d", n, run), k.quorum, k.sig)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// failoverAfter is when the leader goes, and failoverRest what is measured from then on: Kafka's clients take up to 15 s.
const (
	failoverAfter = 5 * time.Second
	failoverRest  = 20 * time.Second
)

func failover(o options, c *trio, topic string, quorum bool, sig syscall.Signal) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	victim, err := c.quorum(ctx, c)
	cancel()
	if err != nil {
		return nil, err
	}
	if !quorum {
		victim = otherThan(victim)
	}
	shape := []string{"-topic", topic, "-partitions", "1", "-assign", assignment(victim), "-topic-config", "min.insync.replicas=2"}
	if _, err := load(o, c, append(shape, "-mode", "create")...); err != nil {
		return nil, err
	}
	if err := c.settle(topic); err != nil {
		return nil, err
	}
	// Acknowledgements flow before anything is measured: a gap is between two of them.
	if _, err := load(o, c, append(shape, "-mode", "produce", "-records", "4000", "-rate", "2000", "-linger", "0s", "-duration", "60s")...); err != nil {
		return nil, err
	}
	type outcome struct {
		res result
		err error
	}
	done := make(chan outcome, 1)
	began := time.Now()
	go func() {
		res, err := load(o, c, append(shape, "-mode", "produce", "-rate", "2000", "-linger", "0s", "-metadata-min-age", "100ms", "-duration", (failoverAfter+failoverRest).String())...)
		done <- outcome{res, err}
	}()
	time.Sleep(time.Until(began.Add(failoverAfter)))
	stopped := make(chan error, 1)
	go func() { stopped <- c.nodes[victim-1].stop(sig) }()
	x := <-done
	if err := <-stopped; err != nil {
		return nil, err
	}
	if x.err != nil {
		return nil, x.err
	}
	if err := c.restart(o, victim); err != nil {
		return nil, err
	}
	if err := c.settle(topic); err != nil {
		return nil, err
	}
	if _, err := load(o, c, "-mode", "delete", "-topic", topic); err != nil {
		return nil, err
	}
	return map[string]float64{"max_ack_gap_ms": x.res.num("max_ack_gap_ms")}, nil
}

// replicatedSuite: produce throughput and the CPU of all three brokers, 1 KiB records, replication factor 3, acks=all, min.insync.replicas=2.
func replicatedSuite(o options, r *report) error {
	cases := []struct {
		name  string
		batch int
	}{{"produce/rf3/16K", 16 << 10}, {"produce/rf3/256K", 256 << 10}}
	if !anyMatch(o, cases[0].name, cases[1].name) {
		return nil
	}
	cs, err := startTrios(o, "rf3")
	if err != nil {
		return err
	}
	defer stopTrios(cs)
	for n, k := range cases {
		err := pair(o, r, k.name, cs, func(c *trio, run int) (map[string]float64, error) {
			topic := fmt.Sprintf("r%d-%d", n, run)
			res, err := load(o, c, "-mode", "produce", "-topic", topic, "-partitions", "6", "-rf", "3", "-topic-config", "min.insync.replicas=2",
				"-batch-bytes", strconv.Itoa(k.batch), "-duration", seconds(o.seconds), "-warmup", "2s")
			if err != nil {
				return nil, err
			}
			if _, err := load(o, c, "-mode", "delete", "-topic", topic); err != nil {
				return nil, err
			}
			return map[string]float64{"mb_per_s": res.num("mb_per_s"), "broker_cpu_s_per_gb": res.num("broker_cpu_s_per_gb")}, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// manySuite: 2,000 partitions of replication factor 3, each written to: the CPU of the busiest broker while nothing happens, and the time from
// kill -9 of one broker until the others lead all.
func manySuite(o options, r *report) error {
	const name, partitions = "rf3/2000", 2000
	if !anyMatch(o, name) {
		return nil
	}
	cs, err := startTrios(o, "many")
	if err != nil {
		return err
	}
	defer stopTrios(cs)
	for _, c := range cs {
		if _, err := load(o, c, "-mode", "create", "-topic", "many", "-partitions", strconv.Itoa(partitions), "-rf", "3", "-topic-config", "min.insync.replicas=2"); err != nil {
			return err
		}
		if _, err := load(o, c, "-mode", "produce", "-topic", "many", "-record-size", "100", "-linger", "0s", "-batch-bytes", "1024", "-rate", "5000", "-duration", "4s"); err != nil {
			return err
		}
		if err := c.settle("many"); err != nil {
			return err
		}
	}
	return pair(o, r, name, cs, func(c *trio, run int) (map[string]float64, error) {
		before, at := c.cpu(), time.Now()
		time.Sleep(10 * time.Second)
		busiest := 0.0
		for i, cpu := range c.cpu() {
			busiest = max(busiest, 100*(cpu-before[i])/time.Since(at).Seconds())
		}
		victim := run%3 + 1
		killed := time.Now()
		if err := c.nodes[victim-1].stop(syscall.SIGKILL); err != nil {
			return nil, err
		}
		for n := 0; n < partitions; {
			if time.Since(killed) > 2*time.Minute {
				return nil, fmt.Errorf("%s: %d of %d partitions have a leader two minutes after broker %d was killed", c, n, partitions, victim)
			}
			n, _ = c.ledByOthers("many", victim) // an error is one more try
		}
		took := time.Since(killed)
		if err := c.restart(o, victim); err != nil {
			return nil, err
		}
		return map[string]float64{"failover_ms": float64(took.Milliseconds()), "idle_cpu_percent": busiest}, c.settle("many")
	})
}

// cpu is the seconds that each broker has burnt so far.
func (c *trio) cpu() (list []float64) {
	for _, b := range c.nodes {
		list = append(list, cpuSeconds(b))
	}
	return list
}
