package ui

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// recordsOnPage is how many records are shown at a time.
const recordsOnPage = 50

// auditPage is the audit trail, newest first.
type auditPage struct {
	Records []*adminpb.Record
	Head    rollout.Head // where the whole trail ends
	Chain   chainState
	Scoped  bool // the caller sees a part of the trail, whose chain cannot be checked
	Domains []string
	Newest  string // the address of the first page; "" there
	Older   string

	Actor, Action, Target, Domain, From, To string
}

// actions are what a record can be about.
var actions = []rollout.Action{
	"all", rollout.ActionApply, rollout.ActionPromote, rollout.ActionAbort, rollout.ActionPause, rollout.ActionResume, rollout.ActionDelete,
	rollout.ActionRollback, rollout.ActionRollbackTo, rollout.ActionRollbackDomain, rollout.ActionFreeze, rollout.ActionUnfreeze,
	rollout.ActionOverride, rollout.ActionDeleteOverride, rollout.ActionPlanDone, rollout.ActionBreakGlass, rollout.ActionRenewLineage,
	rollout.ActionReplaceLineage, rollout.ActionAddCredential, rollout.ActionRevokeCredential, rollout.ActionSilence, rollout.ActionUnsilence,
	rollout.ActionTestAlert,
}

// Actions are what can be chosen.
func (*auditPage) Actions() []string {
	names := make([]string, len(actions))
	for i, a := range actions {
		names[i] = string(a)
	}
	return names
}

// Any reports whether records are left out.
func (p *auditPage) Any() bool {
	return p.Actor != "" || p.Action != "all" || p.Target != "" || p.Domain != "" || p.From != "" || p.To != ""
}

func (u *UI) audit(ctx context.Context, r *request) (view, error) {
	q := r.Query
	page := &auditPage{
		Actor: strings.TrimSpace(q.Get("actor")), Target: strings.TrimSpace(q.Get("target")), Domain: q.Get("domain"),
		From: q.Get("from"), To: q.Get("to"), Scoped: r.Who.May(access.Viewer, "") != nil,
	}
	req, err := page.read(r)
	if err != nil {
		return view{}, err
	}
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error {
		resp, err := u.records(running, r.Who, req)
		page.Records, page.Head = resp.GetRecords(), rollout.Head{Records: resp.GetHeadNumber(), Seal: resp.GetHeadSeal()}
		return err
	})
	group.Go(func() error {
		resp, err := u.api.ListDomains(running, &adminpb.ListDomainsRequest{})
		for _, d := range resp.GetDomains() {
			page.Domains = append(page.Domains, d.GetName())
		}
		return err
	})
	if err := group.Wait(); err != nil {
		return view{}, err
	}
	if n := len(page.Records); n == recordsOnPage {
		page.Older = r.with("before", strconv.FormatInt(page.Records[n-1].GetNumber(), 10))
	}
	if req.GetBefore() != 0 {
		page.Newest = r.with("before", "")
	}
	if !page.Scoped {
		if page.Chain, err = u.chain.check(ctx, u.api, page.Head, time.Now()); err != nil {
			return view{}, err
		}
	}
	return view{Title: "Audit", Nav: "audit", Data: page}, nil
}

// read makes of an address what is asked of the API.
func (p *auditPage) read(r *request) (*adminpb.ListAuditRequest, error) {
	req := &adminpb.ListAuditRequest{Actor: p.Actor, Target: p.Target, Domain: p.Domain, Limit: recordsOnPage}
	var err error
	if p.Action, err = r.choice("action", p.Actions()...); err != nil {
		return nil, err
	}
	if p.Action != "all" {
		req.Action = p.Action
	}
	if req.Before, err = r.number("before"); err != nil {
		return nil, err
	}
	from, err := r.day("from")
	if err != nil {
		return nil, err
	}
	to, err := r.day("to")
	if err != nil {
		return nil, err
	}
	if !from.IsZero() {
		req.From = timestamppb.New(from)
	}
	if len(p.To) == len(time.DateOnly) {
		to = to.AddDate(0, 0, 1) // the whole of that day
	}
	if !to.IsZero() {
		req.To = timestamppb.New(to)
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return nil, fmt.Errorf("%w: from is %s and to is %s; from is the earlier one", rules.ErrInvalid, p.From, p.To)
	}
	return req, nil
}

// records are those of the trail, or of all domains that the caller is for.
func (u *UI) records(ctx context.Context, who access.Identity, req *adminpb.ListAuditRequest) (*adminpb.ListAuditResponse, error) {
	if req.GetDomain() != "" || who.Domains == nil {
		return u.api.ListAudit(ctx, req)
	}
	all := &adminpb.ListAuditResponse{}
	for _, domain := range who.Domains {
		resp, err := u.api.ListAudit(ctx, &adminpb.ListAuditRequest{
			Domain: domain, Target: req.GetTarget(), Actor: req.GetActor(), Action: req.GetAction(), From: req.GetFrom(), To: req.GetTo(),
			Before: req.GetBefore(), Limit: req.GetLimit(),
		})
		if err != nil {
			return nil, err
		}
		all.Records = append(all.Records, resp.GetRecords()...)
	}
	slices.SortFunc(all.Records, func(a, b *adminpb.Record) int { return int(b.GetNumber() - a.GetNumber()) })
	all.Records = all.Records[:min(len(all.Records), int(req.GetLimit()))]
	return all, nil
}

// recordPage is one record, with what it made of the rules.
type recordPage struct {
	*adminpb.Record

	Lines []string // what happened
	Diff  *textDiff
}

func (u *UI) record(ctx context.Context, r *request) (view, error) {
	number, err := strconv.ParseInt(r.PathValue("number"), 10, 64)
	if err != nil || number < 1 {
		return view{}, fmt.Errorf("%w: a record is named by its number, from 1 on, and not by %q", rules.ErrInvalid, r.PathValue("number"))
	}
	resp, err := u.records(ctx, r.Who, &adminpb.ListAuditRequest{Before: number + 1, Limit: 1})
	if err != nil {
		return view{}, err
	}
	if len(resp.GetRecords()) == 0 || resp.GetRecords()[0].GetNumber() != number {
		if r.Who.Domains != nil {
			return view{}, fmt.Errorf("%w: there is no record %d, or it is not of your domains: %s", rules.ErrNotFound, number, strings.Join(r.Who.Domains, ", "))
		}
		return view{}, fmt.Errorf("%w: there is no record %d", rules.ErrNotFound, number)
	}
	page := &recordPage{Record: resp.GetRecords()[0]}
	if detail := page.GetDetail(); detail != "" {
		page.Lines = strings.Split(detail, "\n")
	}
	if page.Diff, err = newTextDiff("before", "after", indented(page.GetBefore()), indented(page.GetAfter())); err != nil {
		return view{}, err
	}
	return view{Title: fmt.Sprintf("Record %d", number), Nav: "audit", Crumb: []link{{"Audit", "/audit"}}, Data: page}, nil
}

// indented is JSON with a line for each value; what is none stays as it is.
func indented(text string) string {
	var b bytes.Buffer
	if text == "" || json.Indent(&b, []byte(text), "", "  ") != nil {
		return text
	}
	return b.String() + "\n"
}

// brief is the first line of what happened, and how many more there are.
func brief(detail string) string {
	first, rest, more := strings.Cut(detail, "\n")
	if more {
		return fmt.Sprintf("%s; and %d more", first, strings.Count(rest, "\n")+1)
	}
	return first
}
