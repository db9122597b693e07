package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/objstore"
	"github.com/varvelog/varve/objstore/open"
	"github.com/varvelog/varve/recovery"
)

func archiveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "archive",
		Short: "Look at an archive: what it holds, how far back it goes, whether it is whole",
		Args:  exactly(0, "a verb: info, ls or verify"),
		RunE: func(*cobra.Command, []string) error {
			return usagef("varve archive takes a verb: info, ls or verify")
		},
	}
	cmd.AddCommand(archiveInfo(), archiveList(), archiveVerify())
	return cmd
}

// repository is the flag that all verbs have which read an archive.
func repository(cmd *cobra.Command) *string {
	return cmd.Flags().String("repo", "", "URL of the archive: s3://bucket/prefix?..., file:///dir")
}

// output is the flag of verbs that can print a document.
func output(cmd *cobra.Command) *string {
	return cmd.Flags().String("output", "text", "text, or json on stdout")
}

func wantsJSON(format string) (bool, error) {
	switch format {
	case "text", "":
		return false, nil
	case "json":
		return true, nil
	}
	return false, usagef("--output %q is neither text nor json", format)
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// openRepository opens a bucket as restores want it.
func openRepository(ctx context.Context, address string) (objstore.Bucket, error) {
	return open.Open(ctx, address, open.Options{})
}

// repoURL completes what --repo says: a plain path is a directory.
func repoURL(flag, address string) (string, error) {
	if address == "" {
		return "", usagef("%s is needed: the URL of the archive, such as file:///var/lib/varve/archive or s3://bucket/prefix", flag)
	}
	if strings.Contains(address, "://") {
		if u, err := url.Parse(address); err == nil && u.Scheme == "file" {
			u.Path = filepath.ToSlash(filepath.Clean(filepath.FromSlash(u.Path)))
			return u.String(), nil
		}
		return address, nil
	}
	abs, err := filepath.Abs(address)
	if err != nil {
		return "", err
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String(), nil
}

// openSource opens the archive that --repo names.
func openSource(ctx context.Context, address string) (*recovery.Source, error) {
	at, err := repoURL("--repo", address)
	if err != nil {
		return nil, err
	}
	s, err := recovery.OpenSource(ctx, at, openRepository)
	if err != nil {
		return nil, fmt.Errorf("archive %s: %w", at, err)
	}
	return s, nil
}

func archiveInfo() *cobra.Command {
	cmd := &cobra.Command{Use: "info", Short: "Topics, deleted ones too, the restorable window, how far the archive is complete", Args: exactly(0, "no argument")}
	repo, format := repository(cmd), output(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asJSON, err := wantsJSON(*format)
		if err != nil {
			return err
		}
		s, err := openSource(cmd.Context(), *repo)
		if err != nil {
			return err
		}
		inv, err := recovery.TakeInventory(cmd.Context(), s)
		if err != nil {
			return err
		}
		info := inv.Describe(s.Attached)
		if asJSON {
			return printJSON(cmd.OutOrStdout(), info)
		}
		return printInfo(cmd.OutOrStdout(), info)
	}
	return cmd
}

func printInfo(w io.Writer, d *recovery.Info) error {
	fmt.Fprintf(w, "archive %s\ncluster %s, incarnation %d, since %s\n", d.Archive, d.Cluster, d.Incarnation, d.Created)
	fmt.Fprintf(w, "restorable %s\n", windowText(d.Window))
	for _, m := range d.Marks {
		fmt.Fprintf(w, "broker %d: everything appended up to %s is archived\n", m.Broker, m.Through)
	}
	for id, at := range d.Attached {
		fmt.Fprintf(w, "refers to archive %s at %s\n", id, at)
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "topic\tid\tpartitions\tsegments\tsize\tarchived through\tlag\trestorable\tdeleted")
	for _, t := range d.Topics {
		through, lag, deleted := "-", "-", "-"
		if t.Through != nil {
			through = t.Through.String()
		}
		if t.LagMs != nil {
			lag = (time.Duration(*t.LagMs) * time.Millisecond).Round(time.Millisecond).String()
		}
		if t.Deleted != nil {
			deleted = t.Deleted.String()
		}
		fmt.Fprintf(tw, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", t.Name, t.ID, t.Partitions, t.Segments, size(t.Bytes), through, lag, windowText(t.Window), deleted)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, t := range d.Topics {
		for _, p := range t.Detail {
			for _, g := range p.Gaps {
				fmt.Fprintf(w, "gap in %s:%d: [%d, %d), %d offsets, %s\n", t.Name, p.Partition, g.From, g.To, g.To-g.From, g.Reason)
			}
		}
	}
	for _, x := range d.Damage {
		fmt.Fprintf(w, "damaged: %s\n", x.What)
	}
	return nil
}

func windowText(w recovery.WindowJSON) string {
	if w.From == nil || w.To == nil {
		return "nothing yet"
	}
	return w.From.String() + " to " + w.To.String()
}

func archiveList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls [PREFIX]", Short: "List the objects below a prefix, in byte order",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("%s takes one prefix at most", cmd.CommandPath())
			}
			return nil
		},
	}
	repo := repository(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, err := repoURL("--repo", *repo)
		if err != nil {
			return err
		}
		b, err := openRepository(cmd.Context(), at)
		if err != nil {
			return err
		}
		prefix := strings.Join(args, "")
		if err := objstore.CheckPrefix(prefix); err != nil {
			return usagef("%v", err)
		}
		tw := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
		n := 0
		for i, err := range b.List(cmd.Context(), prefix, "") {
			if err != nil {
				return err
			}
			fmt.Fprintf(tw, "%d\t %s\t %s\n", i.Size, i.Modified.UTC().Format(time.RFC3339), i.Key)
			if n++; n%1000 == 0 {
				if err := tw.Flush(); err != nil {
					return err
				}
			}
		}
		if n == 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "no objects below %q\n", prefix)
		}
		return tw.Flush()
	}
	return cmd
}

// notRestorable gives errors of a restore their exit codes.
func notRestorable(err error) error {
	var target *recovery.TargetError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &target):
		return &exitError{exitNotRestorable, err}
	case errors.Is(err, recovery.ErrRequest):
		return &exitError{exitUsage, err}
	}
	return err
}
