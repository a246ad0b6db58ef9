package meter_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/memlimit"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

type nobody struct{}

func (nobody) Record(string, *enforce.Decision) {}

// BenchmarkDecide is a decision with counters in memory, with the meter and without: the difference is what the meter costs.
func BenchmarkDecide(b *testing.B) {
	const many, none = 1 << 30, 0
	for _, c := range []struct {
		name              string
		stable, candidate int64 // amounts; below 0: there is none
		keys              uint32
	}{
		{"stable", many, -1, 1},
		{"stable and candidate", many, many, 1},
		{"stable and candidate that would refuse", many, none, 1},
		{"storm of refusals of one key", none, -1, 1},
		{"storm of refusals of a million keys", none, -1, 1_000_000},
	} {
		version := func(number, amount int64) *rules.Version {
			if amount < 0 {
				return nil
			}
			v := &rules.Version{Number: number, Spec: *specOf(b, "ip")}
			v.Spec.Limits = []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: amount, Window: time.Second, Burst: max(1, amount)}}}
			return v
		}
		rule := &rules.Rule{Domain: "d", Name: "r", UID: "u", Stable: version(1, c.stable), Candidate: version(2, c.candidate)}
		index := rules.NewIndex(rules.Domain{Name: "d"}, []*rules.Rule{rule})
		for _, with := range []string{"without", "with"} {
			b.Run(c.name+"/"+with, func(b *testing.B) {
				var recorder enforce.Recorder = nobody{}
				if with == "with" {
					m := meter.New(prometheus.NewRegistry())
					m.Install(index)
					recorder = m
				}
				engine := enforce.NewEngine(memlimit.New(), recorder, slog.New(slog.DiscardHandler))
				engine.Swap(index)
				req := &rules.Request{Domain: "d", Method: "GET", Path: "/v1/x", Hits: 1}
				var address [4]byte
				b.ReportAllocs()
				for n := uint32(0); b.Loop(); n++ {
					binary.BigEndian.PutUint32(address[:], 10<<24|n%c.keys)
					req.IP = netip.AddrFrom4(address)
					engine.Decide(context.Background(), req)
				}
			})
		}
	}
}

// BenchmarkRecord is the meter alone, with decisions that are there already.
func BenchmarkRecord(b *testing.B) {
	rule := newRule(b, "r", 1)
	candidate := *newRule(b, "r", 2)
	candidate.Stable, candidate.Candidate = nil, candidate.Stable
	both := &rules.Rule{Domain: "d", Name: "r", UID: rule.UID, Stable: rule.Stable, Candidate: candidate.Candidate}
	allowed := enforce.Decision{Allowed: true, Outcomes: []enforce.VersionOutcome{outcome(rule, tally.Allowed, requestOf(1))}}
	beside := allowed
	beside.Outcomes = append(beside.Outcomes[:1:1], outcome(&candidate, tally.WouldAllow, requestOf(1)))
	for i := range beside.Outcomes {
		beside.Outcomes[i].Rule = both
	}
	storm := make([]enforce.Decision, 1<<12)
	for i := range storm {
		storm[i] = refusal(rule, i)
	}
	for name, list := range map[string][]enforce.Decision{
		"stable": {allowed}, "stable and candidate": {beside}, "refusals of one key": storm[:1], "refusals of many keys": storm,
	} {
		m := meter.New(prometheus.NewRegistry())
		m.Install(indexOf(both))
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Record("d", &list[i%len(list)])
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					m.Record("d", &list[i%len(list)])
				}
			})
		})
	}
}

// BenchmarkInstall is one changed rule of so many, and all of them in the first place.
func BenchmarkInstall(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		list := make([]*rules.Rule, n)
		for i := range list {
			list[i] = newRule(b, fmt.Sprintf("r%05d", i), 1)
		}
		index := rules.NewIndex(rules.Domain{Name: "d"}, list)
		b.Run(fmt.Sprintf("first/rules=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				meter.New(prometheus.NewRegistry()).Install(index)
			}
		})
		b.Run(fmt.Sprintf("one changed/rules=%d", n), func(b *testing.B) {
			m := meter.New(prometheus.NewRegistry())
			changed := *list[n/2]
			changed.Stable = &rules.Version{Number: 1, Spec: changed.Stable.Spec}
			other := append(append(append([]*rules.Rule{}, list[:n/2]...), &changed), list[n/2+1:]...)
			indexes := []*rules.Index{index, rules.NewIndex(index.Domain, other)}
			m.Install(index)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Install(indexes[i%2])
				m.Retire("d")
			}
		})
		b.Run(fmt.Sprintf("close/rules=%d", n), func(b *testing.B) {
			m := meter.New(prometheus.NewRegistry())
			m.Install(index)
			for b.Loop() {
				m.Close(time.Now(), false)
			}
		})
		b.Run(fmt.Sprintf("scrape/rules=%d", n), func(b *testing.B) {
			reg := prometheus.NewRegistry()
			meter.New(reg).Install(index)
			for b.Loop() {
				if _, err := reg.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
