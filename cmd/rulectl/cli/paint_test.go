package cli

import (
	"bytes"
	"testing"
)

func TestMarksAreAsTheEnvironmentWantsThem(t *testing.T) {
	t.Parallel()
	const text = "✔ Synced 3, ❄ FROZEN…\n"
	for _, c := range []struct {
		what     string
		terminal bool
		env      map[string]string
		want     string
	}{
		{"a pipe", false, nil, text},
		{"a pipe in another locale", false, map[string]string{"LANG": "C"}, "+ Synced 3, * FROZEN~\n"},
		{"a terminal", true, map[string]string{"LANG": "de_DE.UTF-8"}, "\x1b[32m✔ Synced\x1b[0m 3, \x1b[31m❄ FROZEN\x1b[0m…\n"},
		{"a terminal without a locale", true, map[string]string{"TERM": "dumb"}, "+ Synced 3, * FROZEN~\n"},
		{"the first of three counts", true, map[string]string{"LC_ALL": "C.utf8", "LANG": "C", "CLICOLOR": "0"}, text},
		{"no colours", true, map[string]string{"NO_COLOR": "1", "CLICOLOR_FORCE": "1", "LANG": "C.UTF-8"}, text},
		{"forced colours", false, map[string]string{"CLICOLOR_FORCE": "1"}, "\x1b[32m✔ Synced\x1b[0m 3, \x1b[31m❄ FROZEN\x1b[0m…\n"},
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
