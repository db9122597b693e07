package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/varvelog/varve/recovery"
)

func archiveVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that the archive is whole, every byte of it",
		Long: `Verify reads the archive and changes nothing; its cluster may be running. Exit code 0: nothing found; 4: findings, each
with object, place and what is wrong. Kinds: damage, missing, stray, and gap: offsets that were lost before they were
archived. Ranges that somebody deleted are no gaps.`,
		Args: exactly(0, "no argument"),
	}
	repo, format := repository(cmd), output(cmd)
	quick := cmd.Flags().Bool("quick", false, "manifests and the presence of objects only, not their bytes")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		asJSON, err := wantsJSON(*format)
		if err != nil {
			return err
		}
		report, err := verify(cmd.Context(), *repo, recovery.VerifyOptions{Full: !*quick, Progress: ticker(cmd.ErrOrStderr())})
		if err != nil {
			return err
		}
		if asJSON {
			err = printJSON(cmd.OutOrStdout(), report)
		} else {
			err = printReport(cmd.OutOrStdout(), report)
		}
		if err == nil && len(report.Findings) > 0 {
			return quiet(exitFindings)
		}
		return err
	}
	return cmd
}

// verify reports on the archive, also where its root is so damaged that there is nothing to open.
func verify(ctx context.Context, repo string, o recovery.VerifyOptions) (*recovery.Report, error) {
	s, err := openSource(ctx, repo)
	var root *recovery.RootError
	switch {
	case errors.As(err, &root):
		return root.Report(), nil
	case err != nil:
		return nil, err
	}
	report, err := recovery.Verify(ctx, s, o)
	if err != nil {
		return nil, fmt.Errorf("verification is not complete: %w", err)
	}
	return report, nil
}

// ticker says every few seconds how many objects have been read in all.
func ticker(w io.Writer) func(int, int) {
	var mu sync.Mutex
	n, last := 0, time.Now()
	return func(int, int) {
		mu.Lock()
		defer mu.Unlock()
		n++
		if now := time.Now(); now.Sub(last) > 2*time.Second {
			last = now
			fmt.Fprintf(w, "verified: %d objects\n", n)
		}
	}
}

func printReport(w io.Writer, r *recovery.Report) error {
	for _, f := range r.Findings {
		at := f.Object
		if f.Place != "" {
			at += ", " + f.Place
		}
		if _, err := fmt.Fprintf(w, "%s: %s: %s\n", f.Kind, at, f.What); err != nil {
			return err
		}
	}
	if r.Truncated > 0 {
		fmt.Fprintf(w, "... and %d more findings\n", r.Truncated)
	}
	how := "present"
	if r.Full {
		how = "read"
	}
	_, err := fmt.Fprintf(w, "archive %s: %d topics, %d partitions, %d objects of %s %s, %d findings\n",
		r.Archive, r.Topics, r.Partitions, r.Objects, size(r.Bytes), how, len(r.Findings)+r.Truncated)
	return err
}
