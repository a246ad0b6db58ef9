package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/storage/postgres"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/auth"
	"github.com/headgate/headgate/web/ui"
)

// What BenchmarkDashboard looks at: so many domains with so many rules each, a fifth of which have a candidate, and so many
// sidecars, each for one domain.
const (
	dashboardDomains  = 5
	dashboardRules    = 200
	dashboardSidecars = 200
	dashboardMinutes  = 24 * time.Hour // for which there are counts by the minute, and by the hour for a month
)

// lookedAt is the rule whose page is measured: in each minute it has as many keys as are kept.
const lookedAt = "domain-1/rule-5"

// BenchmarkDashboard measures the pages of the dashboard on Postgres: 1,000 rules, 30 days of counts, 200 sidecars. Beside
// the mean it tells the slowest of the first twenty, and how large a page is. The database is on the same machine and holds
// all in memory; nobody else asks it, and nobody signs in.
func BenchmarkDashboard(b *testing.B) {
	pages := crowdedDashboard(b)
	get := func(path string) (time.Duration, int) {
		b.Helper()
		recorder := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		begun := time.Now()
		pages.ServeHTTP(recorder, r.WithContext(access.With(b.Context(), access.Identity{Name: "ann", Role: access.Admin, Verified: true})))
		took := time.Since(begun)
		if recorder.Code != http.StatusOK {
			b.Fatalf("%s: %d\n%s", path, recorder.Code, recorder.Body)
		}
		return took, recorder.Body.Len()
	}
	domain, name, _ := strings.Cut(lookedAt, "/")
	rule := "/d/" + domain + "/r/" + name
	for _, p := range []struct{ name, path string }{
		{"overview", "/"},
		{"domain", "/d/domain-1"},
		{"domain/most-refused", "/d/domain-1?sort=refused"},
		{"rule/hour", rule},
		{"rule/day", rule + "?range=24h"},
		{"rule/month", rule + "?range=30d"},
		{"rule/shadow", rule + "?tab=shadow"},
		{"rule/keys", rule + "?tab=keys"},
		{"rule/try", rule + "?tab=try"},
		{"rule/rollout", rule + "?tab=rollout"},
		{"rule/versions", rule + "?tab=versions"},
		{"fleet", "/sidecars"},
		{"audit", "/audit"},
	} {
		b.Run(p.name, func(b *testing.B) {
			var slowest time.Duration
			var size int
			for range 20 {
				took, n := get(p.path)
				slowest, size = max(slowest, took), max(size, n)
			}
			for b.Loop() {
				get(p.path)
			}
			b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
			b.ReportMetric(float64(size)/1000, "kB")
		})
	}
}

func crowdedDashboard(b *testing.B) http.Handler {
	b.Helper()
	url := harness.Postgres(b)
	store, err := postgres.Open(b.Context(), url, postgres.Options{})
	must(b, err)
	b.Cleanup(func() { must(b, store.Close()) })
	service := rollout.NewService(store, time.Now).WithTallies(store)
	door, err := auth.New(auth.Options{Refused: service.Refused})
	must(b, err)
	client := door.InProcess(api.NewServer(service, api.Options{Program: "bench", Tallies: store, Alerts: store}))
	ctx := access.With(b.Context(), access.Identity{Name: "ann", Role: access.Admin, Verified: true})
	for d := range dashboardDomains {
		crowdDomain(ctx, b, client, fmt.Sprint("domain-", d))
	}
	crowdFleet(b, store)
	crowdCounts(b, store, url)
	pages, err := ui.New(ui.Options{API: client})
	must(b, err)
	return pages
}

// crowdDomain makes the rules of a domain, each in force, and a candidate for every fifth.
func crowdDomain(ctx context.Context, b *testing.B, client adminpb.AdminServiceClient, domain string) {
	b.Helper()
	file := func(limit string, every int) *adminpb.File {
		var text strings.Builder
		fmt.Fprintf(&text, "apiVersion: headgate/v1\nkind: RuleSet\ndomain: %s\nrules:\n", domain)
		for i := range dashboardRules {
			if i%every == 0 {
				fmt.Fprintf(&text, "  - {name: rule-%d, description: calls of one client, match: {path: /v1/%d/*}, key: [header:x-api-key], limit: %s}\n", i, i, limit)
			}
		}
		return &adminpb.File{Name: domain + ".yaml", Content: []byte(text.String())}
	}
	_, err := client.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{file("600/min", 1)}, Enforce: true})
	must(b, err)
	_, err = client.Apply(ctx, &adminpb.ApplyRequest{Files: []*adminpb.File{file("300/min", 5)}})
	must(b, err)
}

