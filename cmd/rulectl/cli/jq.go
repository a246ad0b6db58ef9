package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/itchyny/gojq"
)

// compileFilter reads --jq, before anything is done.
func (a *app) compileFilter(ctx context.Context) error {
	if !a.flags.Changed("jq") {
		return nil
	}
	if a.flags.Changed("output") && a.output != outputJSON {
		return usagef("--jq is about what -o json prints: leave -o %s out", a.output)
	}
	query, err := gojq.Parse(a.jq)
	if err != nil {
		return usagef("--jq: %w", err)
	}
	code, err := gojq.Compile(query)
	if err != nil {
		return usagef("--jq: %w", err)
	}
	a.filter = func(in any) gojq.Iter { return code.RunWithContext(ctx, in) } // an expression may go on for ever
	a.output = outputJSON
	return nil
}

// filtered writes what --jq makes of some JSON.
func (a *app) filtered(w io.Writer, text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var in any
	if err := d.Decode(&in); err != nil {
		return fmt.Errorf("--jq: %w", err)
	}
	for results := a.filter(in); ; {
		v, ok := results.Next()
		if !ok {
			return nil
		}
		var halt *gojq.HaltError
		switch err, failed := v.(error); {
		case failed && errors.As(err, &halt) && halt.Value() == nil:
			return nil
		case failed:
			return fmt.Errorf("--jq: %w", err)
		}
		line, err := a.resultLine(v)
		if err != nil {
			return fmt.Errorf("--jq: %w", err)
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
}

// resultLine is a result as a program reads it: a text as it is. Only a terminal is spared what is not seen.
func (a *app) resultLine(v any) (string, error) {
	if text, ok := v.(string); ok {
		if terminal(a.io.Out) {
			text = clean(text)
		}
		return text + "\n", nil
	}
	text, err := gojq.Marshal(v)
	return string(escapeHidden(text, jsonEscape)) + "\n", err
}
