package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "whoami",
		Short:   "Show who the control plane takes you for, and which control plane that is",
		GroupID: groupTrust,
		Args:    cobra.NoArgs,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.whoami(ctx) }),
	}
}

type identityJSON struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Name       string   `json:"name"`
	Verified   bool     `json:"verified"`       // false: the name is only what this program said
	Role       string   `json:"role,omitempty"` // absent: nobody is asked who they are, and everybody may do everything
	Domains    []string `json:"domains,omitempty"`
	Expires    string   `json:"expires,omitempty"`
	Server     string   `json:"server"`
	Program    string   `json:"program"`
	Lineage    string   `json:"lineage"`
	Revision   int64    `json:"revision"`
	Context    string   `json:"context,omitempty"` // of the configuration
}

func (a *app) whoami(ctx context.Context) error {
	who, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.WhoAmIResponse, error) {
		return client.WhoAmI(ctx, &adminpb.WhoAmIRequest{})
	})
	if err != nil {
		return err
	}
	if a.structured() {
		return a.printData(identityJSON{
			apiVersion, "Identity", who.GetName(), who.GetVerified(), who.GetRole(), who.GetDomains(), timeJSON(who.GetExpires()),
			a.server, who.GetProgram(), who.GetLineage(), who.GetRevision(), a.inContext(),
		})
	}
	role, expires := who.GetRole(), "never"
	if role == "" {
		role = "everything: this control plane asks nobody who they are"
	}
	if who.GetExpires() != nil {
		expires = when(who.GetExpires().AsTime())
	}
	fmt.Fprintf(a.io.Out, "Name:     %s\nRole:     %s\nDomains:  %s\nExpires:  %s\nServer:   %s (%s)\nHistory:  %s\nRevision: %d\nContext:  %s\n",
		oneLine(actorText(who.GetName(), who.GetVerified())), oneLine(role), cmp.Or(oneLine(strings.Join(who.GetDomains(), ",")), "all"), expires,
		a.server, strings.Trim(oneLine(who.GetProgram()), "()"), oneLine(who.GetLineage()), who.GetRevision(), cmp.Or(a.inContext(), "none"))
	return nil
}