func crowdFleet(b *testing.B, store *postgres.Store) {
	b.Helper()
	head, err := store.Head(b.Context())
	must(b, err)
	nodes := make([]rollout.Node, dashboardSidecars)
	for i := range nodes {
		nodes[i] = rollout.Node{
			ID: fmt.Sprint("sidecar-", i), Domain: fmt.Sprint("domain-", i%dashboardDomains), Program: "sidecar bench", Connected: true, Level: 1,
			Seen: time.Now().UTC().Truncate(time.Microsecond), Lineage: head.Lineage, Sent: head.Revision, Acked: head.Revision,
		}
	}
	must(b, store.SaveNodes(b.Context(), nodes))
}

// crowdCounts has counts of every version: of the last hour as a sidecar would report them, with keys, and of the time
// before written at once.
func crowdCounts(b *testing.B, store *postgres.Store, url string) {
	b.Helper()
	list, err := store.Rules(b.Context(), "")
	must(b, err)
	now := time.Now().UTC()
	for minute := range int64(60) {
		w := tally.Window{Number: minute + 1, Start: now.Add(-time.Duration(60-minute) * time.Minute).Truncate(tally.Span)}
		w.End = w.Start.Add(tally.Span)
		for d := range dashboardDomains {
			w.Domains = append(w.Domains, tally.DomainTally{Domain: fmt.Sprint("domain-", d), Counts: tally.DomainCounts{tally.RequestsAllowed: 90_000, tally.RequestsRefused: 900}})
		}
		for i := range list {
			for _, number := range []int64{1, 2} {
				if number == 1 || list[i].Candidate != nil {
					w.Versions = append(w.Versions, crowdTally(&list[i], number))
				}
			}
		}
		must(b, store.SaveWindows(b.Context(), []tally.SourceWindows{{Source: tally.Source{Node: "sidecar-0", Epoch: "e"}, Windows: []tally.Window{w}}}))
	}
	db, err := pgx.Connect(b.Context(), url)
	must(b, err)
	const before = `
		INSERT INTO tallies (uid, step, start, version, allowed, refused_1, would_allow_allowed, would_refuse_allowed)
		SELECT uid, $1, t, v.number, CASE v.number WHEN 1 THEN 50000 END, CASE v.number WHEN 1 THEN 300 END, CASE v.number WHEN 2 THEN 49000 END, CASE v.number WHEN 2 THEN 1000 END
		FROM versions v, generate_series($2::timestamptz, $3::timestamptz, make_interval(secs => $1)) t
		ON CONFLICT DO NOTHING`
	for _, kept := range []struct {
		step tally.Step
		back time.Duration
	}{{tally.StepHour, 30 * 24 * time.Hour}, {tally.StepMinute, dashboardMinutes}, {tally.StepWindow, time.Hour}} {
		step := time.Duration(kept.step)
		_, err = db.Exec(b.Context(), before, int(step.Seconds()), now.Add(-kept.back).Truncate(step), now.Truncate(step))
		must(b, err)
	}
	_, err = db.Exec(b.Context(), "ANALYZE")
	must(b, err)
	must(b, db.Close(b.Context()))
}

func crowdTally(r *rules.Rule, version int64) tally.VersionTally {
	v := tally.VersionTally{Domain: r.Domain, UID: r.UID, Version: version}
	v.Counts[tally.CellAllowed], v.Counts[tally.BindingCell(tally.Refused, 0)] = 800, 9
	if version == 2 {
		v.Counts = tally.Counts{}
		v.Counts[tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false)] = 790
		v.Counts[tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, false)] = 19
	}
	keys := 10
	if r.ID() == lookedAt {
		keys = tally.MaxTopKeys
		v.Rates = crowdRates()
	}
	for k := range keys {
		key := tally.KeyID{byte(k), r.UID[0], byte(version)}
		v.Keys = append(v.Keys, tally.KeyCount{Key: key, Label: fmt.Sprintf("#%08x", k), Refused: int64(version % 2), Would: int64(version - 1)})
		v.Distinct.Add(key)
	}
	slices.SortFunc(v.Keys, func(a, b tally.KeyCount) int { return slices.Compare(a.Key[:], b.Key[:]) })
	return v
}

// crowdRates are other keys in each minute, as many as a sample has.
func crowdRates() tally.Rates {
	keys := make([]tally.KeyRate, tally.MaxRateKeys)
	for i := range keys {
		keys[i] = tally.KeyRate{Key: tally.RateKey(rand.Uint64()), Calls: 1 + rand.Int64N(1000)}
	}
	return tally.NewRates(0, keys)
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
