package main

import (
	"os"

	"github.com/spf13/cobra"
)

func serverCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a broker from a server.properties file",
		Args:  exactly(0, "no argument"),
	}
	file := cmd.Flags().String("config", "", "server.properties, with Kafka's key names")
	set := cmd.Flags().StringArray("set", nil, "key=value over the file's, again for each")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *file == "" {
			return usagef("varve server needs --config FILE; `varve dev` runs without one")
		}
		props, err := readConfig(*file)
		if err != nil {
			return err
		}
		given, err := settings(*set)
		if err != nil {
			return err
		}
		c, inert, err := merge(props, fromEnvironment(os.Environ()), given)
		if err != nil {
			return err
		}
		if !c.Bool("etcd.embedded") && len(c.List("etcd.endpoints")) == 0 && len(c.List("etcd.initial.cluster")) == 0 {
			return usagef("no etcd: set etcd.endpoints=HOST:PORT,... or etcd.embedded=true or etcd.initial.cluster=ID@HOST:PEERPORT:CLIENTPORT,...")
		}
		return runNode(cmd.Context(), c, inert)
	}
	return cmd
}
