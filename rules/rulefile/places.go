package rulefile

import (
	"fmt"
	"strings"
)

// A Place is a position in a file; lines and columns count from 1, columns in characters.
type Place struct {
	File         string
	Line, Column int
}

func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// located is a place with the path that the file has there.
type located struct {
	Place
	path string // rules[3].limit
}

// places are where the parts of a spec or an exemption stand, by the path that package rules uses: "limits[0].rate" may
// stand at "rules[3].limit.default". The whole has the path "".
type places map[string]located

func (p places) put(name string, at spot, file string) {
	p[name] = located{Place{file, at.node.Line, at.node.Column}, at.path}
}

// find returns the place of a part, or of the nearest part around it that has one.
func (p places) find(name string) located {
	for around := name; ; {
		if at, ok := p[around]; ok || around == "" {
			return at
		}
		around = around[:max(0, strings.LastIndexAny(around, ".["))]
	}
}

// follow reports what package rules says about a part. A fault at a place that has one already follows from it.
func (d *decoder) follow(p places, name, code, format string, args ...any) {
	at := p.find(name)
	where := position{at.Line, at.Column}
	if d.reported[where] {
		return
	}
	d.reported[where] = true
	d.place(at.Line, at.Column, code, format, args...)
	d.problems[len(d.problems)-1].Path = at.path
}
