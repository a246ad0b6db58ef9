package cli

import "github.com/headgate/headgate/web/api/adminpb"

type statsItem struct {
	APIVersion string             `json:"apiVersion"`
	Kind       string             `json:"kind"`
	Domain     string             `json:"domain"`
	Rule       string             `json:"rule,omitempty"` // its name; absent: all of the domain
	From       string             `json:"from"`
	To         string             `json:"to"`
	Step       float64            `json:"step"` // seconds
	Versions   []versionStatsItem `json:"versions"`
	LeftOut    int32              `json:"leftOut"`            // versions that refused least, of very many
	Requests   *requestsItem      `json:"requests,omitempty"` // of the domain
	Missing    []missingItem      `json:"missing"`            // counts that will never come
}

type versionStatsItem struct {
	Rule    string `json:"rule"`
	Version int64  `json:"version"`
	Role    string `json:"role"` // stable, candidate or earlier
	figuresItem
	Limits []limitRefusalsItem `json:"limits"` // what of refused each refused
	// Estimate: other rules refused some of what would be refused as well.
	Estimate         bool          `json:"estimate"`
	RefusedRatio     *intervalItem `json:"refusedRatio,omitempty"`     // of decided
	WouldRefuseRatio *intervalItem `json:"wouldRefuseRatio,omitempty"` // of judged
	AloneRatio       *intervalItem `json:"aloneRatio,omitempty"`       // the same without what other rules refused
	Delta            *intervalItem `json:"delta,omitempty"`            // newly less no longer refused, of compared
	Points           []pointItem   `json:"points"`                     // steps without a request are not there
}

type figuresItem struct {
	Matched           int64 `json:"matched"`
	Decided           int64 `json:"decided"`
	Allowed           int64 `json:"allowed"`
	Refused           int64 `json:"refused"`
	RefusedByOther    int64 `json:"refusedByOther"`
	FailedOpen        int64 `json:"failedOpen"`
	FailedClosed      int64 `json:"failedClosed"`
	LocalAllowed      int64 `json:"localAllowed"`
	LocalRefused      int64 `json:"localRefused"`
	Judged            int64 `json:"judged"`
	WouldAllow        int64 `json:"wouldAllow"`
	WouldRefuse       int64 `json:"wouldRefuse"`
	WouldRefuseShared int64 `json:"wouldRefuseShared"` // with other rules
	Compared          int64 `json:"compared"`
	NewlyRefused      int64 `json:"newlyRefused"`
	NoLongerRefused   int64 `json:"noLongerRefused"`
	Unknown           int64 `json:"unknown"`
	JudgedShared      int64 `json:"judgedShared"` // with other rules that refused, whatever this one said
}

type limitRefusalsItem struct {
	Number  int32  `json:"number"`          // from 1; 0: a value of the key was missing or given twice
	Limit   string `json:"limit,omitempty"` // its name
	Refused int64  `json:"refused"`
}

type pointItem struct {
	Start string `json:"start"`
	figuresItem
}

type requestsItem struct {
	requestFigures
	Points []requestPointItem `json:"points"`
}

type requestFigures struct {
	Allowed   int64 `json:"allowed"`
	Refused   int64 `json:"refused"`
	Exempt    int64 `json:"exempt"`
	Unmatched int64 `json:"unmatched"`
	Malformed int64 `json:"malformed"`
}

type requestPointItem struct {
	Start string `json:"start"`
	requestFigures
}

func newStatsItem(domain, rule string, r *adminpb.StatsResponse) statsItem {
	item := statsItem{
		APIVersion: apiVersion, Kind: "Stats", Domain: domain, Rule: rule, From: timeJSON(r.GetFrom()), To: timeJSON(r.GetTo()),
		Step: r.GetStep().AsDuration().Seconds(), Versions: []versionStatsItem{}, LeftOut: r.GetLeftOut(), Missing: newMissingItems(r.GetMissing()),
	}
	for _, v := range r.GetVersions() {
		item.Versions = append(item.Versions, newVersionStatsItem(v))
	}
	if q := r.GetRequests(); q != nil {
		item.Requests = &requestsItem{newRequestFigures(q.GetTotal()), []requestPointItem{}}
		for _, p := range q.GetPoints() {
			item.Requests.Points = append(item.Requests.Points, requestPointItem{timeJSON(p.GetStart()), newRequestFigures(p.GetFigures())})
		}
	}
	return item
}

func newVersionStatsItem(v *adminpb.VersionStats) versionStatsItem {
	item := versionStatsItem{
		Rule: v.GetRule(), Version: v.GetVersion(), Role: v.GetRole(), figuresItem: newFiguresItem(v.GetTotal()), Limits: []limitRefusalsItem{},
		Estimate: v.GetTotal().GetJudgedShared() > 0, RefusedRatio: optionalInterval(v.GetRefused()), WouldRefuseRatio: optionalInterval(v.GetWouldRefuse()),
		AloneRatio: optionalInterval(v.GetWouldRefuseAlone()), Delta: optionalInterval(v.GetDifference()), Points: []pointItem{},
	}
	for _, l := range v.GetLimits() {
		item.Limits = append(item.Limits, limitRefusalsItem{l.GetNumber(), l.GetName(), l.GetRefused()})
	}
	for _, p := range v.GetPoints() {
		item.Points = append(item.Points, pointItem{timeJSON(p.GetStart()), newFiguresItem(p.GetFigures())})
	}
	return item
}

func optionalInterval(i *adminpb.Interval) *intervalItem {
	if i == nil {
		return nil
	}
	item := newIntervalItem(i)
	return &item
}

func newFiguresItem(f *adminpb.VersionFigures) figuresItem {
	return figuresItem{
		f.GetMatched(), f.GetDecided(), f.GetAllowed(), f.GetRefused(), f.GetRefusedByOther(), f.GetFailedOpen(), f.GetFailedClosed(),
		f.GetLocalAllowed(), f.GetLocalRefused(), f.GetJudged(), f.GetWouldAllow(), f.GetWouldRefuse(), f.GetWouldRefuseShared(),
		f.GetCompared(), f.GetNewlyRefused(), f.GetNoLongerRefused(), f.GetUnknown(), f.GetJudgedShared(),
	}
}

func newRequestFigures(f *adminpb.DomainFigures) requestFigures {
	return requestFigures{f.GetAllowed(), f.GetRefused(), f.GetExempt(), f.GetUnmatched(), f.GetMalformed()}
}
