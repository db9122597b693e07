package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Show the cluster's brokers and partitions",
		Args:  exactly(0, "a verb: status, brokers or partitions"),
		RunE: func(*cobra.Command, []string) error {
			return usagef("varve cluster takes a verb: status, brokers or partitions")
		},
	}
	cmd.AddCommand(clusterStatus(), clusterBrokers(), clusterPartitions())
	return cmd
}

// clusterVerb is a verb that shows something of the metadata.
func clusterVerb(use, short string, show func(io.Writer, kadm.Metadata) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: exactly(0, "no argument")}
	at := bootstrap(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return withAdmin(cmd, *at, func(ctx context.Context, adm *kadm.Client) error {
			m, err := adm.Metadata(ctx)
			if err != nil {
				return err
			}
			return show(cmd.OutOrStdout(), m)
		})
	}
	return cmd
}

func clusterStatus() *cobra.Command {
	return clusterVerb("status", "Show what the cluster is made of and what it lacks", func(w io.Writer, m kadm.Metadata) error {
		c := census(m)
		fmt.Fprintf(w, "cluster             %s\n", m.Cluster)
		fmt.Fprintf(w, "controller          %d\n", m.Controller)
		fmt.Fprintf(w, "brokers             %d alive%s\n", len(m.Brokers), gone(c.gone()))
		fmt.Fprintf(w, "topics              %d\n", len(m.Topics))
		fmt.Fprintf(w, "partitions          %d\n", c.partitions)
		fmt.Fprintf(w, "offline             %d\n", c.offline)
		fmt.Fprintf(w, "under-replicated    %d\n", c.under)
		fmt.Fprintf(w, "not at preferred    %d\n", c.away)
		return nil
	})
}

func gone(ids []int32) string {
	if len(ids) == 0 {
		return ""
	}
	return fmt.Sprintf(", %v gone", ids)
}

func clusterBrokers() *cobra.Command {
	return clusterVerb("brokers", "List the brokers with what they lead and hold", func(out io.Writer, m kadm.Metadata) error {
		c := census(m)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "broker\taddress\track\tleaders\tpreferred\treplicas\tout of sync\t")
		for _, b := range m.Brokers {
			rack, role := "", ""
			if b.Rack != nil {
				rack = *b.Rack
			}
			if b.NodeID == m.Controller {
				role = "controller"
			}
			h := c.of(b.NodeID)
			fmt.Fprintf(w, "%d\t%s:%d\t%s\t%d\t%d\t%d\t%d\t%s\n", b.NodeID, b.Host, b.Port, rack, h.leaders, h.preferred, h.replicas, h.behind, role)
		}
		for _, id := range c.gone() {
			h := c.of(id)
			fmt.Fprintf(w, "%d\t-\t\t%d\t%d\t%d\t%d\tgone\n", id, h.leaders, h.preferred, h.replicas, h.behind)
		}
		return w.Flush()
	})
}

func clusterPartitions() *cobra.Command {
	var only bool
	cmd := clusterVerb("partitions", "List partitions with their leaders and replicas", func(out io.Writer, m kadm.Metadata) error {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "topic\tpartition\tleader\tepoch\treplicas\tisr\toffline")
		for _, t := range m.Topics.Sorted() {
			for _, p := range t.Partitions.Sorted() {
				if only && !lacking(p) {
					continue
				}
				fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%v\t%v\t%v\n", t.Topic, p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, p.OfflineReplicas)
			}
		}
		return w.Flush()
	})
	cmd.Flags().BoolVar(&only, "under-replicated", false, "only those with a replica that is not in sync, or without a leader")
	return cmd
}

// lacking says that a partition has no leader, or a replica that is not in sync.
func lacking(p kadm.PartitionDetail) bool {
	return p.Leader < 0 || slices.ContainsFunc(p.Replicas, func(id int32) bool { return !slices.Contains(p.ISR, id) })
}

// counts of a cluster's partitions.
type counts struct {
	partitions, offline, under, away int
	brokers                          map[int32]*holding
}

type holding struct {
	alive                                bool
	leaders, preferred, replicas, behind int
}

func (c *counts) of(id int32) *holding {
	h := c.brokers[id]
	if h == nil {
		h = &holding{}
		c.brokers[id] = h
	}
	return h
}

// gone lists brokers that have replicas and are not alive.
func (c *counts) gone() []int32 {
	var out []int32
	for id, h := range c.brokers {
		if !h.alive {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func census(m kadm.Metadata) *counts {
	c := &counts{brokers: map[int32]*holding{}}
	for _, b := range m.Brokers {
		c.of(b.NodeID).alive = true
	}
	for _, t := range m.Topics {
		for _, p := range t.Partitions {
			c.partition(p)
		}
	}
	return c
}

func (c *counts) partition(p kadm.PartitionDetail) {
	c.partitions++
	if p.Leader < 0 {
		c.offline++
	} else {
		c.of(p.Leader).leaders++
	}
	if lacking(p) {
		c.under++
	}
	for i, id := range p.Replicas {
		h := c.of(id)
		h.replicas++
		if i == 0 {
			h.preferred++
			if p.Leader != id {
				c.away++
			}
		}
		if !slices.Contains(p.ISR, id) {
			h.behind++
		}
	}
}
