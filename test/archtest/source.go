package archtest

import (
	"fmt"
	"path"
	"strings"
)

// CheckPackageComments reports packages without a comment in the form that godoc shows.
// Packages of generated code alone are left out: the generator writes them.
func CheckPackageComments(tree Tree) []string {
	written := map[string]bool{} // folders with a file that a person wrote, tests aside
	for _, f := range tree.Files {
		if !f.Generated && !strings.HasSuffix(f.Path, "_test.go") {
			written[path.Dir(f.Path)] = true
		}
	}
	var found []string
	for _, p := range tree.own() {
		dir := tree.dir(p.ImportPath)
		want := "Package " + p.Name
		if p.Name == "main" {
			want = "Command " + path.Base(p.ImportPath)
		}
		// The name ends there: "Package rulesets …" does not describe package rules.
		rest, ok := strings.CutPrefix(p.Doc, want)
		if !written[dir] || ok && (rest == "" || strings.ContainsAny(rest[:1], " .,:;")) {
			continue
		}
		found = append(found, fmt.Sprintf("%s has no package comment that begins %q (it begins %.40q). "+
			"The comment is where a reader starts: purpose, the picture to hold, what it gives up, safe use from goroutines.",
			dir, want, p.Doc))
	}
	return found
}

// CheckNoSkips reports tests that may skip themselves.
func CheckNoSkips(tree Tree) []string {
	var found []string
	for _, f := range tree.Files {
		if !f.Test() {
			continue
		}
		for _, call := range f.Calls {
			skips := call.Method == "Skip" || call.Method == "Skipf" || call.Method == "SkipNow" ||
				call.Receiver == "testing" && call.Method == "Short"
			if skips {
				found = append(found, fmt.Sprintf("%s:%d calls %s. "+
					"A skipped test looks green and proves nothing: let it fail and name what is missing, "+
					"or draw random inputs that need no discarding.", f.Path, call.Line, call))
			}
		}
	}
	return found
}

// CheckNoSleeps reports tests that wait by sleeping. In a synctest bubble sleeping is how
// the fake clock is moved; the call has to be in the literal handed to synctest.Test for
// this check to see that.
func CheckNoSleeps(tree Tree) []string {
	var found []string
	for _, f := range tree.Files {
		if !f.Test() {
			continue
		}
		for _, call := range f.Calls {
			if call.Receiver == "time" && call.Method == "Sleep" && !call.InBubble {
				found = append(found, fmt.Sprintf("%s:%d calls time.Sleep. "+
					"A sleep is too short on a loaded machine and too long on every other: wait on a channel, a log line or "+
					"harness.Eventually, pass the instant in, or use a synctest bubble.", f.Path, call.Line))
			}
		}
	}
	return found
}

// String returns the call as it is written.
func (c Call) String() string {
	if c.Receiver == "" {
		return "a method " + c.Method
	}
	return c.Receiver + "." + c.Method
}
