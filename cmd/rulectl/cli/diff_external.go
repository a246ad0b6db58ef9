package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// externalDiff names a program that shows differences in place of -u, with its arguments, as KUBECTL_EXTERNAL_DIFF does.
const externalDiff = "RULECTL_EXTERNAL_DIFF"

// showExternally has a program compare two folders: the specs as they stand, and as they would be. Each file is one spec.
func (a *app) showExternally(ctx context.Context, command string, items []diffItem) (err error) {
	dir, err := os.MkdirTemp("", "rulectl-diff-")
	if err != nil {
		return fmt.Errorf("make a folder for %s: %w", externalDiff, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	before, after := filepath.Join(dir, "server"), filepath.Join(dir, "files")
	for _, folder := range []string{before, after} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			return fmt.Errorf("make a folder for %s: %w", externalDiff, err)
		}
	}
	for _, item := range items {
		name := strings.ReplaceAll(item.Rule, "/", ".") + ".yaml"
		if len(item.specs) > 0 {
			err = writePrivate(filepath.Join(before, name), []byte(specText(&item.specs[0].spec)))
		}
		if item.will != nil {
			err = errors.Join(err, writePrivate(filepath.Join(after, name), []byte(specText(item.will))))
		}
		if err != nil {
			return err
		}
	}
	words := strings.Fields(command)
	program := exec.CommandContext(ctx, words[0], append(words[1:], before, after)...) //nolint:gosec // the user's own choice
	program.Stdout, program.Stderr = a.io.Out, a.io.Err
	err = program.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		return nil // there are differences
	}
	if err != nil {
		return fmt.Errorf("%s: %q: %w", externalDiff, words[0], err)
	}
	return nil
}
