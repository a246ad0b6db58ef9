package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Remember control planes, as contexts: where each is, and how it is spoken with",
		Long: "A context is a control plane with a name: its address, TLS, the file of the token, the domain of rules that are named\n" +
			"without one. A protected context wants its name typed before any change, or --yes=NAME where nobody can be asked.\n\n" +
			"What counts, in this order: the flag, its environment variable, the context, the default. A context holds for its\n" +
			"own server: with another one named by --server or RULECTL_SERVER it is left aside, with its token.\n\n" +
			"The file is RULECTL_CONFIG, or headgate/config.yaml in XDG_CONFIG_HOME or ~/.config. It holds no secret.",
		Example: "  rulectl config set-context prod --server controlplane.example:18000 --tls --protected\n" +
			"  rulectl config use-context prod\n  rulectl login",
		GroupID: groupSelf,
	}
	return group(cmd, a.getContextsCommand(), a.useContextCommand(), a.setContextCommand(), a.deleteContextCommand(),
		a.currentContextCommand(), a.viewConfigCommand())
}

// readsConfig adapts a function of the configuration, which needs no context that is good.
func (a *app) readsConfig(f func(c *configFile, args []string) error) func(*cobra.Command, []string) error {
	return a.run(func(_ context.Context, args []string) error {
		c, err := readConfig(configPath(a.io.Getenv))
		if err != nil {
			return usageError{err}
		}
		return f(c, args)
	})
}

type contextItem struct {
	Current bool `json:"current"`
	setup
}

func contextItems(c *configFile) []contextItem {
	items := make([]contextItem, len(c.contexts))
	for i, s := range c.contexts {
		items[i] = contextItem{s.Name == c.current, s}
	}
	return items
}

func (a *app) getContextsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get-contexts",
		Aliases: []string{"list"},
		Short:   "Show the contexts; * is the one in use",
		Args:    cobra.NoArgs,
		RunE: a.readsConfig(func(c *configFile, _ []string) error {
			l := &listing[contextItem]{
				kind:   "ContextList",
				header: []string{"CURRENT", "NAME", "SERVER", "DOMAIN", "TOKEN FILE", "PROTECTED"},
				row: func(i contextItem, _ bool) []string {
					return []string{yesText(i.Current, "*"), i.Name, i.Server, i.Domain, i.TokenFile, yesText(i.Protected, "yes")}
				},
				name: func(i contextItem) string { return i.Name },
				none: func() { a.tell("no contexts; make one with: rulectl config set-context NAME --server HOST:PORT") },
			}
			return l.show(a, contextItems(c))
		}),
	}
	a.listFlags(cmd)
	hasNames(cmd)
	return cmd
}

func yesText(is bool, text string) string {
	if is {
		return text
	}
	return ""
}

func (a *app) useContextCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "use-context NAME",
		Short:   "Use a context from now on",
		Example: "  rulectl config use-context prod",
		Args:    cobra.ExactArgs(1),
		RunE: a.readsConfig(func(c *configFile, args []string) error {
			in := c.find(args[0])
			if in == nil {
				return a.noContext(c, args[0])
			}
			c.current = in.Name
			if err := c.write(); err != nil {
				return err
			}
			a.tell("context %s: the control plane at %s%s", in.Name, in.address(), yesText(in.Protected, ", protected"))
			return nil
		}),
	}
}

func (s *setup) address() string {
	if s.Server == "" {
		return defaultServer
	}
	return s.Server
}

func (a *app) noContext(c *configFile, name string) error {
	return fmt.Errorf("there is no context %q in %s: %s", name, c.path, c.names())
}

