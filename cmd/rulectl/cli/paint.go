package cli

import (
	"io"
	"os"
	"regexp"
	"strings"
)

// painter is standard output or standard error as somebody sees it: marks have colours on a terminal, and are plain
// characters where the locale has no others. What a program reads passes unchanged.
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
	"✔": {"+", green}, "✖": {"x", red}, "⚠": {"!", yellow}, "❄": {"*", red}, "॥": {"=", yellow}, "◌": {"o", yellow}, "•": {"-", ""},
	"…": {"~", ""},
}

// marked is a mark with the word behind it.
var marked = regexp.MustCompile(`(✔|✖|⚠|❄|॥|◌|•|…)( \pL+)?`)

// Write writes all of p, or fails.
func (p *painter) Write(b []byte) (int, error) {
	if !p.colours && !p.ascii || p.off() {
		return p.w.Write(b)
	}
	painted := marked.ReplaceAllStringFunc(string(b), func(text string) string {
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
	if _, err := io.WriteString(p.w, painted); err != nil {
		return 0, err
	}
	return len(b), nil
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
