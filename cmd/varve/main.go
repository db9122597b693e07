// Varve is a commit log that speaks the Kafka protocol, lays every record down in an object store and brings topics back as they
// were at a moment. This is its one binary: a file a verb. Flags and environment are read here and nowhere else.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// version is set when the binary is linked.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	code := exitFailed
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
	}
	if err.Error() != "" {
		fmt.Fprintln(os.Stderr, "varve:", err)
	}
	os.Exit(code)
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "varve",
		Short:         "A Kafka-compatible log that can go back in time",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown verb %q; see varve --help", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(devCommand(), serverCommand(), topicCommand(), clusterCommand(), produceCommand(), consumeCommand(), archiveCommand(), restoreCommand(), segmentCommand())
	return root
}
