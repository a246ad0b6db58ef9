package report

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/xds/xdspb"
)

// encode returns the window as it travels. Its slices are its own.
func encode(w *tally.Window) *xdspb.Window {
	out := &xdspb.Window{Number: w.Number, Start: w.Start.UnixMicro(), End: w.End.UnixMicro(), Last: w.Last}
	for i := range w.Versions {
		v := &w.Versions[i]
		out.Versions = append(out.Versions, &xdspb.VersionTally{
			Domain: v.Domain, Uid: v.UID, Version: v.Version, Counts: trimmed(v.Counts[:]), Keys: encodeKeys(v.Keys), Distinct: v.Distinct.Bytes(),
			Rates: encodeRates(&v.Rates),
		})
	}
	for i := range w.Domains {
		d := &w.Domains[i]
		out.Domains = append(out.Domains, &xdspb.DomainTally{Domain: d.Domain, Counts: trimmed(d.Counts[:])})
	}
	for i := range w.Refusals {
		r := &w.Refusals[i]
		out.Refusals = append(out.Refusals, &xdspb.Refusal{
			Time: r.Time.UnixMicro(), Domain: r.Domain, Uid: r.UID, Version: r.Version, Limit: r.Limit, Outcome: uint32(r.Outcome),
			Key: slices.Clone(r.Key[:]), Label: tally.Printable(r.Label, tally.MaxLabel), Path: tally.Printable(r.Path, tally.MaxPath),
			Reference: tally.Printable(r.Reference, maxReference),
		})
	}
	return out
}

func encodeKeys(keys []tally.KeyCount) []*xdspb.KeyCount {
	var out []*xdspb.KeyCount
	for i := range keys {
		k := &keys[i]
		out = append(out, &xdspb.KeyCount{Key: slices.Clone(k.Key[:]), Label: tally.Printable(k.Label, tally.MaxLabel), Refused: k.Refused, Would: k.Would, Over: k.Over})
	}
	return out
}

func encodeRates(rates *tally.Rates) *xdspb.KeyRates {
	if rates.IsZero() {
		return nil
	}
	out := &xdspb.KeyRates{Level: uint32(rates.Level)} //nolint:gosec // at most tally.MaxRateLevel
	for _, k := range rates.Keys {
		out.Keys, out.Calls = append(out.Keys, uint64(k.Key)), append(out.Calls, k.Calls)
	}
	return out
}

// trimmed leaves out the zeros at the end.
func trimmed(counts []int64) []int64 {
	n := len(counts)
	for n > 0 && counts[n-1] == 0 {
		n--
	}
	return slices.Clone(counts[:n])
}

// split returns the window in parts of at most about limit bytes, each of which can be a window of its own: their sum is
// what the window was.
func split(w *xdspb.Window, limit int) []*xdspb.Window {
	versions, refusals := len(w.GetVersions())/2, len(w.GetRefusals())/2
	if proto.Size(w) <= limit || versions+refusals == 0 {
		return []*xdspb.Window{w}
	}
	first := &xdspb.Window{
		Start: w.GetStart(), End: w.GetEnd(), Versions: w.GetVersions()[:versions], Domains: w.GetDomains(), Refusals: w.GetRefusals()[:refusals],
	}
	rest := &xdspb.Window{
		Start: w.GetStart(), End: w.GetEnd(), Versions: w.GetVersions()[versions:], Refusals: w.GetRefusals()[refusals:], Last: w.GetLast(),
	}
	return append(split(first, limit), split(rest, limit)...)
}
