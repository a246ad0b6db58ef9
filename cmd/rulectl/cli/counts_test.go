package cli_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/tally"
)

// window stores what a sidecar counted of a version, in a window of its own. Facts are NAME=N of a cell, key=VALUE:N (the
// version refused it so often), would=VALUE:N (it would have), reference=REF (the last refusal, of the key before it),
// requests=N (of the domain, all allowed), ago=LENGTH, and missing: the window before it never came.
func (c *controlPlane) window(ctx context.Context, rule string, version int64, facts ...string) error {
	domain, name, _ := strings.Cut(rule, "/")
	of, err := c.versionOf(ctx, domain, name, version)
	if err != nil {
		return err
	}
	v := tally.VersionTally{Domain: domain, UID: of.uid, Version: version}
	w := tally.Window{Number: 1, Start: time.Now().Add(-30 * time.Second).Truncate(tally.Span), Last: true}
	for _, fact := range facts {
		name, value, _ := strings.Cut(fact, "=")
		value, count, _ := strings.Cut(value, ":")
		n, _ := strconv.ParseInt(value, 10, 64)
		times, _ := strconv.ParseInt(count, 10, 64)
		switch name {
		case "key", "would":
			key, err := rules.KeyOfValues(&of.spec, []string{value})
			if err != nil {
				return err
			}
			k := tally.KeyCount{Key: tally.KeyOf(of.secret, &of.spec, key), Label: tally.Label(of.secret, &of.spec, key), Refused: times}
			if name == "would" {
				k.Refused, k.Would = 0, times
			}
			v.Keys = append(v.Keys, k)
			v.Distinct.Add(k.Key)
		case "reference":
			k := v.Keys[len(v.Keys)-1]
			w.Refusals = append(w.Refusals, tally.Refusal{
				Time: w.Start, Domain: domain, UID: of.uid, Version: version, Outcome: tally.Refused, Key: k.Key, Label: k.Label, Path: "/login", Reference: value,
			})
		case "requests":
			w.Domains = []tally.DomainTally{{Domain: domain, Counts: tally.DomainCounts{n}}}
		case "ago":
			ago, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			w.Start = time.Now().Add(-ago).Truncate(tally.Span)
		case "missing":
			w.Number = 2
		default:
			cell, err := cellOf(name)
			if err != nil {
				return err
			}
			v.Counts[cell] = n
		}
	}
	w.End, w.Versions = w.Start.Add(tally.Span), []tally.VersionTally{v}
	return c.store.SaveWindows(ctx, []tally.SourceWindows{{Source: tally.Source{Node: "cart-1", Epoch: rand.Text()}, Windows: []tally.Window{w}}})
}

func cellOf(name string) (tally.Cell, error) {
	for cell := range tally.Cells {
		if cell.String() == name {
			return cell, nil
		}
	}
	return 0, fmt.Errorf("unknown fact %q", name)
}

type versionOf struct {
	uid    string
	spec   rules.Spec
	secret [16]byte
}

func (c *controlPlane) versionOf(ctx context.Context, domain, name string, version int64) (versionOf, error) {
	history, err := c.store.History(ctx, domain, name)
	if err != nil {
		return versionOf{}, err
	}
	domains, err := c.store.Domains(ctx, domain)
	if err != nil {
		return versionOf{}, err
	}
	for _, e := range history {
		for _, v := range []*rules.Version{e.Rule.Stable, e.Rule.Candidate} {
			if v != nil && v.Number == version {
				return versionOf{e.Rule.UID, v.Spec, domains[0].Secret}, nil
			}
		}
	}
	return versionOf{}, fmt.Errorf("%s/%s has no v%d", domain, name, version)
}

// window DOMAIN/RULE VERSION FACT... stores what a sidecar counted.
func window(ts *testscript.TestScript, _ bool, args []string) {
	version, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(ts.Value(planeKey{}).(*controlPlane).window(context.Background(), args[0], version, args[2:]...)) //nolint:errcheck // a panic would name it
}
