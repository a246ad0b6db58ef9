package report

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/xdspb"
)

// FuzzRead has the server read any message. Whatever is in it, what comes out can be stored, summed and shown.
func FuzzRead(f *testing.F) {
	seed := func(m *xdspb.ReportRequest) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, int64(0))
	}
	full := newCounts()
	full.refuse(time.Unix(1_800_000_000, 0), 1)
	full.add("api", "uid-a", 2, allowed, 7)
	w := full.Close(time.Time{}, false)
	w.Number, w.Start, w.End = 1, time.Now().Add(-tally.Span), time.Now()
	seed(&xdspb.ReportRequest{Closed: []*xdspb.Window{encode(&w)}, Open: encode(&w)})
	seed(&xdspb.ReportRequest{Source: &xdspb.Source{Node: "n1", Epoch: "e", Domains: []string{"api"}}, Now: 1})
	seed(&xdspb.ReportRequest{Closed: []*xdspb.Window{{Number: 1 << 62, Start: -1 << 63, End: 1<<63 - 1}}})
	f.Add([]byte{}, int64(1)<<62)
	s, err := NewServer(ServerOptions{Store: newStore(), Fleet: newNodes(), Nodes: newNodes(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte, shift int64) {
		var m xdspb.ReportRequest
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		r := newReporter(s, nil, access.Identity{Name: "team-a", Role: access.Sidecar}, nil)
		_ = r.introduce(&m)
		if m.GetSource() == nil {
			r.source, r.domains = tally.Source{Node: "n1", Epoch: "e"}, []string{"api", "web"}
		}
		r.shift = time.Duration(shift).Round(tally.Span)
		_ = r.checkMessage(&m)
		for _, w := range append(m.GetClosed(), m.GetOpen()) {
			if w == nil {
				continue
			}
			began := micros(time.Now())
			read := r.read(w)
			wantSound(t, r, &read, began)
			doubts, err := r.doubts(t.Context(), &read, time.Now())
			if err != nil {
				continue
			}
			leaveOut(&read, doubts)
			for i := range read.Versions {
				if v := &read.Versions[i]; v.UID != "uid-a" && v.UID != "uid-b" {
					t.Errorf("believed %+v", v)
				}
			}
			again := r.read(encode(&read)) // what is taken can be sent on
			if len(again.Versions) != len(read.Versions) && r.shift == 0 {
				t.Errorf("read %d versions again, of %d", len(again.Versions), len(read.Versions))
			}
		}
	})
}

func wantSound(t *testing.T, r *reporter, w *tally.Window, began time.Time) {
	t.Helper()
	if w.End.Before(w.Start) || w.Start.Before(began.Add(-maxAge)) || w.End.After(time.Now().Add(maxAhead)) {
		t.Errorf("a window from %v to %v", w.Start, w.End)
	}
	var sum tally.Counts
	for i := range w.Versions {
		v := &w.Versions[i]
		for _, n := range v.Counts {
			if n < 0 || n > 1<<43 {
				t.Errorf("counted %d", n)
			}
		}
		sum.Add(&v.Counts)
		if !isText(v.UID, maxUID) || v.UID == "" || len(v.Keys) > tally.MaxTopKeys {
			t.Errorf("a version %+v", v)
		}
		var top tally.TopKeys
		top.Merge(v.Keys)
		for _, k := range top.Keys() {
			if !isText(k.Label, tally.MaxLabel) || k.Refused < 0 || k.Would < 0 || k.Over < 0 || k.Count() < 0 {
				t.Errorf("a key %+v", k)
			}
		}
		v.Distinct.Estimate()
		if is := tally.NewRates(v.Rates.Level, slices.Clone(v.Rates.Keys)); !slices.Equal(is.Keys, v.Rates.Keys) {
			t.Errorf("rates that are no sample: %+v", v.Rates)
		}
	}
	if sum.Matched() < 0 {
		t.Error("the sum overflows")
	}
	for _, d := range w.Domains {
		if !r.countsFor(d.Domain) || d.Counts.Total() < 0 {
			t.Errorf("a domain %+v", d)
		}
	}
	for _, f := range w.Refusals {
		if !isText(f.Label, tally.MaxLabel) || !isText(f.Path, tally.MaxPath) || !isText(f.Reference, maxReference) || !f.Outcome.Affects() ||
			f.Time.Before(w.Start) || f.Time.After(w.End) {
			t.Errorf("a refusal %+v", f)
		}
	}
}
