package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

func (a *app) fmtCommand() *cobra.Command {
	var write, check bool
	cmd := &cobra.Command{
		Use:   "fmt [-w | --check] FILE|DIR|-...",
		Short: "Print rule files in canonical form",
		Long: "Fmt brings rule files into the one form that diffs well: keys in the order of 'rulectl explain', limits and sources\n" +
			"in their shortest spelling, short mappings on one line. Comments stay. A file with errors is refused.",
		Example: "  rulectl fmt -w rules/\n  rulectl fmt --check rules/     # in CI: fails where a file would change",
		GroupID: groupAuthor,
		RunE: a.run(func(_ context.Context, args []string) error {
			if write && check {
				return usagef("-w writes and --check does not: use one of them")
			}
			return a.format(args, write, check)
		}),
	}
	cmd.Flags().BoolVarP(&write, "write", "w", false, "write the files instead of printing them")
	cmd.Flags().BoolVar(&check, "check", false, "name the files that would change, and fail if there is one")
	return cmd
}

// format reads all files before it writes the first: with an error in one of them none is changed.
func (a *app) format(paths []string, write, check bool) error {
	if len(paths) == 0 {
		return usagef("no rule file is named: use rulectl fmt FILE, DIR or -")
	}
	a.files = paths
	files, err := a.readFiles()
	if err != nil {
		return err
	}
	formatted := make([][]byte, len(files))
	failed := false
	for i, f := range files {
		formatted[i], err = rulefile.FormatFile(f.Name, f.Content)
		var invalid *rules.ValidationError
		switch {
		case errors.As(err, &invalid):
			printProblems(a.io.Err, invalid.Problems, files[i:i+1])
			failed = true
		case err != nil:
			a.complain("%s", err)
			failed = true
		}
	}
	if failed {
		a.complain("nothing was formatted")
		return explained{exitFailed}
	}
	changed := false
	for i, f := range files {
		if !write && !check {
			fmt.Fprintf(raw(a.io.Out), "%s", formatted[i])
			continue
		}
		if bytes.Equal(formatted[i], f.Content) {
			continue
		}
		changed = true
		if write {
			if err := rewrite(f.Name, formatted[i]); err != nil {
				return err
			}
		}
		fmt.Fprintln(a.io.Out, clean(f.Name))
	}
	if check && changed {
		a.advise("bring them into form with: rulectl fmt -w PATH")
		return explained{exitFailed}
	}
	return nil
}

// rewrite replaces a file, whole or not at all, with the permissions it had.
func rewrite(path string, content []byte) error {
	if path == stdinName {
		return usagef("-w cannot write standard input")
	}
	if filepath.Ext(path) == ".json" {
		return fmt.Errorf("%s is JSON, and the canonical form is YAML: print it without -w, and rename the file", path)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fileError(err)
	}
	target, err := filepath.EvalSymlinks(path) // the link stays
	if err != nil {
		return fileError(err)
	}
	temporary, err := os.CreateTemp(filepath.Dir(target), ".rulectl-fmt-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(temporary.Name())
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(info.Mode().Perm()), temporary.Sync(), temporary.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary.Name(), target); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
