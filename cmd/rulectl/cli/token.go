package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Aliases: []string{"tokens"}, Short: "Make, list and revoke tokens and certificates' names", GroupID: groupTrust}
	return group(cmd, a.createTokenCommand(), a.listTokensCommand(), a.revokeTokenCommand())
}

type tokenFlags struct {
	name, role  string
	domains     []string
	expires     string
	certificate bool
}

func (a *app) createTokenCommand() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use:   "create --name NAME --role ROLE",
		Short: "Make a token, or let certificates with a name in",
		Long: "The token is printed this once, alone on standard output; the control plane keeps a hash of it. With --certificate\n" +
			"nothing is printed: certificates with that name (a URI of their subject alternative names, or their common name)\n" +
			"are let in. Only an admin may; the first admin is made with `controlplane token create`.\n\n" +
			"Roles: viewer looks; editor applies to shadow; operator promotes, rolls back, freezes, exempts, overrides and\n" +
			"deletes; admin makes tokens too; sidecar receives the rules of its domains, and nothing else.",
		Example: "  rulectl token create --name ci --role editor -d public-api --expires 90d > ci.token\n" +
			"  rulectl token create --name spiffe://example.org/cart --role sidecar -d public-api --certificate",
		Args: cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error { return a.createToken(ctx, f) }),
	}
	cmd.Flags().StringVar(&f.name, "name", "", "who it is for; of a certificate its name")
	cmd.Flags().StringVar(&f.role, "role", "", "viewer, editor, operator, admin or sidecar")
	cmd.Flags().StringArrayVarP(&f.domains, "domain", "d", nil, "domain it is for; may be repeated; by default all")
	cmd.Flags().StringVar(&f.expires, "expires", "", "for how long it is good, such as 12h or 90d, or never; by default 90d for a token, never for a certificate")
	cmd.Flags().BoolVar(&f.certificate, "certificate", false, "let certificates with the name in, in place of a token")
	a.messageFlag(cmd)
	a.yesFlag(cmd, "it is meant: do not ask")
	return cmd
}

func (a *app) createToken(ctx context.Context, f tokenFlags) error {
	if f.name == "" {
		return usagef("--name is missing: who is it for?")
	}
	if _, err := access.ParseRole(f.role); err != nil {
		return usagef("--role: %w", err)
	}
	req := &adminpb.CreateCredentialRequest{Name: f.name, Role: f.role, Domains: f.domains, Certificate: f.certificate, Message: a.message}
	if f.expires == "" && !f.certificate {
		f.expires = "90d" // a token that got somewhere it should not be ends some day
	}
	if f.expires != "" && f.expires != "never" {
		var life span
		if err := life.Set(f.expires); err != nil {
			return usagef("--expires: %w", err)
		}
		req.Expires = timestamppb.New(time.Now().Add(time.Duration(life)))
	}
	if err := a.allow(ctx, "make a credential for "+f.name); err != nil {
		return err
	}
	a.changing, a.lists = true, "rulectl token list"
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.CreateCredentialResponse, error) {
		return client.CreateCredential(ctx, req)
	})
	if err != nil {
		return err
	}
	item := newCredentialItem(resp.GetCredential())
	if a.structured() {
		return a.printData(struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			credentialItem
			Token string `json:"token,omitempty"` // this once
		}{apiVersion, "Credential", item, resp.GetToken()})
	}
	if resp.GetToken() != "" {
		fmt.Fprintln(a.io.Out, oneLine(resp.GetToken()))
	}
	a.tell("%s %s for %s: role %s, %s, %s; to end it: rulectl token revoke %s",
		oneLine(item.Type), oneLine(item.ID), oneLine(item.Name), oneLine(item.Role), oneLine(item.scope()), item.life(time.Now()), oneLine(item.ID))
	return nil
}

