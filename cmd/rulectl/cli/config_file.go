package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	yaml "go.yaml.in/yaml/v3"
)

// configFile is what rulectl remembers of the control planes that somebody works with. It holds no secret: a token is in
// a file of its own.
type configFile struct {
	path     string // "": there is no place for one
	current  string // name of the context in use; "" for none
	contexts []setup
}

// A setup is one context: how one control plane is reached, and what it is like to change it. Each setting has the name
// and the meaning of the flag that goes before it.
type setup struct {
	Name           string `json:"name"`
	Server         string `json:"server,omitempty"`
	TLS            bool   `json:"tls,omitempty"`
	CA             string `json:"tls-ca,omitempty"`
	Cert           string `json:"tls-cert,omitempty"`
	Key            string `json:"tls-key,omitempty"`
	ServerName     string `json:"tls-server-name,omitempty"`
	TokenFile      string `json:"token-file,omitempty"`
	Insecure       bool   `json:"insecure,omitempty"`
	Domain         string `json:"domain,omitempty"`
	Protected      bool   `json:"protected,omitempty"`
	RequireMessage bool   `json:"require-message,omitempty"`
}

// A setting is one key of a context; one of text and yes is there.
type setting struct {
	key  string
	text func(*setup) *string
	yes  func(*setup) *bool
	file bool // a path, relative to the folder of the configuration
}

// settings are all keys of a context, in the order in which they are written.
var settings = []setting{
	{key: "name", text: func(s *setup) *string { return &s.Name }},
	{key: "server", text: func(s *setup) *string { return &s.Server }},
	{key: "tls", yes: func(s *setup) *bool { return &s.TLS }},
	{key: "tls-ca", text: func(s *setup) *string { return &s.CA }, file: true},
	{key: "tls-cert", text: func(s *setup) *string { return &s.Cert }, file: true},
	{key: "tls-key", text: func(s *setup) *string { return &s.Key }, file: true},
	{key: "tls-server-name", text: func(s *setup) *string { return &s.ServerName }},
	{key: "token-file", text: func(s *setup) *string { return &s.TokenFile }, file: true},
	{key: "insecure", yes: func(s *setup) *bool { return &s.Insecure }},
	{key: "domain", text: func(s *setup) *string { return &s.Domain }},
	{key: "protected", yes: func(s *setup) *bool { return &s.Protected }},
	{key: "require-message", yes: func(s *setup) *bool { return &s.RequireMessage }},
}

const (
	configKind     = "Config"
	currentContext = "current-context"
	// maxConfig bounds the file, in bytes: a thousand contexts have a third of it.
	maxConfig = 1 << 20
)

// configPath is RULECTL_CONFIG, or headgate/config.yaml where the user's configuration is.
func configPath(getenv func(string) string) string {
	if path := getenv("RULECTL_CONFIG"); path != "" {
		return path
	}
	dir := getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) { // the standard says that a relative one is not to be taken
		home := getenv("HOME")
		if home == "" {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "headgate", "config.yaml")
}

// readConfig reads the file strictly. One that is not there is empty. Of a file with mistakes all are told, each with its
// place.
func readConfig(path string) (*configFile, error) {
	c := &configFile{path: path}
	if path == "" {
		return c, nil
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c, nil
	case err != nil:
		return nil, fileError(err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	switch {
	case err != nil:
		return nil, fileError(err)
	case len(text) > maxConfig:
		return nil, fmt.Errorf("%s has more than %d MiB", path, maxConfig>>20)
	}
	return c, c.decode(text)
}

func (c *configFile) decode(text []byte) error {
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil // nothing but comments
	case err != nil:
		return fmt.Errorf("%s: %s", c.path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	r := configReader{path: c.path}
	r.mapping(doc.Content[0], "", []string{"apiVersion", "kind", currentContext, "contexts"}, func(key string, n *yaml.Node) {
		switch key {
		case "apiVersion":
			r.constant(n, key, apiVersion)
		case "kind":
			r.constant(n, key, configKind)
		case currentContext:
			c.current = r.text(n, key)
		case "contexts":
			c.contexts = r.contexts(n)
		}
	})
	if d.Decode(&yaml.Node{}) == nil {
		r.problems = append(r.problems, fmt.Errorf("%s: a second document follows: it has one", c.path))
	}
	return errors.Join(r.problems...)
}

// configReader collects what is wrong with a file.
type configReader struct {
	path     string
	problems []error
}

func (r *configReader) add(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s:%d:%d: "+format, append([]any{r.path, n.Line, n.Column}, args...)...))
}

// mapping calls each with the known keys of a mapping.
func (r *configReader) mapping(n *yaml.Node, at string, known []string, each func(key string, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.add(n, "%shere must be a mapping of keys to values", at)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case !slices.Contains(known, key.Value):
			r.add(key, "%sunknown key %q; known here: %s", at, key.Value, strings.Join(known, ", "))
		case seen[key.Value]:
			r.add(key, "%sthe key %q is repeated", at, key.Value)
		default:
			seen[key.Value] = true
			each(key.Value, n.Content[i+1])
		}
	}
}

func (r *configReader) text(n *yaml.Node, at string) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.add(n, "%s must be text", at)
		return ""
	}
	return n.Value
}

