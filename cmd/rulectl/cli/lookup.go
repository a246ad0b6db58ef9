package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

type lookupFlags struct {
	overrideFlags
	reference string
	since     span
	limit     int32
}

func (a *app) lookupCommand() *cobra.Command {
	f := lookupFlags{since: span(24 * time.Hour), limit: 50}
	cmd := &cobra.Command{
		Use:   "lookup [RULE|DOMAIN] --key V[,V2…] | --reference REF",
		Short: "Show what happened to one customer: when, by which rule and version, and the references they were told",
		Long: "Lookup finds what is known of a customer by what they are known by: the values of a rule's key, or the reference\n" +
			"in the answer with which they were refused. It shows the refusals that are kept, a sample of the last ones, and how\n" +
			"the key stands among those that each version refused most; and it says what cannot be told from that.\n\n" +
			"The values are sent to be hashed, and are in no log, and in no output. By a domain all its rules are looked at that\n" +
			"have a key of such values; a reference needs neither rule nor domain. What the customer has left now: inspect.\n\n" +
			"RULE is DOMAIN/NAME, or a name with -d.",
		Example: "  rulectl lookup public-api/login --key 203.0.113.7\n  rulectl lookup public-api --key K3Y --since 8d\n  rulectl lookup --reference 4QJ7XN2BVQKLM",
		GroupID: groupLook,
		Args:    cobra.MaximumNArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.lookup(ctx, args, &f) }),
	}
	cmd.Flags().StringArrayVar(&f.key, "key", nil, keyUsage)
	cmd.Flags().StringVar(&f.reference, "reference", "", "what the caller was told with the refusal")
	cmd.Flags().Var(&f.since, "since", "how far back, for example 1h or 3d; at most 8d")
	cmd.Flags().Int32VarP(&f.limit, "limit", "n", f.limit, "how many refusals; at most 500")
	a.domainFlag(cmd, "domain of the rule, or that is looked at")
	a.watchFlag(cmd)
	return cmd
}

// about reads which rule or domain is looked at; "" for what is not said.
func (a *app) about(args []string) (domain, rule string, err error) {
	if len(args) == 0 {
		return a.domain, "", nil
	}
	return a.domainOrRule(args[0])
}

func (a *app) lookup(ctx context.Context, args []string, f *lookupFlags) error {
	domain, rule, err := a.about(args)
	switch {
	case err != nil:
		return err
	case len(f.key) > 0 && f.reference != "":
		return usagef("--key and --reference exclude each other")
	case len(f.key) == 0 && f.reference == "" && rule == "":
		return usagef("say who it is about: --key, or --reference")
	case f.reference == "" && domain == "":
		return usagef("--key needs to know where: name the rule, or the domain")
	}
	if rule != "" {
		if err := a.checkKey(ctx, domain+"/"+rule, &f.overrideFlags); err != nil {
			return err
		}
	}
	return a.see(ctx, func(ctx context.Context) (seen, error) {
		resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.LookupResponse, error) {
			return client.Lookup(ctx, &adminpb.LookupRequest{
				Domain: domain, Rule: rule, Key: f.values(), Reference: f.reference, Since: durationpb.New(time.Duration(f.since)), Limit: f.limit,
			})
		})
		if err != nil {
			return seen{}, err
		}
		s := seen{text: lookupText(resp), data: newLookupItem(resp), says: []any{resp.GetStandings(), resp.GetRefusals(), resp.GetUnknown(), resp.GetMissing()}}
		if len(resp.GetRefusals()) == 0 {
			s.none = func() { a.noRefusals(domain, rule, f) }
		}
		return s, nil
	})
}

func (a *app) noRefusals(domain, rule string, f *lookupFlags) {
	switch since := age(time.Duration(f.since)); {
	case f.reference != "":
		a.tell("no refusal with this reference in the last %s; look further back with --since, or by the customer's key: rulectl lookup DOMAIN --key VALUE", since)
	case rule == "":
		a.tell("no refusal of this key is kept in the last %s; look further back with --since, or at one rule: rulectl lookup %s/RULE --key VALUE", since, domain)
	default:
		a.tell("no refusal of this key is kept in the last %s; look further back with --since; what it has left now: rulectl inspect %s/%s --key VALUE", since, domain, rule)
	}
}

func lookupText(r *adminpb.LookupResponse) string {
	var b strings.Builder
	if labels := labelsOf(r); len(labels) > 0 {
		fmt.Fprintf(&b, "Key:    %s\n", strings.Join(labels, " or "))
	}
	fmt.Fprintf(&b, "Time:   %s\n", localSpan(r.GetFrom().AsTime(), r.GetTo().AsTime()))
	if len(r.GetStandings()) > 0 {
		b.WriteString("\n" + standingsTable(r.GetStandings()))
	}
	if len(r.GetRefusals()) > 0 {
		b.WriteString("\n" + refusalsTable(r.GetRefusals()))
	}
	if len(r.GetUnknown())+len(r.GetMissing()) > 0 {
		b.WriteString("\n")
	}
	for _, text := range r.GetUnknown() {
		b.WriteString("◌ unknown: " + oneLine(text) + "\n")
	}
	return b.String() + missingText(r.GetMissing())
}

