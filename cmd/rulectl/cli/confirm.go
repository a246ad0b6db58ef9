package cli

import (
	"fmt"
	"strings"
)

// confirm holds what cannot be overlooked until somebody says yes: at a terminal by an answer, elsewhere by --yes. What is
// as in "delete a/x"; whatever else is to be known for the answer has been printed. In a protected context the answer is
// the context's name.
func (a *app) confirm(what string) error {
	if err := a.allow(what); err != nil || a.typed || a.yes.given() {
		return err
	}
	if !a.io.Interactive {
		a.complain("nothing was changed, and nobody can be asked: %s", what)
		a.advise("when it is meant, say --yes")
		return explained{exitGuarded}
	}
	fmt.Fprintf(a.io.Err, "%s? [y/N] ", clean(what))
	switch strings.ToLower(a.answer()) {
	case "y", "yes":
		return nil
	}
	a.complain("nothing was changed")
	return explained{exitGuarded}
}
