package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// Exit codes: a contract with scripts.
const (
	exitFailed        = 1
	exitUsage         = 2
	exitNotRestorable = 3
	exitFindings      = 4
	exitPartial       = 5 // can be resumed: run it again
)

// exitError gives an error an exit code. Its err may be empty where all has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// quiet ends with a code and no further word.
func quiet(code int) error { return &exitError{code, errors.New("")} }

// exactly wants n arguments, named in what.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return usagef("%s takes %s; see %s --help", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}
