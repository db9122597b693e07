package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/varvelog/varve/e2e/proc"
)

// varve runs a verb of the binary; what it says goes into the error.
func (t *tour) varve(ctx context.Context, args ...string) error {
	r, err := proc.Run(ctx, t.bin, nil, nil, args...)
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("exit code %d", r.Code)
	}
	if err != nil {
		return fmt.Errorf("varve %s: %w\n%s%s", strings.Join(args, " "), err, r.Stdout, r.Stderr)
	}
	return nil
}

// info is what the tour reads of `varve archive info --output json`.
type info struct {
	Window struct {
		From time.Time `json:"from"`
		To   time.Time `json:"to"`
	} `json:"window"`
}

func (t *tour) info(ctx context.Context) (info, error) {
	var i info
	r, err := proc.Run(ctx, t.bin, nil, nil, "archive", "info", "--repo", t.archive, "--output", "json")
	if err != nil {
		return i, err
	}
	if r.Code != 0 {
		return i, fmt.Errorf("varve archive info: exit code %d\n%s", r.Code, r.Stderr)
	}
	return i, json.Unmarshal([]byte(r.Stdout), &i)
}

// untilArchived waits until what has been written by now is in the archive.
func (t *tour) untilArchived(ctx context.Context) error {
	return t.untilArchivedThrough(ctx, time.Now())
}

func (t *tour) untilArchivedThrough(ctx context.Context, moment time.Time) error {
	return poll(ctx, "the archive reaches "+moment.UTC().Format(time.RFC3339Nano), func() (bool, error) {
		i, err := t.info(ctx)
		return err == nil && !i.Window.To.Before(moment), err
	})
}
