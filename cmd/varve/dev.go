package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/manifest"
	"github.com/varvelog/varve/recovery"
)

// Names below a data directory that `varve dev` and `varve restore --data-dir` share.
const (
	etcdDir    = "etcd"    // the embedded etcd
	archiveDir = "archive" // the archive, where archive.url is not set
)

func devCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run one broker with everything in this process, for development and small set-ups",
		Args:  exactly(0, "no argument"),
	}
	dir := cmd.Flags().String("data-dir", "./varve-data", "data directory; made if it does not exist")
	listen := cmd.Flags().String("listen", "localhost:9092", "HOST:PORT for Kafka clients")
	admin := cmd.Flags().String("admin", "localhost:9644", "HOST:PORT of /livez, /readyz and /metrics")
	set := cmd.Flags().StringArray("set", nil, "key=value of the configuration, again for each")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		given, err := settings(*set)
		if err != nil {
			return err
		}
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return err
		}
		listener, err := hostPort("--listen", *listen)
		if err != nil {
			return err
		}
		archive, err := devArchive(abs)
		if err != nil {
			return err
		}
		defaults := map[string]string{
			"log.dirs": abs, "listeners": listener, "admin.listen": *admin, "etcd.embedded": "true",
			"archive.url": archive, "node.id": "1", "offsets.topic.replication.factor": "1",
		}
		c, inert, err := merge(defaults, fromEnvironment(os.Environ()), given)
		if err != nil {
			return err
		}
		return runNode(cmd.Context(), c, inert)
	}
	return cmd
}

// devArchive is the archive of a data directory where archive.url is not set: the directory in it, or, where a restore has made the
// data directory, the one that the restore was told.
func devArchive(dir string) (string, error) {
	inside := "file://" + filepath.Join(dir, archiveDir)
	told, err := recovery.ArchiveOf(dir)
	if err != nil || told == "" {
		return inside, err
	}
	if _, err := os.Stat(filepath.Join(dir, archiveDir, manifest.ArchiveKey)); err == nil {
		return inside, nil // it has moved with its directory
	}
	return told, nil
}
