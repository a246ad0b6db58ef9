package ui_test

import (
	"testing"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

func TestSettingsShowTokensToAdminsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wants(t, w.page("/settings"), "There are no tokens yet", "controlplane token create --database-url URL --name NAME --role admin", "Nobody is told of alerts", "makes and revokes tokens")
	made, err := w.api.CreateCredential(w.as(), &adminpb.CreateCredentialRequest{Name: "ci " + markup, Role: "editor", Domains: []string{"api"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.api.RevokeCredential(w.as(), &adminpb.RevokeCredentialRequest{Id: made.GetCredential().GetId()}); err != nil {
		t.Fatal(err)
	}
	kept, err := w.api.CreateCredential(w.as(), &adminpb.CreateCredentialRequest{Name: "ops", Role: "admin"})
	if err != nil {
		t.Fatal(err)
	}
	page := w.page("/settings")
	wants(t, page, "ci &lt;script&gt;", "✕ revoked", "✓ good", "/settings/do/create-token", "/settings/do/revoke-token?id="+kept.GetCredential().GetId())
	lacks(t, page, markup, kept.GetToken(), made.GetToken(), "revoke-token?id="+made.GetCredential().GetId())
	w.who.Role = access.Operator
	page = w.page("/settings")
	wants(t, page, "ann has the role operator; this needs admin")
	lacks(t, page, "✓ good", "/do/create-token")
}