// labelsOf is how the key is shown elsewhere.
func labelsOf(r *adminpb.LookupResponse) (list []string) {
	for _, k := range r.GetStandings() {
		if label := oneLine(k.GetLabel()); !slices.Contains(list, label) {
			list = append(list, label)
		}
	}
	return list
}

func standingsTable(list []*adminpb.KeyStanding) string {
	rows := make([][]string, len(list))
	for i, k := range list {
		rows[i] = []string{k.GetRule(), fmt.Sprintf("v%d", k.GetVersion()), k.GetRole(), "", "", "", ""}
		switch {
		case k.GetRank() > 0:
			copy(rows[i][3:], []string{fmt.Sprint(k.GetRank()), tally.Thousands(k.GetRefused()), tally.Thousands(k.GetWouldRefuse()), unsure(k.GetOver())})
		case k.GetOver() > 0:
			copy(rows[i][3:], []string{"none", "?", "?", unsure(k.GetOver())})
		default:
			copy(rows[i][3:], []string{"none", "0", "0", ""})
		}
	}
	return renderTable([]string{"RULE", "VERSION", "STAGE", "RANK", "REFUSED", "WOULD REFUSE", "UNSURE"}, rows, "RANK", "REFUSED", "WOULD REFUSE", "UNSURE")
}

func refusalsTable(list []*adminpb.Refusal) string {
	rows := make([][]string, len(list))
	for i, r := range list {
		rows[i] = []string{
			local(r.GetTime().AsTime()), r.GetDomain() + "/" + r.GetRule(), fmt.Sprintf("v%d", r.GetVersion()), r.GetLimit(),
			strings.ReplaceAll(r.GetOutcome(), "_", " "), r.GetPath(), r.GetReference(), r.GetNode(),
		}
	}
	return renderTable([]string{"WHEN", "RULE", "VERSION", "LIMIT", "OUTCOME", "PATH", "REFERENCE", "SIDECAR"}, rows)
}

type lookupItem struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	From       string         `json:"from"`
	To         string         `json:"to"`
	Standings  []standingItem `json:"standings"` // of a key, among those that each version refused most
	Refusals   []refusalItem  `json:"refusals"`  // a sample, the newest first
	Unknown    []string       `json:"unknown"`   // what cannot be told, in words
	Missing    []missingItem  `json:"missing"`   // counts that will never come
}

type standingItem struct {
	Rule        string `json:"rule"` // its name
	Version     int64  `json:"version"`
	Role        string `json:"role"` // stable, candidate or earlier
	Label       string `json:"label"`
	Rank        int32  `json:"rank"` // 0: not among them
	Refused     int64  `json:"refused"`
	WouldRefuse int64  `json:"wouldRefuse"`
	Over        int64  `json:"over"` // at most so many of the two may be of other keys; without a rank: how often it was at most
}

type refusalItem struct {
	Time      string `json:"time"`
	Domain    string `json:"domain"`
	Rule      string `json:"rule"` // its name
	Version   int64  `json:"version"`
	Limit     string `json:"limit,omitempty"`
	Outcome   string `json:"outcome"` // refused, failed_closed, local_refused or would_refuse
	Label     string `json:"label"`
	Key       string `json:"key"` // keyed hash
	Path      string `json:"path"`
	Reference string `json:"reference,omitempty"` // absent: the request passed
	Node      string `json:"node"`
}

func newLookupItem(r *adminpb.LookupResponse) lookupItem {
	item := lookupItem{
		APIVersion: apiVersion, Kind: "Lookup", From: timeJSON(r.GetFrom()), To: timeJSON(r.GetTo()), Standings: []standingItem{},
		Refusals: []refusalItem{}, Unknown: append([]string{}, r.GetUnknown()...), Missing: newMissingItems(r.GetMissing()),
	}
	for _, k := range r.GetStandings() {
		item.Standings = append(item.Standings, standingItem{
			k.GetRule(), k.GetVersion(), k.GetRole(), k.GetLabel(), k.GetRank(), k.GetRefused(), k.GetWouldRefuse(), k.GetOver(),
		})
	}
	for _, f := range r.GetRefusals() {
		item.Refusals = append(item.Refusals, refusalItem{
			timeJSON(f.GetTime()), f.GetDomain(), f.GetRule(), f.GetVersion(), f.GetLimit(), f.GetOutcome(), f.GetLabel(), f.GetKeyId(),
			f.GetPath(), f.GetReference(), f.GetNode(),
		})
	}
	return item
}
