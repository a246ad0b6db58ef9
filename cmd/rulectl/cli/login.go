package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) loginCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "login",
		Short: "Keep a token for the context in use, once the control plane has taken it",
		Long: "Login reads a token, at a terminal without showing it and else from standard input, asks the control plane whose it\n" +
			"is, and then writes it to the token file of the context, for nobody else to read. An admin makes a token with:\n" +
			"rulectl token create.",
		Example: "  rulectl login --context prod\n  rulectl login < ci.token",
		GroupID: groupSelf,
		Args:    cobra.NoArgs,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.login(ctx) }),
	}
}

// ownContext is the context that login and logout are about.
func (a *app) ownContext() (*setup, error) {
	if err := a.settle(); err != nil {
		return nil, err
	}
	if a.context == nil {
		return nil, usagef("no context is in use, whose token it would be: name one with --context; %s", a.config.names())
	}
	return a.context, nil
}

// maxTokenText is far above what a token has.
const maxTokenText = 4096

func (a *app) login(ctx context.Context) error {
	in, err := a.ownContext()
	if err != nil {
		return err
	}
	token, err := a.readSecret(ctx, fmt.Sprintf("token for %s (it is not shown): ", in.Name))
	if err != nil {
		return err
	}
	a.proof.token, a.proof.tokenFile = token, ""
	who, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.WhoAmIResponse, error) {
		return client.WhoAmI(ctx, &adminpb.WhoAmIRequest{})
	})
	if err != nil {
		return err
	}
	if who.GetRole() == "" {
		return fmt.Errorf("the control plane at %s asks nobody who they are: it has not looked at the token, and nothing was kept", a.server)
	}
	path := in.TokenFile
	if path == "" {
		path = filepath.Join("tokens", in.Name)
		in.TokenFile = path
		if err := a.config.write(); err != nil {
			return err
		}
	}
	path = a.config.absolute(path)
	if err := writePrivate(path, []byte(token+"\n")); err != nil {
		return err
	}
	a.tell("✔ %s: you are %s, %s; the token is in %s", in.Name, oneLine(who.GetName()), oneLine(who.GetRole()), path)
	if e := who.GetExpires(); e != nil {
		a.tell("  it ends %s, in %s", when(e.AsTime()), left(e.AsTime(), time.Now()))
	}
	return nil
}

// readSecret reads a token without showing it.
func (a *app) readSecret(ctx context.Context, prompt string) (string, error) {
	var text string
	var err error
	if f := file(a.io.In); a.io.Interactive && f != nil {
		text, err = a.secret(ctx, f, prompt)
	} else {
		var read []byte
		read, err = io.ReadAll(io.LimitReader(a.io.In, maxTokenText+1))
		text = string(read)
	}
	token := strings.TrimSpace(text)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the token: %w", err)
	case token == "":
		return "", usagef("no token was given: pipe it in, as rulectl login < FILE")
	case len(token) > maxTokenText || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", usagef("what was given is no token, or more than one")
	}
	return token, nil
}

func (a *app) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Remove the token of the context in use from this machine",
		Long: "Logout removes the token file of the context. The token itself stays good until it ends or is revoked: see\n" +
			"`rulectl token revoke`.",
		Example: "  rulectl logout --context prod",
		GroupID: groupSelf,
		Args:    cobra.NoArgs,
		RunE:    a.run(func(context.Context, []string) error { return a.logout() }),
	}
}

func (a *app) logout() error {
	in, err := a.ownContext()
	if err != nil {
		return err
	}
	path := a.config.absolute(in.TokenFile)
	if path == "" {
		a.tell("%s: nobody is logged in", in.Name)
		return nil
	}
	token, _ := os.ReadFile(path) // only for the hint
	switch err := os.Remove(path); {
	case errors.Is(err, fs.ErrNotExist):
		a.tell("%s: nobody is logged in", in.Name)
		return nil
	case err != nil:
		return fmt.Errorf("remove the token: %w", err)
	}
	a.tell("✔ %s: the token is gone from this machine, and good until it ends", in.Name)
	if parts := strings.Split(strings.TrimSpace(string(token)), "_"); len(parts) == 3 {
		a.tell("  to end it everywhere, an admin runs: rulectl token revoke %s", oneLine(parts[1]))
	}
	return nil
}
