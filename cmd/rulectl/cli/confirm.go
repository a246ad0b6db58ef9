package cli

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) yesFlag(cmd *cobra.Command, usage string) {
	cmd.Flags().BoolVarP(&a.yes, "yes", "y", false, usage)
}

// confirm holds what cannot be overlooked until somebody says yes: at a terminal by an answer, elsewhere by --yes. What is
// as in "delete a/x"; whatever else is to be known for the answer has been printed.
func (a *app) confirm(what string) error {
	if a.yes {
		return nil
	}
	if !a.io.Interactive {
		a.complain("nothing was changed, and nobody can be asked: %s", what)
		a.advise("when it is meant, say --yes")
		return explained{exitGuarded}
	}
	fmt.Fprintf(a.io.Err, "%s? [y/N] ", clean(what))
	answer, _ := bufio.NewReader(a.io.In).ReadString('\n') // an end of input is a no
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	a.complain("nothing was changed")
	return explained{exitGuarded}
}
