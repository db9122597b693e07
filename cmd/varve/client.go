package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// bootstrap is the flag that all verbs have which talk to a running cluster.
func bootstrap(cmd *cobra.Command) *string {
	return cmd.Flags().String("bootstrap", "localhost:9092", "HOST:PORT of a broker")
}

// dial makes a client and makes sure that a broker answers, so that a wrong address is told at once.
func dial(ctx context.Context, address string, opts ...kgo.Opt) (*kgo.Client, error) {
	opts = append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(address, ",")...), kgo.ClientID("varve-cli"),
		kgo.MetadataMinAge(100 * time.Millisecond), kgo.RetryTimeout(15 * time.Second),
	}, opts...)
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, err
	}
	pctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := cl.Ping(pctx); err != nil {
		cl.Close()
		return nil, fmt.Errorf("no broker answers at %s: %w", address, err)
	}
	return cl, nil
}

// withAdmin runs f with an admin client of the cluster.
func withAdmin(cmd *cobra.Command, address string, f func(context.Context, *kadm.Client) error) error {
	cl, err := dial(cmd.Context(), address)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	adm.SetTimeoutMillis(60_000)
	return f(cmd.Context(), adm)
}
