package main

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/varvelog/varve/manifest"
)

func topicCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "topic",
		Short: "Create, list, describe, delete and undelete topics",
		Args:  exactly(0, "a verb: create, list, describe, delete or undelete"),
		RunE: func(*cobra.Command, []string) error {
			return usagef("varve topic takes a verb: create, list, describe, delete or undelete")
		},
	}
	cmd.AddCommand(topicCreate(), topicList(), topicDescribe(), topicDelete(), topicUndelete())
	return cmd
}

func topicCreate() *cobra.Command {
	cmd := &cobra.Command{Use: "create NAME", Short: "Create a topic", Args: exactly(1, "one topic name")}
	at := bootstrap(cmd)
	partitions := cmd.Flags().Int32("partitions", -1, "number of partitions (-1: the broker's num.partitions)")
	replicas := cmd.Flags().Int16("replication-factor", -1, "replicas of each partition (-1: the broker's default.replication.factor)")
	configs := cmd.Flags().StringArray("config", nil, "key=value, again for each")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		set, err := keyValues("--config", *configs)
		if err != nil {
			return err
		}
		return withAdmin(cmd, *at, func(ctx context.Context, adm *kadm.Client) error {
			r, err := adm.CreateTopic(ctx, *partitions, *replicas, set, args[0])
			if err != nil {
				return topicError("create", args[0], r.ErrMessage, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "created %s: id %s, %d partitions\n", r.Topic, manifest.TopicID(r.ID), r.NumPartitions)
			return nil
		})
	}
	return cmd
}

// keyValues splits key=value flags.
func keyValues(flag string, list []string) (map[string]*string, error) {
	out := map[string]*string{}
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, usagef("%s %q must be key=value", flag, kv)
		}
		if _, twice := out[k]; twice {
			return nil, usagef("%s %s is given twice", flag, k)
		}
		out[k] = &v
	}
	return out, nil
}

func topicError(verb, name, message string, err error) error {
	if message != "" {
		return fmt.Errorf("%s topic %s: %s", verb, name, message)
	}
	return fmt.Errorf("%s topic %s: %w", verb, name, err)
}

func topicList() *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the topics", Args: exactly(0, "no argument")}
	at := bootstrap(cmd)
	internal := cmd.Flags().Bool("internal", false, "internal topics too")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withAdmin(cmd, *at, func(ctx context.Context, adm *kadm.Client) error {
			list := adm.ListTopics
			if *internal {
				list = adm.ListTopicsWithInternal
			}
			topics, err := list(ctx)
			if err != nil {
				return err
			}
			for _, name := range topics.Names() {
				fmt.Fprintln(cmd.OutOrStdout(), name)
			}
			return nil
		})
	}
	return cmd
}

func topicDescribe() *cobra.Command {
	cmd := &cobra.Command{Use: "describe NAME", Short: "Show a topic's partitions, offsets and configuration", Args: exactly(1, "one topic name")}
	at := bootstrap(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withAdmin(cmd, *at, func(ctx context.Context, adm *kadm.Client) error { return describeTopic(ctx, cmd, adm, args[0]) })
	}
	return cmd
}

func describeTopic(ctx context.Context, cmd *cobra.Command, adm *kadm.Client, name string) error {
	topics, err := adm.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return err
	}
	t, ok := topics[name]
	if !ok || t.Err != nil {
		return topicError("describe", name, "", t.Err)
	}
	starts, err := adm.ListStartOffsets(ctx, name)
	if err != nil {
		return err
	}
	ends, err := adm.ListEndOffsets(ctx, name)
	if err != nil {
		return err
	}
	configs, err := adm.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return err
	}
	var set []string
	for _, rc := range configs {
		for _, c := range rc.Configs {
			if c.Source.String() == "DYNAMIC_TOPIC_CONFIG" && c.Value != nil {
				set = append(set, c.Key+"="+*c.Value)
			}
		}
	}
	sort.Strings(set)
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "topic %s  id %s  partitions %d  configs %s\n", name, manifest.TopicID(t.ID), len(t.Partitions), strings.Join(set, ","))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "partition\tleader\tepoch\treplicas\tisr\tstart\tend")
	for _, p := range t.Partitions.Sorted() {
		start, _ := starts.Lookup(name, p.Partition)
		end, _ := ends.Lookup(name, p.Partition)
		fmt.Fprintf(w, "%d\t%d\t%d\t%v\t%v\t%d\t%d\n", p.Partition, p.Leader, p.LeaderEpoch, p.Replicas, p.ISR, start.Offset, end.Offset)
	}
	return w.Flush()
}

func topicDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete NAME", Short: "Delete a topic; its archive stays for the restore window", Args: exactly(1, "one topic name")}
	at := bootstrap(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withAdmin(cmd, *at, func(ctx context.Context, adm *kadm.Client) error {
			r, err := adm.DeleteTopic(ctx, args[0])
			if err != nil {
				return topicError("delete", args[0], r.ErrMessage, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "deleted %s: id %s; `varve topic undelete %s` brings it back inside the restore window\n", args[0], manifest.TopicID(r.ID), args[0])
			return nil
		})
	}
	return cmd
}

// undeleteConfig is the topic config, in CreateTopics alone, that brings a deleted topic back; its value is the topic's id, or
// empty for the one deleted last.
const undeleteConfig = "varve.undelete"

func topicUndelete() *cobra.Command {
	cmd := &cobra.Command{Use: "undelete NAME", Short: "Bring a deleted topic back, inside the restore window", Args: exactly(1, "one topic name")}
	at := bootstrap(cmd)
	id := cmd.Flags().String("id", "", "topic id, where several of the name were deleted (default: the last one)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withAdmin(cmd, *at, func(ctx context.Context, adm *kadm.Client) error {
			r, err := adm.CreateTopic(ctx, -1, -1, map[string]*string{undeleteConfig: id}, args[0])
			if err != nil {
				return topicError("undelete", args[0], r.ErrMessage, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "undeleted %s: id %s, %d partitions\n", r.Topic, manifest.TopicID(r.ID), r.NumPartitions)
			return nil
		})
	}
	return cmd
}
