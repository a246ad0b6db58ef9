package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	yaml "go.yaml.in/yaml/v3"
)

func TestMarksAreAsTheEnvironmentWantsThem(t *testing.T) {
	t.Parallel()
	const text = "✔ Synced, 3, ❄ FROZEN…\n"
	for _, c := range []struct {
		what     string
		terminal bool
		env      map[string]string
		want     string
	}{
		{"a pipe", false, nil, text},
		{"a pipe in another locale", false, map[string]string{"LANG": "C"}, "+ Synced, 3, * FROZEN~\n"},
		{"a terminal", true, map[string]string{"LANG": "de_DE.UTF-8"}, "\x1b[32m✔ Synced\x1b[0m, 3, \x1b[31m❄ FROZEN\x1b[0m…\n"},
		{"a terminal without a locale", true, map[string]string{"TERM": "dumb"}, "+ Synced, 3, * FROZEN~\n"},
		{"the first of three counts", true, map[string]string{"LC_ALL": "C.utf8", "LANG": "C", "CLICOLOR": "0"}, text},
		{"no colours", true, map[string]string{"NO_COLOR": "1", "CLICOLOR_FORCE": "1", "LANG": "C.UTF-8"}, text},
		{"forced colours", false, map[string]string{"CLICOLOR_FORCE": "1"}, "\x1b[32m✔ Synced\x1b[0m, 3, \x1b[31m❄ FROZEN\x1b[0m…\n"},
		{"not forced", false, map[string]string{"CLICOLOR_FORCE": "0"}, text},
	} {
		getenv := func(key string) string { return c.env[key] }
		var b bytes.Buffer
		off := false
		p := &painter{w: &b, colours: coloured(c.terminal, getenv), ascii: !showsMarks(c.terminal, getenv), off: func() bool { return off }}
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil || b.String() != c.want {
			t.Errorf("%s: %q, want %q (%d, %v)", c.what, b.String(), c.want, n, err)
		}
		b.Reset()
		off = true // a program reads it
		if _, err := p.Write([]byte(text)); err != nil || b.String() != text {
			t.Errorf("%s, for a program: %q (%v)", c.what, b.String(), err)
		}
	}
}

// Only the first word had the colour.
func TestAMarkColoursItsWholeCell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ colour, marked, rest string }{
		{green, "✔ control plane", ": x answers"},
		{green, "✔ sidecar 127.0.0.1:8082", ": is ready"},
		{yellow, "⚠ No rules", "   3"},
		{red, "❄ all but failure: closed", "   -"},
		{red, "❄ a/x FROZEN until", " (2m left)"},
		{yellow, "⚠ 2 overrides", "; see"},
	} {
		var b bytes.Buffer
		p := &painter{w: &b, colours: true, off: func() bool { return false }}
		if _, err := p.Write([]byte(c.marked + c.rest)); err != nil || b.String() != tint(c.colour, c.marked)+c.rest {
			t.Errorf("%q (%v)", b.String(), err)
		}
	}
}

func TestNothingHiddenReachesATerminal(t *testing.T) {
	t.Parallel()
	const text = "a\x1b[2J\r\u009b1mb\u202e\u2066\u200f\u200b\ufeffc \x1b[31md\x1b[0m\n\té 日本\n"
	for _, c := range []struct {
		colours bool
		want    string
	}{
		{false, "a�[2J��1mb�����c �[31md�[0m\n\té 日本\n"},
		{true, "a�[2J��1mb�����c \x1b[31md\x1b[0m\n\té 日本\n"},
	} {
		var b bytes.Buffer
		p := &painter{w: &b, colours: c.colours, off: func() bool { return false }}
		if n, err := p.Write([]byte(text)); n != len(text) || err != nil || b.String() != c.want {
			t.Errorf("with colours %t: %q, want %q (%d, %v)", c.colours, b.String(), c.want, n, err)
		}
	}
}

func TestHiddenCharactersAreEscapedForPrograms(t *testing.T) {
	t.Parallel()
	const hostile = "a\u202e\x7f\u009b\x1b\U000e0001b"
	for format, decode := range map[output]func([]byte, any) error{outputJSON: json.Unmarshal, outputYAML: yaml.Unmarshal} {
		var b bytes.Buffer
		a := &app{io: IO{Out: &b}, output: format}
		if err := a.printData(map[string]string{"text": hostile}); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(b.String(), hidden) {
			t.Errorf("%s: %q", format, b.String())
		}
		var got map[string]string
		if err := decode(b.Bytes(), &got); err != nil || got["text"] != hostile {
			t.Errorf("%s: %q reads as %q (%v)", format, b.String(), got["text"], err)
		}
	}
}
