package ruletest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// kindOf finds the kind of a file's first document, in YAML and in JSON: a key of the root, so without indentation.
var kindOf = regexp.MustCompile(`(?m)(?:^|[{,]\s*)["']?kind["']?\s*:\s*["']?(\w+)`)

// A File is a file of tests.
type File struct {
	Name    string
	Content []byte
}

// Find returns the files of tests that paths name, each once: a file that is named is one; a directory is searched, with
// those below it, for files named *.test.yaml (also .yml and .json) and for those that say kind: RuleTest. Names that
// begin with a dot are passed over.
func Find(paths []string) ([]File, error) {
	var list []File
	seen := map[string]bool{}
	take := func(name string, named bool) error {
		clean := filepath.Clean(name)
		if seen[clean] {
			return nil
		}
		seen[clean] = true
		content, err := readBounded(name)
		if err == nil && (named || IsTest(name, content)) {
			list = append(list, File{Name: strings.ToValidUTF8(name, "\uFFFD"), Content: content})
		}
		return err
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, cause(err))
		}
		if !info.IsDir() {
			if err := take(path, true); err != nil {
				return nil, err
			}
			continue
		}
		if err := search(path, func(name string) error { return take(name, false) }); err != nil {
			return nil, err
		}
	}
	return list, nil
}

var extensions = []string{".yaml", ".yml", ".json"}

// IsTest reports whether a file is one of tests, by its name or by what it says.
func IsTest(name string, content []byte) bool {
	ext := filepath.Ext(name)
	return slices.Contains(extensions, ext) && strings.HasSuffix(strings.TrimSuffix(name, ext), ".test") || isKind(content)
}

func isKind(content []byte) bool {
	m := kindOf.FindSubmatch(content)
	return m != nil && string(m[1]) == Kind
}

// search visits the files below a directory that may be tests, in order.
func search(dir string, visit func(name string) error) error {
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		hidden := name != dir && strings.HasPrefix(entry.Name(), ".")
		switch {
		case err != nil:
			return fmt.Errorf("read %s: %w", name, cause(err))
		case entry.IsDir() && hidden:
			return fs.SkipDir
		case entry.IsDir() || hidden || !slices.Contains(extensions, filepath.Ext(name)):
			return nil
		}
		return visit(name)
	})
	if err != nil {
		return fmt.Errorf("search %s: %w", dir, err)
	}
	return nil
}

// cause is what went wrong, without the name of the system call and of the file.
func cause(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
