package load

import (
	"fmt"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

// Domain is the one that is measured.
const Domain = "load"

func ruleName(i int) string { return fmt.Sprintf("rule-%05d", i) }

const header = "apiVersion: headgate/v1\nkind: RuleSet\ndomain: " + Domain + "\nrules:\n"

// ruleFile is a domain of n rules, no two of which say the same.
func ruleFile(n int) string {
	var b strings.Builder
	b.WriteString(header)
	for i := range n {
		b.WriteString(ruleText(i, 600))
	}
	return b.String()
}

func ruleText(i, amount int) string {
	return fmt.Sprintf("  - {name: %s, owner: team-%d, match: {method: POST, path: /v1/service-%05d/*}, key: [header:x-api-key, attr:tenant], limit: %d/min burst %d}\n",
		ruleName(i), i%20, i, amount, 2*amount)
}

func decode(content string) ([]rules.NamedSpec, error) {
	sets, err := rulefile.Decode("load.yaml", []byte(content))
	if err != nil {
		return nil, err
	}
	named := make([]rules.NamedSpec, len(sets[0].Rules))
	for i, r := range sets[0].Rules {
		named[i] = rules.NamedSpec{Name: r.Name, Spec: r.Spec}
	}
	return named, nil
}
