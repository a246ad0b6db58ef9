package storage

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/rules/tally"
)

// RatesRow is what is added to the rates of a rule version in a minute.
type RatesRow struct {
	StepID
	rates tally.Rates
}

// Merge adds what the row holds so far.
func (r *RatesRow) Merge(stored []byte) error {
	more, err := tally.DecodeRates(stored)
	if err != nil {
		return unreadable("the rates of keys", err)
	}
	r.rates.Add(&more)
	return nil
}

// Encode returns what the row holds then.
func (r *RatesRow) Encode() []byte { return tally.EncodeRates(&r.rates) }

// RatesSpan returns from when until before when minutes begin that a query asks for.
func RatesSpan(q *tally.Query) (from, to time.Time) {
	return stepsFrom(q.From, tally.StepMinute), stepsFrom(q.To, tally.StepMinute)
}

// RatesRead is a row of rates as it is read.
type RatesRead struct {
	UID     string
	Version int64
	Start   time.Time
	Rates   []byte
}

// Rates lays out the rows of rules whose domain is known, in the order of (UID, Version, Start). What a newer program wrote
// is left out, and told.
func Rates(rows []RatesRead, domains map[string]string, skipped func(error)) []tally.VersionRates {
	list := make([]tally.VersionRates, 0, len(rows))
	for i := range rows {
		row := &rows[i]
		domain, there := domains[row.UID]
		if !there {
			continue
		}
		rates, err := tally.DecodeRates(row.Rates)
		if err != nil {
			skipped(unreadable("the rates of keys", err))
			continue
		}
		list = append(list, tally.VersionRates{Domain: domain, UID: row.UID, Version: row.Version, Start: row.Start.UTC(), Rates: rates})
	}
	slices.SortFunc(list, func(a, b tally.VersionRates) int {
		return cmp.Or(strings.Compare(a.UID, b.UID), cmp.Compare(a.Version, b.Version), a.Start.Compare(b.Start))
	})
	return list
}
