package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Tree describes the code: the packages that the module's packages are made of, and the
// module's own source files.
type Tree struct {
	Module   string
	Packages map[string]Package // by import path, the module's and all they need
	Files    []File             // of the module, whatever their build tags
}

// own returns the module's own packages, in order.
func (t Tree) own() []Package {
	var own []Package
	for _, p := range t.Packages {
		if t.owns(p.ImportPath) {
			own = append(own, p)
		}
	}
	slices.SortFunc(own, func(a, b Package) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return own
}

func (t Tree) owns(importPath string) bool {
	return importPath == t.Module || strings.HasPrefix(importPath, t.Module+"/")
}

// dir returns the folder of one of the module's packages, from the top of the repository.
func (t Tree) dir(importPath string) string {
	if importPath == t.Module {
		return "."
	}
	return strings.TrimPrefix(importPath, t.Module+"/")
}

// Package is what the go command says about a package, without its test files.
type Package struct {
	ImportPath string
	Name       string
	Doc        string // the first sentence of the package comment
	Imports    []string
	Standard   bool // part of the standard library
}

// File is one source file of the module.
type File struct {
	Path      string // from the top of the repository, with slashes
	Imports   []string
	Generated bool
	Calls     []Call
}

// Test reports whether the file is test code: a test file, or one of a package that
// serves tests, such as a suite that several packages run.
func (f File) Test() bool {
	return strings.HasSuffix(f.Path, "_test.go") || slices.Contains(f.Imports, "testing")
}

// Call is a call of a selector such as time.Sleep or t.Skip.
type Call struct {
	Line     int
	Receiver string // as written: "time"; "" when it is not a plain name
	Method   string
	InBubble bool // inside the arguments of synctest.Test, where time is fake
}

// Load describes the module whose top folder is root.
func Load(root string) (Tree, error) {
	tree := Tree{Packages: map[string]Package{}}
	module, err := run(root, "go", "list", "-m")
	if err != nil {
		return Tree{}, err
	}
	tree.Module = strings.TrimSpace(string(module))

	list, err := run(root, "go", "list", "-deps", "-json=ImportPath,Name,Doc,Imports,Standard", "./...")
	if err != nil {
		return Tree{}, err
	}
	for decoder := json.NewDecoder(bytes.NewReader(list)); ; {
		var p Package
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return Tree{}, fmt.Errorf("read the output of go list: %w", err)
		}
		tree.Packages[p.ImportPath] = p
	}
	tree.Files, err = loadFiles(root)
	return tree, err
}

func run(dir, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return out, nil
}

func loadFiles(root string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		file, err := parseFile(filepath.ToSlash(relative), source)
		files = append(files, file)
		return err
	})
	return files, err
}

func parseFile(path string, source []byte) (File, error) {
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return File{}, err
	}
	file := File{Path: path, Generated: ast.IsGenerated(parsed)}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return File{}, err
		}
		file.Imports = append(file.Imports, imported)
	}
	file.Calls = callsIn(positions, parsed)
	return file, nil
}

func callsIn(positions *token.FileSet, root ast.Node) []Call {
	var calls []Call
	var bubbles []ast.Node // calls of synctest.Test seen so far
	ast.Inspect(root, func(node ast.Node) bool {
		call, ok := node.(*ast.CallExpr)
		if !ok {
			return true
		}
		selector, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		receiver := ""
		if name, ok := selector.X.(*ast.Ident); ok {
			receiver = name.Name
		}
		if receiver == "synctest" && selector.Sel.Name == "Test" {
			bubbles = append(bubbles, call)
		}
		calls = append(calls, Call{
			Line:     positions.Position(selector.Sel.Pos()).Line,
			Receiver: receiver,
			Method:   selector.Sel.Name,
			InBubble: slices.ContainsFunc(bubbles, func(b ast.Node) bool { return b.Pos() < call.Pos() && call.End() <= b.End() }),
		})
		return true
	})
	return calls
}
