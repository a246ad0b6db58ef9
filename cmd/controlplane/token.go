package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
)

func tokenCommand(config *settings) *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Manage tokens and client certificates at the database itself",
		Long: "Token works on the database itself, not through a control plane: so the first token is made, and one when all\n" +
			"are lost. Whoever has a token of an admin can do the same with rulectl.",
	}
	c.AddCommand(createTokenCommand(config), listTokensCommand(config), revokeTokenCommand(config))
	return c
}

// wanted is the credential that is asked for.
type wanted struct {
	name, role, expires string
	domains             []string
	certificate         bool
}

// lifetime is how long a token counts when nothing is said. Certificates expire by themselves.
const lifetime = "90d"

func createTokenCommand(config *settings) *cobra.Command {
	var w wanted
	c := &cobra.Command{
		Use:   "create --name NAME --role ROLE [--certificate]",
		Short: "Make a token, or let client certificates with a name in",
		Long: "Create prints a new token, this once: only a hash of it is kept. With --certificate it makes none, but lets in\n" +
			"whoever shows a certificate with that name: a URI of its subject alternative names, or its common name.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			token, credential, err := w.make(time.Now())
			if err != nil {
				return err
			}
			return config.withService(c, func(ctx context.Context, service *rollout.Service, why rollout.Why) error {
				credential, err := service.AddCredential(ctx, credential, why)
				if err != nil {
					return err
				}
				fmt.Fprintf(c.ErrOrStderr(), "%s %s lets in %s as %s, for %s, %s\n", credential.Kind, credential.ID, credential.Name,
					credential.Role, domainsText(credential.Domains), untilText(credential.Expires))
				if token != "" {
					fmt.Fprintln(c.OutOrStdout(), token)
				}
				return nil
			})
		},
	}
	config.databaseFlag(c)
	f := c.Flags()
	f.StringVar(&w.name, "name", "", "who it is for, as the audit trail has it; of a certificate its name")
	f.StringVar(&w.role, "role", "", "viewer, editor, operator, admin or sidecar")
	f.StringArrayVar(&w.domains, "domain", nil, "domain it is for, once for each; all by default")
	f.StringVar(&w.expires, "expires", "", "how long it counts, such as 12h or 90d, or never; by default "+lifetime+" for a token, never for a certificate")
	f.BoolVar(&w.certificate, "certificate", false, "let client certificates with the name in, in place of a token")
	return c
}

// make returns the credential, and for a token its text.
func (w wanted) make(now time.Time) (token string, c access.Credential, err error) {
	role, err := access.ParseRole(w.role)
	if err != nil {
		return "", access.Credential{}, fmt.Errorf("--role: %w", err)
	}
	expires := w.expires
	switch {
	case w.name == "":
		return "", access.Credential{}, errors.New("--name is missing: who is it for?")
	case w.certificate:
		c = access.NewCertificate(w.name)
	default:
		token, c = access.NewToken()
		c.Name = w.name
		if expires == "" {
			expires = lifetime
		}
	}
	if c.Expires, err = expiry(expires, now); err != nil {
		return "", access.Credential{}, fmt.Errorf("--expires: %w", err)
	}
	c.Role, c.Domains = role, w.domains
	return token, c, nil
}

// expiry reads how long something counts.
func expiry(text string, now time.Time) (time.Time, error) {
	if text == "" || text == "never" {
		return time.Time{}, nil
	}
	const longest = 100 * 366 * 24 * time.Hour
	d, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n int64
		n, err = strconv.ParseInt(days, 10, 16)
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d <= 0 || d > longest {
		return time.Time{}, fmt.Errorf("%q is not a time such as 12h or 90d, nor never", text)
	}
	return now.Add(d).UTC().Truncate(time.Second), nil
}

func listTokensCommand(config *settings) *cobra.Command {
	c := &cobra.Command{
		Use:   "list",
		Short: "List tokens and certificates, without any secret",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return config.withService(c, func(ctx context.Context, service *rollout.Service, _ rollout.Why) error {
				list, err := service.Credentials(ctx)
				if err != nil {
					return err
				}
				return printCredentials(c.OutOrStdout(), list, time.Now())
			})
		},
	}
	config.databaseFlag(c)
	return c
}

// printCredentials prints the columns and words of rulectl token list.
func printCredentials(out io.Writer, list []access.Credential, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "ID\tTYPE\tNAME\tROLE\tDOMAINS\tCREATED\tLIFE")
	for _, c := range list {
		life := untilText(c.Expires)
		switch _, err := c.Identity(now); {
		case !c.Revoked.IsZero():
			life = "✖ revoked " + when(c.Revoked)
		case err != nil:
			life = "✖ expired " + when(c.Expires)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.ID, c.Kind, c.Name, c.Role, domainsText(c.Domains), when(c.Created), life)
	}
	return w.Flush()
}

func when(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") }

func domainsText(domains []string) string {
	if domains == nil {
		return "all domains"
	}
	return strings.Join(domains, ",")
}

func untilText(expires time.Time) string {
	if expires.IsZero() {
		return "never expires"
	}
	return "until " + when(expires)
}

func revokeTokenCommand(config *settings) *cobra.Command {
	c := &cobra.Command{
		Use:   "revoke ID",
		Short: "End a token, or shut certificates with a name out",
		Long:  "Revoke ends what token list shows as ID. Calls are refused within seconds; streams that are open end within a minute.",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return config.withService(c, func(ctx context.Context, service *rollout.Service, why rollout.Why) error {
				if err := service.RevokeCredential(ctx, args[0], why); err != nil {
					return err
				}
				fmt.Fprintf(c.ErrOrStderr(), "%s is revoked\n", args[0])
				return nil
			})
		},
	}
	config.databaseFlag(c)
	return c
}
