package ui

import (
	"context"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	// restorePoints is how many of the last changes of a domain the form of its rollback offers to go back before, of as many
	// records as restoreTrail.
	restorePoints = 8
	restoreTrail  = 40
)

// restoreForm asks to which revision a domain goes back (?to=41).
func (u *UI) restoreForm(ctx context.Context, r *request) (form, error) {
	domain := r.PathValue("domain")
	to, err := restoreTo(r)
	if err != nil {
		return form{}, err
	}
	trail, err := u.api.ListAudit(ctx, &adminpb.ListAuditRequest{Domain: domain, Limit: restoreTrail})
	if err != nil {
		return form{}, err
	}
	title, verb, revision := "Roll "+domain+" back: to which revision?", "", "N"
	if to > 0 {
		revision = strconv.FormatInt(to, 10)
		title, verb = fmt.Sprintf("Restore %s as it was at revision %s?", domain, revision), "Roll back to revision "+revision
	}
	f, err := u.settingsForm(ctx, r, title, verb, []string{"rollback", "-d", domain, "--to-revision", revision})
	if err != nil {
		return form{}, err
	}
	f.Danger = true
	f.Choices = &choices{Label: "To before", Long: true, Exact: &field{Name: "to", Label: "Revision", Kind: "number", Value: r.Query.Get("to")}}
	for _, record := range trail.GetRecords() {
		if at := record.GetRevision() - 1; at > 0 && len(f.Choices.Items) < restorePoints {
			text := fmt.Sprintf("%d: %s %s by %s", record.GetRevision(), record.GetAction(), record.GetTarget(), record.GetActor())
			f.Choices.Items = append(f.Choices.Items, choice{text, fmt.Sprintf("%s/do/rollback?to=%d", backFrom(r.Request), at), at == to})
		}
	}
	f.Says = []string{"Stable versions, exemptions and overrides are restored in one revision. Rules born since and candidates without a stable version go to shadow, other candidates are dropped. Freezes and the shard stay."}
	if to > 0 {
		f.Fields = []field{hidden("to", revision)}
	}
	return f, nil
}

// restoreTo reads the revision; 0: none was chosen.
func restoreTo(r *request) (int64, error) {
	text := r.Query.Get("to")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: to is %q; it is the number of a revision, from 1", rules.ErrInvalid, text)
	}
	return n, nil
}

func (u *UI) restore(ctx context.Context, r *request, why *adminpb.Why) (done, error) {
	to, err := restoreTo(r)
	if err != nil {
		return done{}, err
	}
	resp, err := u.api.RollbackDomain(ctx, &adminpb.RollbackDomainRequest{Domain: r.PathValue("domain"), ToRevision: to, Why: why})
	return done{outcome: resp.GetOutcome()}, err
}
