package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// settle reads the configuration once and lets the context in use fill what neither a flag nor the environment says.
//
// A context holds for its own server, as a whole: with another one named, none of it counts, since its token is not for
// that server and its protection not about it.
func (a *app) settle() error {
	if a.config != nil {
		return nil
	}
	config, err := readConfig(configPath(a.io.Getenv))
	if err != nil {
		return usagef("the configuration cannot be used; see: rulectl config --help\n%w", err)
	}
	name := a.contextName
	if name == "" {
		name = config.current
	}
	in := config.find(name)
	if in == nil && name != "" {
		return usagef("there is no context %q in %s: %s", name, config.path, config.names())
	}
	a.config = config
	if in == nil {
		return nil
	}
	if in.Server != "" && a.given("server") && a.server != in.Server {
		if a.flags.Changed("context") && a.flags.Changed("server") {
			return usagef("--context %s is of the control plane at %s, and not of %s: name one of the two", in.Name, in.Server, a.server)
		}
		return nil
	}
	a.context = in
	a.proof.fill(a, in)
	if in.Server != "" {
		a.server = in.Server
	}
	return nil
}

// given reports that a flag was set, or its environment variable.
func (a *app) given(flag string) bool {
	return a.flags.Changed(flag) || a.io.Getenv("RULECTL_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))) != ""
}

// fill takes from a context what was not given.
func (p *proof) fill(a *app, in *setup) {
	text := func(into *string, flag, value string) {
		if value != "" && !a.given(flag) {
			*into = value
		}
	}
	text(&p.ca, "tls-ca", a.config.absolute(in.CA))
	text(&p.cert, "tls-cert", a.config.absolute(in.Cert))
	text(&p.key, "tls-key", a.config.absolute(in.Key))
	text(&p.serverName, "tls-server-name", in.ServerName)
	if p.token == "" && in.TokenFile != "" && !a.given("token-file") {
		p.tokenFile, p.ofContext = a.config.absolute(in.TokenFile), true
	}
	p.tls = p.tls || in.TLS && !a.given("tls")
	p.insecure = p.insecure || in.Insecure && !a.given("insecure")
}

// plainYes is the value of --yes without one.
const plainYes = "true"

// consent is the value of --yes: "" for none, plainYes, or the name of the context that is to be changed.
type consent string

func (c *consent) String() string { return string(*c) }

// Type has the help show it as a flag that needs no value.
func (c *consent) Type() string { return "bool" }

// Set reads the flag.
func (c *consent) Set(value string) error {
	if problem := checkContextName(value); problem != "" && value != plainYes {
		return fmt.Errorf("write --yes alone, or --yes=CONTEXT: %s", problem)
	}
	*c = consent(value)
	return nil
}

func (c consent) given() bool { return c != "" }

// name is that of the context; "" for none.
func (c consent) name() string {
	if c == plainYes {
		return ""
	}
	return string(c)
}

// yesFlag lets a command be told that what it does is meant. A second call only says better what it means.
func (a *app) yesFlag(cmd *cobra.Command, usage string) {
	f := cmd.Flags().Lookup("yes")
	if f == nil {
		f = cmd.Flags().VarPF(&a.yes, "yes", "y", "")
		f.NoOptDefVal = plainYes
	}
	f.Usage = usage + "; for a protected context --yes=CONTEXT"
}

// allow holds every change: in a protected context until its name was typed, or given with --yes=NAME, and in one that
// wants it until there is a message. What is as in "promote a/x to 10%".
func (a *app) allow(ctx context.Context, what string) error {
	if err := a.settle(); err != nil {
		return err
	}
	in := a.context
	switch named := a.yes.name(); {
	case in != nil && in.RequireMessage && a.message == "":
		return usagef("the context %s wants to know why: add -m \"…\", which is kept in the audit record", in.Name)
	case named != "" && (in == nil || named != in.Name):
		return usagef("--yes=%s is the yes for another context: %s", named, a.contextText())
	case in == nil || !in.Protected || named != "" || a.typed:
		return nil
	case !a.io.Interactive:
		a.complain("nothing was changed, and nobody can be asked: %s, in the protected context %s", what, in.Name)
		a.advise("when it is meant, say --yes=" + in.Name)
		return explained{exitGuarded}
	}
	fmt.Fprintf(a.io.Err, "%s, in the protected context %s? Type its name to go on: ", clean(what), in.Name)
	answer, err := a.answer(ctx)
	if err != nil {
		return err
	}
	if answer != in.Name {
		a.complain("nothing was changed")
		return explained{exitGuarded}
	}
	a.typed = true
	return nil
}

// inContext is the name of the context in use; "" for none.
func (a *app) inContext() string {
	if a.context == nil {
		return ""
	}
	return a.context.Name
}

func (a *app) contextText() string {
	if a.context == nil {
		return "none is in use here"
	}
	return a.context.Name + " is in use here"
}

func (a *app) contextFlag(flags *pflag.FlagSet) {
	flags.StringVar(&a.contextName, "context", a.io.Getenv("RULECTL_CONTEXT"),
		"context of the configuration to use, see rulectl config; also RULECTL_CONTEXT")
}
