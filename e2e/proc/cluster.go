package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Cluster is several `varve server` processes on this machine. Broker i+1 is Brokers[i]; its data is below Dir/i+1, its
// configuration in Dir/i+1.properties.
type Cluster struct {
	Bin     string
	Dir     string
	Brokers []*Varve
	Members string   // etcd.initial.cluster of members inside the brokers
	Etcd    []string // HOST:PORT for clients of the member inside Brokers[i]
}

// NewCluster lays out n brokers that are not running: with an archive in a directory that they share, topics of replication factor
// min(n, 3) and min.insync.replicas 2, an etcd member in each. set is configuration key=value over that, of every broker; a key with
// an empty value is left out.
func NewCluster(bin, dir string, n int, set ...string) (*Cluster, error) {
	return NewClusterOn(slices.Repeat([]string{"127.0.0.1"}, n), bin, dir, set...)
}

// NewClusterOn is NewCluster with a broker on each of the hosts, which share the file system: how they get there is Varve.Spawn's.
func NewClusterOn(hosts []string, bin, dir string, set ...string) (*Cluster, error) {
	c := &Cluster{Bin: bin, Dir: dir}
	var members []string
	for i, host := range hosts {
		id := i + 1
		v := &Varve{Bin: bin, Dir: filepath.Join(dir, fmt.Sprint(id)), Config: filepath.Join(dir, fmt.Sprintf("%d.properties", id))}
		var at [4]string
		for j := range at {
			a, err := FreeAddrOn(host)
			if err != nil {
				return nil, err
			}
			at[j] = a
		}
		v.Listen, v.Admin = at[0], at[1]
		c.Etcd = append(c.Etcd, at[3])
		_, clients, _ := strings.Cut(at[3], ":")
		members = append(members, fmt.Sprintf("%d@%s:%s", id, at[2], clients))
		c.Brokers = append(c.Brokers, v)
	}
	c.Members = strings.Join(members, ",")
	rf := min(len(hosts), 3)
	for i, v := range c.Brokers {
		err := v.Configure(append([]string{
			fmt.Sprintf("node.id=%d", i+1), fmt.Sprintf("broker.rack=rack-%d", i+1), "listeners=PLAINTEXT://" + v.Listen, "admin.listen=" + v.Admin,
			"log.dirs=" + v.Dir, "archive.url=file://" + filepath.Join(dir, "archive"), "etcd.initial.cluster=" + c.Members,
			fmt.Sprintf("default.replication.factor=%d", rf), fmt.Sprintf("offsets.topic.replication.factor=%d", rf),
			fmt.Sprintf("min.insync.replicas=%d", min(rf, 2)), "group.initial.rebalance.delay.ms=0",
		}, set...)...)
		if err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Configure adds key=value to the configuration for the next start: the last word on a key counts, and an empty value removes the key.
func (v *Varve) Configure(set ...string) error {
	text, err := os.ReadFile(v.Config)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var lines []string
	for _, kv := range append(strings.Fields(string(text)), set...) {
		key, value, _ := strings.Cut(kv, "=")
		kept := lines[:0]
		for _, l := range lines {
			if !strings.HasPrefix(l, key+"=") {
				kept = append(kept, l)
			}
		}
		lines = kept
		if value != "" {
			lines = append(lines, kv)
		}
	}
	for _, d := range []string{filepath.Dir(v.Config), v.Dir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(v.Config, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

// Start starts all brokers, which need one another where they host etcd, and waits until all serve.
func (c *Cluster) Start(ctx context.Context) error {
	for _, v := range c.Brokers {
		if err := v.Begin(); err != nil {
			return err
		}
	}
	var errs []error
	for i, v := range c.Brokers {
		if err := v.Ready(ctx); err != nil {
			errs = append(errs, fmt.Errorf("broker %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// Stop asks all running brokers to end at once, and waits for all.
func (c *Cluster) Stop() error {
	errs := make(chan error, len(c.Brokers))
	for i, v := range c.Brokers {
		go func() {
			if !v.Started() || v.Ended() {
				errs <- nil
			} else if err := v.Stop(); err != nil {
				errs <- fmt.Errorf("broker %d: %w", i+1, err)
			} else {
				errs <- nil
			}
		}()
	}
	var all []error
	for range c.Brokers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// Broker is the one with the id.
func (c *Cluster) Broker(id int32) *Varve { return c.Brokers[id-1] }

// Bootstrap is every broker's address.
func (c *Cluster) Bootstrap() []string {
	var list []string
	for _, v := range c.Brokers {
		list = append(list, v.Listen)
	}
	return list
}
