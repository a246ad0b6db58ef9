package ui

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
)

const (
	// domainTrail is how many of its last changes the page of a domain shows.
	domainTrail = 10
	// mostCompared is over how many records two revisions are compared.
	mostCompared = 1000
)

// domainChanges are the last changes of a domain, and what lies between two revisions of it.
type domainChanges struct {
	Records    []*adminpb.Record
	From, To   int64 // compared; 0: none
	Between    []change
	Incomplete bool // more lies between than was looked at
}

func (u *UI) domainChanges(ctx context.Context, r *request, domain string) (c domainChanges, err error) {
	if c.From, err = r.number("from"); err != nil {
		return c, err
	}
	if c.To, err = r.number("to"); err != nil {
		return c, err
	}
	switch {
	case c.To != 0 && c.From == 0:
		return c, fmt.Errorf("%w: to is %d, and from is missing: it is the earlier revision", rules.ErrInvalid, c.To)
	case c.To != 0 && c.From >= c.To:
		return c, fmt.Errorf("%w: from is %d and to is %d; from is the earlier revision, and to the later one", rules.ErrInvalid, c.From, c.To)
	}
	records, whole, err := u.changesAfter(ctx, domain, c.From)
	if err != nil {
		return c, err
	}
	c.Records = records[:min(len(records), domainTrail)]
	if c.From != 0 {
		c.Incomplete = !whole
		c.compare(records)
	}
	return c, nil
}

// changesAfter returns the records of a domain that are newer than a revision, the newest first; without one the last of
// them. Whole is false where there are too many.
func (u *UI) changesAfter(ctx context.Context, domain string, revision int64) (records []*adminpb.Record, whole bool, err error) {
	req := &adminpb.ListAuditRequest{Domain: domain, Limit: domainTrail}
	if revision != 0 {
		req.Limit = mostCompared
	}
	for len(records) < mostCompared {
		resp, err := u.api.ListAudit(ctx, req)
		if err != nil {
			return nil, false, err
		}
		for _, r := range resp.GetRecords() {
			if r.GetRevision() != 0 && r.GetRevision() <= revision && len(records) >= domainTrail {
				return records, true, nil
			}
			records = append(records, r)
		}
		if len(resp.GetRecords()) == 0 || revision == 0 {
			return records, true, nil
		}
		req.Before = records[len(records)-1].GetNumber()
	}
	return records, records[len(records)-1].GetRevision() == revision, nil
}

// compare makes out of the records, the newest first, what each rule was at the one revision and is at the other.
func (c *domainChanges) compare(records []*adminpb.Record) {
	at := map[string]int{}
	for _, record := range slices.Backward(records) {
		if revision := record.GetRevision(); revision <= c.From || c.To != 0 && revision > c.To {
			continue
		}
		for line := range strings.Lines(record.GetDetail()) {
			what, steps, ok := strings.Cut(strings.TrimSpace(line), ": ")
			before, after, arrow := strings.Cut(steps, " -> ")
			if !ok || !arrow {
				continue
			}
			i, known := at[what]
			if !known {
				i, at[what] = len(c.Between), len(c.Between)
				c.Between = append(c.Between, change{What: what, Before: before})
			}
			c.Between[i].After = after
		}
	}
	c.Between = slices.DeleteFunc(c.Between, func(c change) bool { return c.Before == c.After })
	slices.SortFunc(c.Between, func(a, b change) int { return strings.Compare(a.What, b.What) })
}
