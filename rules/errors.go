package rules

import (
	"errors"
	"fmt"
	"strings"
)

// The kinds of failure. Every layer wraps one of them, and every edge (gRPC, HTTP, exit codes) maps them in one table.
var (
	ErrInvalid     = errors.New("invalid")
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("conflict")
	ErrForbidden   = errors.New("forbidden")
	ErrGuarded     = errors.New("guarded")
	ErrUnavailable = errors.New("unavailable")
	// ErrUnauthenticated: nobody knows who asks. Who is known and may not is ErrForbidden.
	ErrUnauthenticated = errors.New("not authenticated")
)

// A GuardError holds a change that is allowed but probably not meant, until whoever asks says that it is. It is an
// [ErrGuarded].
type GuardError struct {
	Rule   string // "domain/name", or the domain
	Danger string // what the change would do
	Way    string // how to do it nevertheless
}

func (e *GuardError) Error() string { return fmt.Sprintf("%s: %s: %s", e.Rule, e.Danger, e.Way) }

// Is reports that every GuardError is an ErrGuarded.
func (e *GuardError) Is(target error) bool { return target == ErrGuarded }

// A ConflictError refuses a change that does not fit the state it would change. Its text says which state that is and
// what can be done instead. It is an [ErrConflict].
type ConflictError struct {
	Rule  string // "domain/name"
	State string // where the rule stands: "v8 at 10% beside stable v7"
	Hint  string // what can be done
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s is %s: %s", e.Rule, e.State, e.Hint)
}

// Is reports that every ConflictError is an ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// A Problem is one fault in a rule file or a spec.
type Problem struct {
	Code    string // stable: HG0103
	File    string // as the user named it; "" where the spec did not come from a file
	Line    int    // from 1; 0 when unknown
	Column  int    // from 1
	Path    string // rules[3].limit
	Message string // what is wrong, and what would be right
	// Warning marks what is valid, and probably not meant. A [ValidationError] has none.
	Warning bool
}

func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" || p.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	severity := "error"
	if p.Warning {
		severity = "warning"
	}
	fmt.Fprintf(&b, "%s %s: ", severity, p.Code)
	if p.Path != "" {
		fmt.Fprintf(&b, "%s: ", p.Path)
	}
	b.WriteString(p.Message)
	return b.String()
}

// A ValidationError lists every problem found, in the order of the file. It is an [ErrInvalid].
type ValidationError struct {
	Problems []Problem
}

func (e *ValidationError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Is reports that every ValidationError is an ErrInvalid.
func (e *ValidationError) Is(target error) bool { return target == ErrInvalid }
