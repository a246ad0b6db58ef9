package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Who did what, when and why; and is that what was written", GroupID: groupLook}
	return group(cmd, a.auditListCommand(), a.auditExportCommand(), a.auditVerifyCommand())
}

// The most records that the control plane returns at once.
const maxRecords = 1000

func (a *app) auditListCommand() *cobra.Command {
	var rule string
	var limit int32
	var before int64
	var since span
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the audit trail, newest first",
		Long: "Audit list shows who did what, when and why, refused attempts too. With --rule also what was done to it beside\n" +
			"others, by an apply or by the rollback of its domain.",
		Example: "  rulectl audit list -d public-api --since 24h\n  rulectl audit list --rule public-api/login --limit 20",
		Args:    cobra.NoArgs,
		RunE: a.run(func(ctx context.Context, _ []string) error {
			if limit < 1 || limit > maxRecords || before < 0 {
				return usagef("--limit is from 1 to %d, and --before is the number of a record", maxRecords)
			}
			req := &adminpb.ListAuditRequest{Domain: a.domain, Limit: limit, Before: before}
			if rule != "" {
				domain, name, err := a.ruleName(rule)
				if err != nil {
					return err
				}
				req.Domain, req.Target = domain, domain+"/"+name
			}
			return a.listAudit(ctx, req, time.Duration(since))
		}),
	}
	a.domainFlag(cmd, "only the records of this domain")
	cmd.Flags().Var(&since, "since", "only the records of the time before now, such as 24h or 7d; --limit holds too")
	cmd.Flags().StringVar(&rule, "rule", "", "only the records that name this rule")
	cmd.Flags().Int32Var(&limit, "limit", 50, "at most that many")
	a.listFlags(cmd)
	cmd.Flags().Int64Var(&before, "before", 0, "only records with a smaller number; by default from the newest")
	return cmd
}

// listAudit shows a page of the trail; since 0 is all of it.
func (a *app) listAudit(ctx context.Context, req *adminpb.ListAuditRequest, since time.Duration) error {
	l := &listing[*adminpb.Record]{
		kind:   "AuditList",
		header: []string{"NUMBER", "TIME", "ACTOR", "ACTION", "TARGET", "REVISION", "MESSAGE"},
		right:  []string{"NUMBER", "REVISION"},
		texts:  []string{"MESSAGE"},
		row: func(r *adminpb.Record, _ bool) []string {
			return []string{
				number(r.GetNumber()), when(r.GetTime().AsTime()), actorText(r.GetActor(), r.GetVerified()), r.GetAction(), r.GetTarget(),
				number(r.GetRevision()), r.GetMessage(),
			}
		},
		notes: recordNotes,
		item:  func(r *adminpb.Record) any { return r.Sealed().Line() },
		none:  func() { a.nothing("records", "each change makes one") },
	}
	oldest := int64(0)
	err := l.list(ctx, a, func(ctx context.Context) ([]*adminpb.Record, error) {
		resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListAuditResponse, error) {
			return client.ListAudit(ctx, req)
		})
		list := resp.GetRecords()
		if since > 0 {
			from := time.Now().Add(-since)
			list = slices.DeleteFunc(list, func(r *adminpb.Record) bool { return r.GetTime().AsTime().Before(from) })
		}
		if len(list) == int(req.GetLimit()) {
			oldest = list[len(list)-1].GetNumber()
		}
		return list, err
	})
	if err == nil && oldest > 0 && !a.structured() {
		a.tell("older ones: --before %d", oldest)
	}
	return err
}

// recordNotes say what happened, or why it did not.
func recordNotes(r *adminpb.Record, _ time.Time) []string {
	first, rest, more := strings.Cut(r.GetDetail(), "\n")
	switch {
	case r.GetRefused() != "":
		return []string{"✖ refused: " + r.GetRefused()}
	case more:
		return []string{fmt.Sprintf("%s; and %d more", first, strings.Count(rest, "\n")+1)}
	case first != "":
		return []string{first}
	}
	return nil
}
