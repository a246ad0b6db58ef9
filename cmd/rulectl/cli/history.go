package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/web/api/adminpb"
)

func (a *app) historyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history RULE",
		Short: "Show what each revision made of a rule, newest first",
		Long: "History shows every step of a rule's life, also of one that was deleted: who made it, why, and where the rule stood\n" +
			"then. -o json has the versions with their specs.\n\nRULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl history public-api/login\n  rulectl rollback public-api/login --to v7    # back to a version it shows",
		GroupID: groupLook,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.history(ctx, args[0]) }),
	}
	a.domainFlag(cmd, "domain of the rule")
	a.listFlags(cmd)
	return cmd
}

type historyItem struct {
	Revision  int64        `json:"revision"`
	Time      string       `json:"time"`
	Actor     string       `json:"actor"`
	Verified  bool         `json:"verified"` // false: the name is only what the client said
	Action    string       `json:"action"`
	State     string       `json:"state"`
	Percent   float64      `json:"percent"`
	Message   string       `json:"message,omitempty"`
	Stable    *versionItem `json:"stable,omitempty"`
	Candidate *versionItem `json:"candidate,omitempty"`
}

func (a *app) history(ctx context.Context, rule string) error {
	a.domainWay = "rulectl audit list -d %s"
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	l := &listing[*adminpb.HistoryEntry]{
		kind:   "HistoryList",
		header: []string{"REVISION", "TIME", "ACTOR", "ACTION", "STATE", "MESSAGE"},
		right:  []string{"REVISION"},
		texts:  []string{"STATE", "MESSAGE"},
		row: func(e *adminpb.HistoryEntry, _ bool) []string {
			return []string{
				number(e.GetRevision()), when(e.GetTime().AsTime()), actorText(e.GetActor(), e.GetVerified()), e.GetAction(), e.GetState(), e.GetMessage(),
			}
		},
		item: func(e *adminpb.HistoryEntry) any { return newHistoryItem(e) },
		none: func() {}, // a rule without a history is not found
	}
	return l.list(ctx, a, func(ctx context.Context) ([]*adminpb.HistoryEntry, error) {
		resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.HistoryResponse, error) {
			return client.History(ctx, &adminpb.HistoryRequest{Domain: domain, Rule: name})
		})
		return resp.GetEntries(), err
	})
}

func newHistoryItem(e *adminpb.HistoryEntry) historyItem {
	return historyItem{
		Revision: e.GetRevision(), Time: timeJSON(e.GetTime()), Actor: e.GetActor(), Verified: e.GetVerified(), Action: e.GetAction(),
		State: e.GetState(), Percent: float64(e.GetPercent()) / 100, Message: e.GetMessage(),
		Stable: newVersionItem(e.GetStable()), Candidate: newVersionItem(e.GetCandidate()),
	}
}

// actorText marks a name that nobody has verified.
func actorText(name string, verified bool) string {
	if verified {
		return name
	}
	return name + " (unverified)"
}