type credentialItem struct {
	ID      string   `json:"id"`
	Type    string   `json:"type"` // token or certificate
	Name    string   `json:"name"`
	Role    string   `json:"role"`
	Domains []string `json:"domains,omitempty"` // absent: all
	Created string   `json:"created"`
	Expires string   `json:"expires,omitempty"` // absent: never
	Revoked string   `json:"revoked,omitempty"`

	created, expires, revoked time.Time // zero: never, not
}

func newCredentialItem(c *adminpb.Credential) credentialItem {
	item := credentialItem{
		ID: c.GetId(), Type: c.GetKind(), Name: c.GetName(), Role: c.GetRole(), Domains: c.GetDomains(),
		created: c.GetCreated().AsTime(), Created: timeJSON(c.GetCreated()), Expires: timeJSON(c.GetExpires()), Revoked: timeJSON(c.GetRevoked()),
	}
	if c.GetExpires() != nil {
		item.expires = c.GetExpires().AsTime()
	}
	if c.GetRevoked() != nil {
		item.revoked = c.GetRevoked().AsTime()
	}
	return item
}

func (c *credentialItem) scope() string { return cmp.Or(strings.Join(c.Domains, ","), "all domains") }

// life says whether it is still good, and for how long.
func (c *credentialItem) life(now time.Time) string {
	switch {
	case !c.revoked.IsZero():
		return "✖ revoked " + when(c.revoked)
	case c.expires.IsZero():
		return "never expires"
	case !now.Before(c.expires):
		return "✖ expired " + when(c.expires)
	}
	return "until " + when(c.expires)
}

func (a *app) listTokensCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the tokens and certificates' names that are let in, revoked ones too",
		Args:  cobra.NoArgs,
		RunE:  a.run(func(ctx context.Context, _ []string) error { return a.listTokens(ctx) }),
	}
	a.listFlags(cmd)
	hasNames(cmd)
	return cmd
}

func (a *app) listTokens(ctx context.Context) error {
	l := &listing[credentialItem]{
		kind:   "CredentialList",
		header: []string{"ID", "TYPE", "NAME", "ROLE", "DOMAINS", "CREATED", "LIFE"},
		row: func(c credentialItem, _ bool) []string {
			return []string{c.ID, c.Type, c.Name, c.Role, c.scope(), when(c.created), c.life(time.Now())}
		},
		name: func(c credentialItem) string { return c.ID },
		none: func() { a.nothing("tokens", "make one with: rulectl token create") },
	}
	return l.list(ctx, a, func(ctx context.Context) ([]credentialItem, error) {
		resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListCredentialsResponse, error) {
			return client.ListCredentials(ctx, &adminpb.ListCredentialsRequest{})
		})
		items := make([]credentialItem, len(resp.GetCredentials()))
		for i, c := range resp.GetCredentials() {
			items[i] = newCredentialItem(c)
		}
		return items, err
	})
}

func (a *app) revokeTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke ID",
		Short:   "End a token, or a certificate's name",
		Long:    "What is open with it ends within a minute. ID is what `rulectl token list` shows, never the token itself.",
		Example: "  rulectl token revoke 4f1c9a20be77 -m \"it was in a log\"",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.revokeToken(ctx, args[0]) }),
	}
	a.messageFlag(cmd)
	a.yesFlag(cmd, "it is meant: do not ask")
	return cmd
}

func (a *app) revokeToken(ctx context.Context, id string) error {
	if strings.HasPrefix(id, "hg_") {
		return usagef("that is a token, and not its ID: an ID is what `rulectl token list` shows, the part between hg_ and the next _")
	}
	if err := a.allow(ctx, "revoke "+id); err != nil {
		return err
	}
	a.changing, a.lists = true, "rulectl token list"
	if _, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.RevokeCredentialResponse, error) {
		return client.RevokeCredential(ctx, &adminpb.RevokeCredentialRequest{Id: id, Message: a.message})
	}); err != nil {
		return err
	}
	if a.structured() {
		return a.printData(struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			ID         string `json:"id"`
		}{apiVersion, "Revocation", id})
	}
	fmt.Fprintf(a.io.Out, "%s is revoked\n", id)
	return nil
}
