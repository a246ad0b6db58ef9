package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// exitCodes are all there are, with what each means.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{0, "done; diff: there are no differences"},
	{exitFailed, "failed; diff: there are differences; validate: there are errors; doctor: there is trouble"},
	{exitUsage, "the command line, the configuration or the environment cannot be understood; diff: it could not compare"},
	{exitAuth, "not logged in, or not allowed"},
	{exitConflict, "a conflict: somebody else changed what the change is about, or its state does not allow it"},
	{exitNotAcked, "stored, but not acknowledged by every sidecar in time: the change is in force where it was acknowledged"},
	{exitGuarded, "stopped by a guard: nothing was changed, and the text says how to say that it is meant"},
	{HungUp, "its terminal was closed; a change may or may not be stored"},
	{exitInterrupted, "interrupted; a change may or may not be stored"},
}

// optionsCommand is `rulectl options`, as kubectl has it.
func (a *app) optionsCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "options",
		Short:   "Show the flags that every command has",
		GroupID: groupSelf,
		Args:    cobra.NoArgs,
		RunE: a.run(func(context.Context, []string) error {
			_, err := fmt.Fprintf(a.io.Out, "Flags that every command has:\n\n%s", a.flags.FlagUsages())
			return err
		}),
	}
}

// exitCodesTopic is the text of `rulectl help exit-codes`.
func exitCodesTopic() *cobra.Command {
	var b strings.Builder
	b.WriteString("Every command ends with one of these. Code 6 is never mixed with 1: after 1 nothing was changed, after 6 it was.\n\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "%3d  %s\n", e.code, e.meaning)
	}
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: b.String()}
}
