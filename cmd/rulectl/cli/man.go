package cli

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// manCommand writes manual pages, for whoever packages rulectl.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write a manual page for each command into a directory",
		Example: "  rulectl man /usr/local/share/man/man1",
		GroupID: groupSelf,
		Args:    cobra.ExactArgs(1),
		// The tree is that of this very command, with the flags as they are without an environment.
		RunE: a.run(func(_ context.Context, args []string) error { return writeManual(args[0]) }), //nolint:contextcheck // commands that are only described are not run
	}
}

func writeManual(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // everybody reads manuals
		return fmt.Errorf("make %s: %w", dir, err)
	}
	built := builtAt()
	header := doc.GenManHeader{Section: "1", Source: "headgate", Manual: "rulectl", Date: &built}
	if err := doc.GenManTree(tree(), &header, dir); err != nil {
		return fmt.Errorf("write manual pages to %s: %w", dir, err)
	}
	return nil
}

// builtAt is when the source of this program was committed, so that the same program writes the same pages; the begin of
// Unix time where that is not known.
func builtAt() time.Time {
	info, _ := debug.ReadBuildInfo()
	if info != nil {
		for _, s := range info.Settings {
			if at, err := time.Parse(time.RFC3339, s.Value); s.Key == "vcs.time" && err == nil {
				return at
			}
		}
	}
	return time.Unix(0, 0).UTC()
}

// tree is the tree of commands as it is in every environment.
func tree() *cobra.Command {
	a := &app{io: IO{Getenv: func(string) string { return "" }}, output: outputTable}
	root := a.rootCommand()
	for cmd := range commands(root) {
		cmd.DisableAutoGenTag = true
	}
	return root
}
