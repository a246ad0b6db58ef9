package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed all:templates
var templates embed.FS

// A shape is the template of a page: the layout, what pages share, and its own files, which define "content" and its live
// parts. The name of a live part begins with "live-", and is the id of the element that it fills.
type shape struct {
	name string
	tree *template.Template
	live []string
}

// shapes reads the templates: each file is a page, but for those that begin with "_", which all pages share, and those
// named PAGE.PART.html, which are of one page too large for one file.
func shapes() (map[string]*shape, error) {
	base, err := template.New("").Funcs(words).ParseFS(templates, "templates/_*.html")
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		return nil, err
	}
	all := map[string]*shape{}
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if strings.HasPrefix(name, "_") || strings.Contains(name, ".") {
			continue
		}
		tree, err := base.Clone()
		if err != nil {
			return nil, err
		}
		own := []string{file}
		for _, other := range files {
			if strings.HasPrefix(path.Base(other), name+".") && other != file {
				own = append(own, other)
			}
		}
		if tree, err = tree.ParseFS(templates, own...); err != nil {
			return nil, err
		}
		s := &shape{name: name, tree: tree}
		for _, t := range tree.Templates() {
			if strings.HasPrefix(t.Name(), "live-") {
				s.live = append(s.live, t.Name())
			}
		}
		slices.Sort(s.live)
		all[name] = s
	}
	return all, nil
}

// part makes one live part.
func (s *shape) part(name string, f *frame) (string, error) {
	var b bytes.Buffer
	if err := s.tree.ExecuteTemplate(&b, name, f); err != nil {
		return "", fmt.Errorf("page %s: %w", s.name, err)
	}
	return b.String(), nil
}
