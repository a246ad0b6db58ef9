package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// parsing is how Go says that a number or a yes was not understood.
var parsing = regexp.MustCompile(`strconv\.Parse(\w+): parsing "[^"]*": .*$`)

// flagError says in words what a value should have been.
func flagError(err error) error {
	text := parsing.ReplaceAllStringFunc(err.Error(), func(text string) string {
		if strings.Contains(text, "ParseBool") {
			return "write true or false"
		}
		return "write a whole number that is not too large"
	})
	return errors.New(strings.Replace(text, "time: invalid duration", "write a length of time, such as 30s or 5m, and not", 1))
}

// sayArguments has a command say which of its arguments is missing, or too much.
func sayArguments(cmd *cobra.Command) {
	check := cmd.Args
	if check == nil || cmd.HasSubCommands() {
		return
	}
	_, names, _ := strings.Cut(cmd.Use, " ")
	name, _, _ := strings.Cut(names, " ")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var known usageError
		switch {
		case err == nil || errors.As(err, &known):
			return err
		case len(args) == 0:
			return fmt.Errorf("%s is missing", name)
		case cobra.NoArgs(cmd, args) != nil && check(cmd, nil) == nil && check(cmd, args[:1]) != nil:
			return fmt.Errorf("%q: %s takes no argument", args[0], cmd.CommandPath())
		}
		return fmt.Errorf("%q is one argument too many", args[len(args)-1])
	}
}
