package browser

import (
	_ "embed" // axe-core
	"fmt"
	"strings"
)

//go:embed testdata/axe/axe.min.js
var axe string

// violation is a rule of axe-core that the page breaks.
type violation struct {
	ID, Impact, Help, HelpURL string
	Nodes                     []struct {
		Target         []any // a selector; of a shadow tree, a list of them
		FailureSummary string
	}
}

// Accessible lets axe-core look at the page as it stands, and reports what keeps people from using it: violations whose
// impact is serious or critical, by the rules of WCAG and axe's best practices.
func (t *Tab) Accessible() {
	t.tb.Helper()
	for _, text := range t.violations() {
		t.tb.Errorf("%s is not accessible: %s", t.Path(), text)
	}
}

func (t *Tab) violations() []string {
	t.tb.Helper()
	Eval[bool](t, "window.axe ? true : ("+strings.TrimRight(axe, ";\n")+", true)")
	found := Eval[[]violation](t, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations)`)
	var texts []string
	for _, v := range found {
		if v.Impact != "serious" && v.Impact != "critical" {
			continue
		}
		text := fmt.Sprintf("%s (%s): %s, see %s", v.ID, v.Impact, v.Help, v.HelpURL)
		for _, n := range v.Nodes {
			text += fmt.Sprintf("\n  %v\n    %s", n.Target, strings.ReplaceAll(n.FailureSummary, "\n", "\n    "))
		}
		texts = append(texts, text)
	}
	return texts
}
