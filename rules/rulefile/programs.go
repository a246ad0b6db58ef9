package rulefile

import (
	"fmt"

	"github.com/headgate/headgate/rules"
)

// maxPrograms bounds the expressions that are compiled for one call of DecodeAll. One takes up to a millisecond and
// some hundred kilobytes, so that a file full of them would cost minutes and gigabytes otherwise.
const maxPrograms = 5000

// programs compiles each expression once: rules of a domain often share one.
type programs struct {
	whens   map[string]compiled[rules.When]
	regexes map[string]compiled[rules.Regex]
}

type compiled[T any] struct {
	program *T
	err     error
}

func newPrograms() *programs {
	return &programs{whens: map[string]compiled[rules.When]{}, regexes: map[string]compiled[rules.Regex]{}}
}

func (p *programs) when(text string) (*rules.When, error) {
	return compile(p.whens, text, rules.ParseWhen)
}

func (p *programs) regex(text string) (*rules.Regex, error) {
	return compile(p.regexes, text, rules.ParseRegex)
}

func compile[T any](known map[string]compiled[T], text string, parse func(string) (*T, error)) (*T, error) {
	if c, ok := known[text]; ok {
		return c.program, c.err
	}
	if len(known) >= maxPrograms {
		return nil, fmt.Errorf("there are more than %d different expressions: use match where it says the same, or apply fewer files at once", maxPrograms)
	}
	program, err := parse(text)
	known[text] = compiled[T]{program, err}
	return program, err
}