func (a *app) setContextCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set-context NAME",
		Short: "Make a context, or change it",
		Long: "Set-context writes the settings that are given, and leaves the others of the context as they are: --server and the\n" +
			"flags of TLS and token that every command has, and those below. --server= takes one away. The first context is used\n" +
			"from then on; see use-context. Comments in the file are not kept.",
		Example: "  rulectl config set-context prod --server controlplane.example:18000 --tls --domain public-api --protected\n" +
			"  rulectl config set-context dev --server 127.0.0.1:18000",
		Args: cobra.ExactArgs(1),
	}
	f := cmd.Flags()
	f.StringP("domain", "d", "", "domain of rules that are named without one")
	f.Bool("protected", false, "want the name of the context typed before any change")
	f.Bool("require-message", false, "want a message, -m, with every change")
	cmd.RunE = a.readsConfig(func(c *configFile, args []string) error { return a.setContext(cmd, c, args[0]) })
	return cmd
}

func (a *app) setContext(cmd *cobra.Command, c *configFile, name string) error {
	if problem := checkContextName(name); problem != "" {
		return usagef("%s", problem)
	}
	in, did := c.find(name), "changed"
	if in == nil {
		c.contexts = append(c.contexts, setup{Name: name})
		in, did = &c.contexts[len(c.contexts)-1], "made"
	}
	for _, s := range settings {
		flag := cmd.Flags().Lookup(s.key)
		if flag == nil || !flag.Changed {
			continue
		}
		value := flag.Value.String()
		if s.yes != nil {
			*s.yes(in) = value == strconv.FormatBool(true)
			continue
		}
		if s.file && value != "" {
			var err error
			if value, err = filepath.Abs(value); err != nil { // the file is not where the command was run
				return fmt.Errorf("--%s: %w", s.key, err)
			}
		}
		*s.text(in) = value
	}
	if c.current == "" {
		c.current = name
	}
	if err := c.write(); err != nil {
		return err
	}
	a.tell("context %s is %s: the control plane at %s%s", name, did, in.address(), yesText(in.Protected, ", protected"))
	if c.current != name {
		a.tell("  next: rulectl config use-context %s", name)
	}
	return nil
}

func (a *app) deleteContextCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "delete-context NAME",
		Short: "Forget a context; its token file stays",
		Args:  cobra.ExactArgs(1),
		RunE: a.readsConfig(func(c *configFile, args []string) error {
			in := c.find(args[0])
			if in == nil {
				return a.noContext(c, args[0])
			}
			if in.TokenFile != "" {
				if _, err := os.Stat(c.absolute(in.TokenFile)); err == nil {
					a.tell("note: its token is still in %s", c.absolute(in.TokenFile))
				}
			}
			c.contexts = slices.DeleteFunc(c.contexts, func(s setup) bool { return s.Name == args[0] })
			if c.current == args[0] {
				c.current = ""
				a.tell("no context is in use now; see: rulectl config use-context")
			}
			return c.write()
		}),
	}
}

func (a *app) currentContextCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "current-context",
		Short: "Print the context in use; exit 1 when there is none",
		Args:  cobra.NoArgs,
		RunE: a.readsConfig(func(c *configFile, _ []string) error {
			if a.contextName != "" {
				c.current = a.contextName
			}
			switch {
			case c.current == "":
				return fmt.Errorf("no context is in use; %s", c.names())
			case c.find(c.current) == nil:
				return a.noContext(c, c.current)
			}
			fmt.Fprintln(a.io.Out, c.current)
			return nil
		}),
	}
}

func (a *app) viewConfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "view",
		Short: "Print the configuration, as YAML or with -o json",
		Args:  cobra.NoArgs,
		RunE: a.readsConfig(func(c *configFile, _ []string) error {
			if a.output == outputTable || a.output == outputWide {
				a.output = outputYAML
			}
			list := c.contexts
			if list == nil {
				list = []setup{}
			}
			return a.printData(struct {
				APIVersion string  `json:"apiVersion"`
				Kind       string  `json:"kind"`
				Current    string  `json:"current-context,omitempty"`
				Contexts   []setup `json:"contexts"`
			}{apiVersion, configKind, c.current, list})
		}),
	}
}
