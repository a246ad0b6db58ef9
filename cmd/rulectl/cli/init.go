package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules/rulefile"
)

// example is what init writes. A test runs its tests, so that nobody begins with a file that does not work.
//
//go:embed example
var example embed.FS

// schemaFile is the schema that editors check rule files by; the example's first line names it.
const schemaFile = "ruleset.schema.json"

func (a *app) initCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "init [DIR]",
		Short: "Write an example: rules, tests of them and a CI job",
		Long: "init writes rules/public-api.yaml, tests/public-api.test.yaml, ci/github-actions.yaml and the schema for editors\n" +
			"into a directory, the current one where none is named. It overwrites nothing.",
		Example: "  rulectl init limits && rulectl test limits",
		GroupID: groupAuthor,
		Args:    cobra.MaximumNArgs(1),
		RunE: a.run(func(_ context.Context, args []string) error {
			if len(args) == 0 {
				args = []string{"."}
			}
			return a.init(args[0])
		}),
	}
}

// init looks for files in the way before it writes any.
func (a *app) init(dir string) error {
	files, err := exampleFiles()
	if err != nil {
		return err
	}
	var inTheWay []string
	for _, f := range files {
		switch _, err := os.Lstat(filepath.Join(dir, f.Name)); {
		case err == nil:
			inTheWay = append(inTheWay, filepath.Join(dir, f.Name))
		case !errors.Is(err, fs.ErrNotExist):
			return fileError(err)
		}
	}
	if len(inTheWay) > 0 {
		a.complain("nothing was written, since this would overwrite %s", strings.Join(inTheWay, ", "))
		a.advise("name another directory: rulectl init DIR")
		return explained{exitFailed}
	}
	for _, f := range files {
		if err := writeNew(filepath.Join(dir, f.Name), f.Content); err != nil {
			return err
		}
		fmt.Fprintln(a.io.Out, filepath.Join(dir, f.Name))
	}
	a.tell("next: rulectl test %s", dir)
	return nil
}

// exampleFiles returns what is written, with slashes in the names.
func exampleFiles() ([]rulefile.File, error) {
	files := []rulefile.File{{Name: schemaFile, Content: rulefile.JSONSchema()}}
	err := fs.WalkDir(example, "example", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := example.ReadFile(name)
		files = append(files, rulefile.File{Name: strings.TrimPrefix(name, "example/"), Content: content})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the example: %w", err)
	}
	return files, nil
}

// writeNew writes a file that must not be there, also when it came up a moment ago.
func writeNew(name string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // for whoever may read the directory around it
		return fmt.Errorf("write %s: %w", name, err)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // rules are read by the whole team
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if _, err := f.Write(content); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
