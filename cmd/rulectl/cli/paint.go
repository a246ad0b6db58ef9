package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
)

// painter is standard output or standard error as somebody sees it: marks have colours on a terminal, and are plain
// characters where the locale has no others. It is also the last fence before the terminal: nothing that is not seen
// passes, but the colours that are given here. What a program reads passes unchanged.
type painter struct {
	w       io.Writer
	colours bool
	ascii   bool
	off     func() bool // a program reads it
}

// paint puts painters before both outputs.
func (a *app) paint() {
	off := func() bool { return a.structured() || a.output == outputName }
	a.io.Out = newPainter(a.io.Out, a.io.Getenv, off)
	a.io.Err = newPainter(a.io.Err, a.io.Getenv, func() bool { return false })
}

// bleach takes the colours away.
func (a *app) bleach() {
	for _, w := range []io.Writer{a.io.Out, a.io.Err} {
		if p, ok := w.(*painter); ok {
			p.colours = false
		}
	}
}

func newPainter(w io.Writer, getenv func(string) string, off func() bool) *painter {
	at := terminal(w)
	return &painter{w: w, colours: coloured(at, getenv), ascii: !showsMarks(at, getenv), off: off}
}

// coloured follows no-color.org and the convention of CLICOLOR.
func coloured(terminal bool, getenv func(string) string) bool {
	force := getenv("CLICOLOR_FORCE")
	switch {
	case getenv("NO_COLOR") != "":
		return false
	case force != "" && force != "0":
		return true
	}
	return terminal && getenv("CLICOLOR") != "0" && getenv("TERM") != "dumb"
}

// showsMarks reports that the locale has more than ASCII. Without one a terminal has not; a file or a pipe is UTF-8
// unless the locale says otherwise.
func showsMarks(terminal bool, getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if locale := strings.ToLower(getenv(name)); locale != "" {
			return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
		}
	}
	return !terminal
}

const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
)

// marks are what status is marked with, always beside a word that says the same.
var marks = map[string]struct{ ascii, colour string }{
	"✔": {"+", green}, "✖": {"x", red}, "⚠": {"!", yellow}, "❄": {"*", red}, "‖": {"=", yellow}, "◌": {"o", yellow}, "•": {"-", ""},
	"…": {"~", ""}, "⟳": {"@", yellow}, "·": {".", ""},
}

// marked is a mark with the words behind it: to the end of a cell of a table, and to the first comma or colon of a sentence.
var marked = regexp.MustCompile(`(✔|✖|⚠|❄|‖|◌|•|…|⟳|·)( (failure: |[\pL\pN.-]+:)?[\pL\pN./-]+)*`)

// ours are the colours that tint gives.
var ours = regexp.MustCompile(`\x1b\[(31|32|33|1|0)m`)

// fenced is text without anything that is not seen.
func (p *painter) fenced(text string) string {
	if !p.colours {
		return clean(text)
	}
	var b strings.Builder
	at := 0
	for _, found := range ours.FindAllStringIndex(text, -1) {
		b.WriteString(clean(text[at:found[0]]) + text[found[0]:found[1]])
		at = found[1]
	}
	return b.String() + clean(text[at:])
}

// Write writes all of p, or fails.
func (p *painter) Write(b []byte) (int, error) {
	if p.off() {
		return p.w.Write(b)
	}
	painted := p.fenced(string(b))
	if p.colours || p.ascii {
		painted = p.marked(painted)
	}
	if _, err := io.WriteString(p.w, painted); err != nil {
		return 0, err
	}
	return len(b), nil
}

// raw is where bytes go that are no text of rulectl's: the content of a file, or what redraws a line.
func raw(w io.Writer) io.Writer {
	if p, ok := w.(*painter); ok {
		return p.w
	}
	return w
}

// marked gives marks their colours, or other characters.
func (p *painter) marked(text string) string {
	return marked.ReplaceAllStringFunc(text, func(text string) string {
		for mark, is := range marks {
			word, found := strings.CutPrefix(text, mark)
			if !found {
				continue
			}
			if p.ascii {
				mark = is.ascii
			}
			if p.colours && is.colour != "" {
				return tint(is.colour, mark+word)
			}
			return mark + word
		}
		return text
	})
}

func tint(colour, text string) string { return "\x1b[" + colour + "m" + text + "\x1b[0m" }

// tinted is a text in a colour where standard output has colours.
func (a *app) tinted(colour, text string) string {
	if p, ok := a.io.Out.(*painter); ok && p.colours && !p.off() {
		return tint(colour, text)
	}
	return text
}

// file is the file behind a reader; nil where it is none.
func file(r io.Reader) *os.File {
	f, _ := r.(*os.File)
	return f
}
