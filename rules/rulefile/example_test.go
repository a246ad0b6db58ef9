package rulefile_test

import (
	"fmt"

	"github.com/headgate/headgate/rules/rulefile"
)

func ExampleDecode() {
	sets, err := rulefile.Decode("rules.yaml", []byte(`
apiVersion: headgate/v1
kind: RuleSet
domain: public-api
rules:
  - {name: per-ip, key: [ip], limit: 60/min burst 120}
`))
	fmt.Println(sets[0].Domain, sets[0].Rules[0].Name, sets[0].Rules[0].Spec.Limits[0].Rate, err)

	_, err = rulefile.Decode("rules.yaml", []byte(`
apiVersion: headgate/v1
kind: RuleSet
domain: public-api
rules:
  - {name: per-ip, kye: [ip], limit: 60/m}
`))
	fmt.Println(err)
	// Output:
	// public-api per-ip 60/min burst 120 <nil>
	// rules.yaml:6:20: error HG0002: rules[0].kye: unknown key "kye": did you mean "key"? Known here: name, description, owner, labels, match, when, exact, key, missingKey, algorithm, limit, limits, cost, failure, response
	// rules.yaml:6:38: error HG0103: rules[0].limit: limit "60/m": window "m" is ambiguous: write "min" for minutes or "d" for days
}
