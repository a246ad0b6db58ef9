package ui

import (
	"net/url"
	"strings"

	"github.com/headgate/headgate/rules"
)

// sample is a request that a rule meets, as a command for curl.
type sample struct {
	Command string
	Lacks   []string // what a command cannot say, in words
}

// sampleOf makes up the least that meets the spec: the first of several values, and something where anything will do.
func sampleOf(s *rules.Spec) sample {
	var made sample
	r := sampleRequest{method: "GET", path: "/", headers: map[string]string{}, query: url.Values{}}
	r.match(&s.Match, &made)
	for _, k := range s.Key {
		r.source(k.Source.String(), &made)
	}
	for i := range s.Limits {
		if by := s.Limits[i].By; by != nil {
			r.source(by.String(), &made)
		}
	}
	if s.When != nil {
		made.Lacks = append(made.Lacks, "The rule also asks for "+s.When.String()+".")
	}
	if s.Match.Not != nil {
		made.Lacks = append(made.Lacks, "The rule has exceptions, which the request must not meet.")
	}
	made.Command = r.command()
	return made
}

// sampleRequest is what is known of the request so far.
type sampleRequest struct {
	method, host, path string
	names, cookies     []string // of the headers, in their order
	headers            map[string]string
	query              url.Values
}

func (r *sampleRequest) match(m *rules.Match, made *sample) {
	if len(m.Method) > 0 {
		r.method = m.Method[0]
	}
	if len(m.Host) > 0 {
		r.host = strings.Replace(m.Host[0], "*", "any", 1)
	}
	if len(m.Path) > 0 {
		r.path = samplePath(m.Path[0])
	}
	for i := range m.Header {
		if f := &m.Header[i]; f.Present == nil || *f.Present {
			r.header(f.Name, sampleValue(&f.ValueMatch))
		}
	}
	for i := range m.Query {
		if f := &m.Query[i]; f.Present == nil || *f.Present {
			r.query.Set(f.Name, sampleValue(&f.ValueMatch))
		}
	}
	if len(m.ClientIP) > 0 {
		made.Lacks = append(made.Lacks, "It has to come from "+m.ClientIP[0].String()+".")
	}
	if len(m.GRPC) > 0 {
		made.Lacks = append(made.Lacks, "It is a call of gRPC: "+m.GRPC[0]+".")
	}
	for i := range m.Attr {
		made.Lacks = append(made.Lacks, "The attribute "+m.Attr[i].Name+" comes from a gateway.")
	}
}

// source gives the request a value of its own, where it has none.
func (r *sampleRequest) source(text string, made *sample) {
	kind, name, _ := strings.Cut(text, ":")
	value := "YOUR-" + strings.ToUpper(strings.TrimPrefix(name, "x-"))
	switch kind {
	case "header":
		if r.headers[name] == "" {
			r.header(name, value)
		}
	case "query":
		if !r.query.Has(name) {
			r.query.Set(name, value)
		}
	case "cookie":
		r.cookies = append(r.cookies, name+"="+value)
	case "attr":
		made.Lacks = append(made.Lacks, "The attribute "+name+" comes from a gateway.")
	}
}

func (r *sampleRequest) header(name, value string) {
	r.names = append(r.names, name)
	r.headers[name] = value
}

func samplePath(pattern string) string {
	segments := strings.Split(pattern, "/")
	for i, s := range segments {
		if s == "*" || strings.HasPrefix(s, "{") {
			segments[i] = "1"
		}
	}
	return strings.Join(segments, "/")
}

func sampleValue(v *rules.ValueMatch) string {
	switch {
	case len(v.In) > 0:
		return v.In[0]
	case v.Prefix != "":
		return v.Prefix + "1"
	case v.Regex != nil:
		return "MATCHING-" + v.Regex.String()
	}
	return "1"
}

// command is what a shell takes.
func (r *sampleRequest) command() string {
	words := []string{"curl", "-i"}
	if r.method != "GET" {
		words = append(words, "-X", r.method)
	}
	if r.host != "" {
		words = append(words, "-H", quoted("host: "+r.host))
	}
	for _, name := range r.names {
		words = append(words, "-H", quoted(name+": "+r.headers[name]))
	}
	if len(r.cookies) > 0 {
		words = append(words, "-b", quoted(strings.Join(r.cookies, "; ")))
	}
	target := "http://SIDECAR:8080" + r.path
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	return strings.Join(append(words, quoted(target)), " ")
}

// quoted is a word as shells take it literally.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
