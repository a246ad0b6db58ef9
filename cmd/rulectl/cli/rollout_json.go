package cli

import (
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

type rolloutItem struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Rule       string `json:"rule"`
	State      string `json:"state"` // in words
	// Standing is running, holding, paused, tripped, finishing or done of a plan; else paused, shadow, partial, stable or deleted.
	Standing string   `json:"standing"`
	Since    string   `json:"since"`
	Revision int64    `json:"revision"`
	Percent  float64  `json:"percent"`          // of keys
	Actual   *float64 `json:"actual,omitempty"` // percent of the requests of the last five minutes; absent without any
	Acked    int32    `json:"acked"`
	Nodes    int32    `json:"nodes"`
	Unacked  []string `json:"unacked"`

	FrozenUntil string          `json:"frozenUntil,omitempty"`
	Evidence    *evidenceItem   `json:"evidence,omitempty"`
	Versions    []countsItem    `json:"versions"`
	Plan        *planStatusItem `json:"plan,omitempty"`
}

type evidenceItem struct {
	From   string `json:"from"`
	Judged int64  `json:"judged"`
	// Estimate: other rules refused as well.
	Estimate        bool         `json:"estimate"`
	WouldRefuse     int64        `json:"wouldRefuse"` // or refused, where no other rule does
	Shared          int64        `json:"shared"`      // judged, and refused by other rules
	Compared        int64        `json:"compared"`
	NewlyRefused    int64        `json:"newlyRefused"`
	NoLongerRefused int64        `json:"noLongerRefused"`
	Ratio           intervalItem `json:"ratio"` // of what would be refused
	Delta           intervalItem `json:"delta"`
}

// intervalItem is in percent.
type intervalItem struct {
	Estimate float64 `json:"estimate"`
	Low      float64 `json:"low"` // of the 95 % interval
	High     float64 `json:"high"`
}

type countsItem struct {
	Version     int64  `json:"version"`
	Role        string `json:"role"` // stable, candidate or earlier
	Decided     int64  `json:"decided"`
	Refused     int64  `json:"refused"`
	Judged      int64  `json:"judged"`
	WouldRefuse int64  `json:"wouldRefuse"`
}

type planStatusItem struct {
	Steps       []planStepItem `json:"steps"`
	Step        int32          `json:"step"`    // the one it is in, from 0
	Elapsed     float64        `json:"elapsed"` // seconds
	Gates       []gateItem     `json:"gates"`
	MinRequests int64          `json:"minRequests"`
	OnTrip      string         `json:"onTrip"`
	By          string         `json:"startedBy"`
	Begun       int64          `json:"begun"` // the revision
	WaitsFor    []string       `json:"waitsFor"`
}

type planStepItem struct {
	Percent float64 `json:"percent"`        // 0: shadow
	Hold    float64 `json:"hold,omitempty"` // seconds
}

type gateItem struct {
	Gate     string       `json:"gate"`
	Limit    float64      `json:"limit"` // percent
	Verdict  string       `json:"verdict"`
	Is       intervalItem `json:"is"`
	Requests int64        `json:"requests"`
}

func newIntervalItem(i *adminpb.Interval) intervalItem {
	return intervalItem{tally.InPercent(i.GetEstimate()), tally.InPercent(i.GetLow()), tally.InPercent(i.GetHigh())}
}

func newRolloutItem(r *adminpb.Rollout) rolloutItem {
	item := rolloutItem{
		APIVersion: apiVersion, Kind: "RolloutStatus", Rule: ruleID(r), State: r.GetRule().GetState(), Standing: r.GetStanding(),
		Since: timeJSON(r.GetSince()), Revision: r.GetRevision(), Percent: float64(r.GetRule().GetPercent()) / 100,
		Acked: r.GetAcked(), Nodes: r.GetNodes(), Unacked: append([]string{}, r.GetUnacked()...),
		FrozenUntil: timeJSON(r.GetRule().GetFrozenUntil()), Versions: []countsItem{}, Plan: newPlanStatusItem(r.GetPlan()),
	}
	if both := r.GetBoundBoth(); both > 0 {
		actual := tally.InPercent(float64(r.GetBound()) / float64(both))
		item.Actual = &actual
	}
	if e := r.GetEvidence(); e != nil {
		item.Evidence = &evidenceItem{
			From: timeJSON(e.GetFrom()), Judged: e.GetJudged(), Estimate: e.GetShared() > 0, WouldRefuse: e.GetRefusing(), Shared: e.GetShared(),
			Compared: e.GetCompared(), NewlyRefused: e.GetNewlyRefused(), NoLongerRefused: e.GetNoLongerRefused(),
			Ratio: newIntervalItem(e.GetWouldRefuse()), Delta: newIntervalItem(e.GetDelta()),
		}
	}
	for _, v := range versionsByAge(r) {
		item.Versions = append(item.Versions, countsItem{v.GetVersion(), v.GetRole(), v.GetBound(), v.GetRefused(), v.GetJudged(), v.GetWouldRefuse()})
	}
	return item
}

func newPlanStatusItem(p *adminpb.PlanState) *planStatusItem {
	if p == nil {
		return nil
	}
	item := &planStatusItem{
		Steps: []planStepItem{}, Step: p.GetStep(), Elapsed: p.GetElapsed().AsDuration().Seconds(), Gates: []gateItem{}, MinRequests: p.GetMinRequests(),
		OnTrip: p.GetOnTrip(), By: p.GetBy(), Begun: p.GetBegun(), WaitsFor: append([]string{}, p.GetWaits()...),
	}
	for _, s := range p.GetSteps() {
		item.Steps = append(item.Steps, planStepItem{float64(s.GetPercent()) / 100, s.GetHold().AsDuration().Seconds()})
	}
	for _, g := range p.GetGates() {
		item.Gates = append(item.Gates, gateItem{g.GetName(), float64(g.GetLimit()) / 100, g.GetVerdict(), newIntervalItem(g.GetIs()), g.GetOf()})
	}
	return item
}