func (r *configReader) constant(n *yaml.Node, at, want string) {
	if n.Value != want {
		r.add(n, "%s must be %s", at, want)
	}
}

func (r *configReader) contexts(n *yaml.Node) (list []setup) {
	if n.Kind != yaml.SequenceNode {
		r.add(n, "contexts must be a list")
		return nil
	}
	var keys []string
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	for i, item := range n.Content {
		var c setup
		at := fmt.Sprintf("contexts[%d]: ", i)
		r.mapping(item, at, keys, func(key string, value *yaml.Node) {
			s := settings[slices.IndexFunc(settings, func(s setting) bool { return s.key == key })]
			if s.text != nil {
				*s.text(&c) = r.text(value, at+key)
				return
			}
			yes, err := strconv.ParseBool(value.Value)
			if value.ShortTag() != "!!bool" || err != nil {
				r.add(value, "%s%s must be true or false", at, key)
			}
			*s.yes(&c) = yes
		})
		switch problem := checkContextName(c.Name); {
		case problem != "":
			r.add(item, "%s%s", at, problem)
		case slices.ContainsFunc(list, func(o setup) bool { return o.Name == c.Name }):
			r.add(item, "%sthere is another context %q", at, c.Name)
		}
		list = append(list, c)
	}
	return list
}

// checkContextName says what is wrong with a name that is typed, and stands behind --yes=; "" for nothing.
func checkContextName(name string) string {
	const most = 63
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)
	}
	switch {
	case name == "" || len(name) > most || strings.ContainsFunc(name, func(r rune) bool { return !ok(r) }):
		return fmt.Sprintf("%q is no name of a context: use 1 to %d of a-z, A-Z, 0-9, -, _ and .", name, most)
	case name == plainYes:
		return fmt.Sprintf("%q is no name of a context: it is what --yes alone means", name)
	}
	return ""
}

// find returns a context; nil when there is none of the name.
func (c *configFile) find(name string) *setup {
	i := slices.IndexFunc(c.contexts, func(s setup) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &c.contexts[i]
}

// names lists the contexts for messages.
func (c *configFile) names() string {
	if len(c.contexts) == 0 {
		return "there is none yet; make one with: rulectl config set-context NAME --server HOST:PORT"
	}
	list := make([]string, len(c.contexts))
	for i, s := range c.contexts {
		list[i] = s.Name
	}
	return "there are " + strings.Join(list, ", ")
}

// absolute is where a file that the configuration names is.
func (c *configFile) absolute(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(c.path), path)
}

// write stores the file whole, for nobody else to read.
func (c *configFile) write() error {
	if c.path == "" {
		return usagef("there is no place for a configuration: set RULECTL_CONFIG to a file")
	}
	root := yaml.Node{Kind: yaml.MappingNode}
	put := func(n *yaml.Node, key string, value *yaml.Node) {
		n.Content = append(n.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
	text := func(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }
	put(&root, "apiVersion", text(apiVersion))
	put(&root, "kind", text(configKind))
	if c.current != "" {
		put(&root, currentContext, text(c.current))
	}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range c.contexts {
		item := &yaml.Node{Kind: yaml.MappingNode}
		for _, s := range settings {
			switch {
			case s.text != nil && *s.text(&c.contexts[i]) != "":
				put(item, s.key, text(*s.text(&c.contexts[i])))
			case s.yes != nil && *s.yes(&c.contexts[i]):
				put(item, s.key, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
			}
		}
		list.Content = append(list.Content, item)
	}
	put(&root, "contexts", list)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := firstOf(e.Encode(&root), e.Close()); err != nil {
		return fmt.Errorf("write %s: %w", c.path, err)
	}
	return writePrivate(c.path, b.Bytes())
}

// writePrivate writes a file whole or not at all, for nobody else to read, and makes its folder.
func writePrivate(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of %s: %w", path, err)
	}
	if err := renameio.WriteFile(path, content, 0o600, renameio.IgnoreUmask()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
