package ui_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/ui"
)

func TestAuditShowsFiltersAndExportsTheTrail(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wants(t, w.page("/audit"), "Nothing has been changed yet")
	w.apply("api", "{name: a, key: [ip], limit: 1/s}")
	w.apply("web", "{name: b, key: [ip], limit: 1/s}")
	w.promote("api", "a", 1000)
	if _, err := w.api.Freeze(w.as(), &adminpb.FreezeRequest{Domain: "api", For: durationpb.New(time.Hour), Why: &adminpb.Why{Message: markup}}); err != nil {
		t.Fatal(err)
	}
	page := w.page("/audit")
	wants(t, page, "The chain is whole", "all 4 records", "rulectl audit verify --anchor 4:", "&lt;script&gt;", `href="/audit/4"`, `href="/d/api/r/a"`, `href="/audit/export.jsonl"`)
	lacks(t, page, markup)
	tomorrow := time.Now().UTC().AddDate(0, 0, 1).Format(time.DateOnly)
	for query, want := range map[string]string{
		"?actor=ann":                 "4 3 2 1",
		"?actor=an":                  "",
		"?action=promote":            "3",
		"?domain=web":                "2",
		"?target=api/a":              "3 1",
		"?before=3":                  "2 1",
		"?from=" + tomorrow:          "",
		"?to=2026-01-01":             "",
		"?to=" + tomorrow:            "4 3 2 1",
		"?action=apply&domain=api":   "1",
		"?from=2026-01-01T00:00:00Z": "4 3 2 1",
	} {
		var got []string
		for _, part := range strings.Split(w.page("/audit"+query), `<th scope="row" class="num"><a href="/audit/`)[1:] {
			number, _, _ := strings.Cut(part, `"`)
			got = append(got, number)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s shows %v, want %s", query, got, want)
		}
	}
	w.refuses("/audit?action=steal", http.StatusBadRequest, "it is one of all, apply")
	w.refuses("/audit?from=yesterday", http.StatusBadRequest, "it is a day such as")
	w.refuses("/audit?from=2026-02-02&to=2026-02-01", http.StatusBadRequest, "from is the earlier one")
	w.refuses("/audit?before=-1", http.StatusBadRequest, "whole number")
	wants(t, w.page("/audit/3"), "v1 in shadow with no stable version -&gt; v1 at 10%", `<span class="added">&#43;`, "percent", "/d/api/do/rollback?to=3")
	w.refuses("/audit/5", http.StatusNotFound, "no record 5")
	w.refuses("/audit/x", http.StatusBadRequest, "not by")

	status, export := w.get("/audit/export.jsonl")
	if status != http.StatusOK {
		t.Fatalf("export: %d\n%s", status, export)
	}
	var chain rollout.Chain
	for line := range strings.Lines(export) {
		var l rollout.RecordLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		r, err := l.Record()
		if err != nil {
			t.Fatal(err)
		}
		if err := chain.Add(r); err != nil {
			t.Error(err)
		}
	}
	if chain.Records != 4 {
		t.Errorf("the export has %d records, want 4", chain.Records)
	}

	w.who = access.Identity{Name: "vi", Role: access.Viewer, Domains: []string{"web"}, Verified: true}
	page = w.page("/audit")
	wants(t, page, "Only the records of your domains are shown: web", `href="/audit/2"`)
	lacks(t, page, `href="/audit/4"`, "export.jsonl")
	wants(t, w.page("/audit/2"), "Record 2")
	w.refuses("/audit/4", http.StatusNotFound, "not of your domains: web")
	w.refuses("/audit/export.jsonl", http.StatusForbidden, "Export the audit trail")
}

// forging is an API whose trail was edited in the database.
type forging struct{ adminpb.AdminServiceClient }

func (f forging) ListAudit(ctx context.Context, req *adminpb.ListAuditRequest, opts ...grpc.CallOption) (*adminpb.ListAuditResponse, error) {
	resp, err := f.AdminServiceClient.ListAudit(ctx, req, opts...)
	for _, r := range resp.GetRecords() {
		if r.GetNumber() == 2 {
			r.Actor = "somebody else"
		}
	}
	return resp, err
}

func TestAuditFindsWhatWasEdited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 3 {
		w.apply("api", fmt.Sprintf("{name: a, key: [ip], limit: %d/s}", i+1))
	}
	var err error
	if w.ui, err = ui.New(ui.Options{API: forging{w.api}}); err != nil {
		t.Fatal(err)
	}
	wants(t, w.page("/audit"), "The audit trail is not what was written", "record 2 is not what was written", "1 records before it are in order", "rulectl audit verify")
}

// late is an API that tells an old end of the trail: to pages alone, or to everybody.
type late struct {
	adminpb.AdminServiceClient

	old   *rollout.Head
	pages bool
}

func (l late) ListAudit(ctx context.Context, req *adminpb.ListAuditRequest, opts ...grpc.CallOption) (*adminpb.ListAuditResponse, error) {
	resp, err := l.AdminServiceClient.ListAudit(ctx, req, opts...)
	if l.old.Records > 0 && (req.GetLimit() == 50 || !l.pages) {
		resp.HeadNumber, resp.HeadSeal = l.old.Records, l.old.Seal
	}
	return resp, err
}

func TestAuditTellsAnEndThatWasSetBackFromAPageThatIsLate(t *testing.T) {
	t.Parallel()
	for _, pages := range []bool{true, false} {
		w := newWorld(t)
		w.apply("api", "{name: a, key: [ip], limit: 1/s}")
		first, err := w.ledger.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		w.apply("api", "{name: a, key: [ip], limit: 2/s}")
		var old rollout.Head
		if w.ui, err = ui.New(ui.Options{API: late{w.api, &old, pages}}); err != nil {
			t.Fatal(err)
		}
		wants(t, w.page("/audit"), "all 2 records")
		old = first
		want := "its end was set back"
		if pages {
			want = "all 2 records"
		}
		wants(t, w.page("/audit"), want)
	}
}
