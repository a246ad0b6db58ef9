package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/rulectl/ruletest"
	"github.com/headgate/headgate/rules/rulefile"
)

// stdinName is how problems name the file that came through standard input.
const stdinName = "<stdin>"

func (a *app) filesFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&a.files, "filename", "f", nil, "rule file, directory of rule files, or - for standard input; may be repeated")
}

// onlyFiles refuses arguments of a command that takes its files by -f, and says how to name them.
func onlyFiles(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%q: files are named with -f: %s -f %s", args[0], cmd.CommandPath(), args[0])
}

// readFiles reads what -f names, in order. Of a directory, and those below it, it reads the rule files: see
// readDirectory.
func (a *app) readFiles() ([]rulefile.File, error) {
	if len(a.files) == 0 {
		return nil, usagef("no rule file is named: use -f FILE, -f DIR or -f -")
	}
	var list []rulefile.File
	for _, path := range a.files {
		found, err := a.readPath(path)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

func (a *app) readPath(path string) ([]rulefile.File, error) {
	if path == "-" {
		f, err := read(stdinName, a.io.In)
		return []rulefile.File{f}, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fileError(err)
	}
	if info.IsDir() {
		return a.readDirectory(path)
	}
	f, err := readFile(path)
	return []rulefile.File{f}, err
}

// ofRules is what a rule file says somewhere, be it with a mistake in one of the two.
var ofRules = regexp.MustCompile(`headgate/v|kind["']?\s*:\s*["']?RuleSet`)

// readDirectory reads the .yaml, .yml and .json files that speak of rules: not tests, nor editor schemas. Of other files
// with these endings it says that they are not read, since a rule that is not read is not applied.
func (a *app) readDirectory(dir string) ([]rulefile.File, error) {
	var list []rulefile.File
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		hidden := path != dir && strings.HasPrefix(entry.Name(), ".")
		switch {
		case err != nil:
			return fileError(err)
		case hidden && entry.IsDir():
			return fs.SkipDir
		case hidden || entry.IsDir() || strings.HasSuffix(path, ".schema.json"),
			!slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			return nil
		}
		f, err := readFile(path)
		switch {
		case err != nil:
			return err
		case ruletest.IsTest(path, f.Content):
		case !ofRules.Match(f.Content):
			fmt.Fprintf(a.io.Err, "note: %s says no kind: RuleSet and is not read\n", path)
		default:
			list = append(list, f)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("there is no rule file in %s: their names end with .yaml, .yml or .json", dir)
	}
	return list, nil
}

func readFile(path string) (rulefile.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return rulefile.File{}, fileError(err)
	}
	defer f.Close()
	return read(path, f)
}

// read stops behind the size that is refused anyway.
func read(name string, r io.Reader) (rulefile.File, error) {
	content, err := io.ReadAll(io.LimitReader(r, rulefile.MaxSize+1))
	if err != nil {
		return rulefile.File{}, fmt.Errorf("read %s: %w", name, err)
	}
	return rulefile.File{Name: strings.ToValidUTF8(name, "\uFFFD"), Content: content}, nil
}

// fileError says it without the name of the system call.
func fileError(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("read %s: %w", path.Path, path.Err)
	}
	return err
}
