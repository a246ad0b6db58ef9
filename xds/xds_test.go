package xds_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdspb"
)

func spec(t testing.TB, limit string) rules.Spec {
	t.Helper()
	rate, err := rules.ParseRate(limit)
	if err != nil {
		t.Fatal(err)
	}
	source, err := rules.ParseKeySource("header:x-api-key")
	if err != nil {
		t.Fatal(err)
	}
	return rules.Spec{
		Description: "Calls per API key",
		Match:       rules.Match{Path: []string{"/v1/*"}},
		Key:         []rules.KeySource{source},
		Limits:      []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rate}},
	}
}

func rule(t testing.TB) *rules.Rule {
	t.Helper()
	return &rules.Rule{
		Domain: "public-api", Name: "plan", UID: "u1", Revision: 12,
		Stable:    &rules.Version{Number: 7, Spec: spec(t, "60/min")},
		Candidate: &rules.Version{Number: 8, Spec: spec(t, "30/min burst 40")},
		Percent:   2_500, Salt: 1 << 63, Epoch: 11,
		Overrides: []rules.Override{{
			Key: rules.OverrideKey{1, 15: 16}, Rate: rules.Rate{Amount: 7, Window: time.Minute, Burst: 9},
			Until: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		}},
	}
}

// sameRule compares by what is sent: a KeySource has no exported fields.
func sameRule(t testing.TB, got, want *rules.Rule) {
	t.Helper()
	text := func(r *rules.Rule) []string {
		var lines []string
		for _, v := range []*rules.Version{r.Stable, r.Candidate} {
			if v == nil {
				lines = append(lines, "none")
				continue
			}
			b, err := v.Spec.Encode()
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, string(b))
		}
		return lines
	}
	if diff := cmp.Diff(text(want), text(got)); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	a, b := *got, *want
	a.Stable, a.Candidate, b.Stable, b.Candidate = nil, nil, nil, nil
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("rule (-want +got):\n%s", diff)
	}
}

func TestRuleComesBackAsItWasSent(t *testing.T) {
	t.Parallel()
	newborn := rule(t)
	newborn.Stable, newborn.Percent = nil, 0
	settled := rule(t)
	settled.Candidate, settled.Percent, settled.Salt, settled.Overrides = nil, 0, 0, nil
	for name, want := range map[string]*rules.Rule{"both": rule(t), "newborn": newborn, "settled": settled} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire, err := xds.EncodeRule(want)
			if err != nil {
				t.Fatal(err)
			}
			if wire.GetName() != "public-api/plan" {
				t.Errorf("name %q", wire.GetName())
			}
			body, err := xds.Unwrap(wire)
			if err != nil {
				t.Fatal(err)
			}
			got, err := xds.DecodeRule(wire.GetName(), body)
			if err != nil {
				t.Fatal(err)
			}
			sameRule(t, got, want)
		})
	}
}

func domain(t testing.TB) rules.Domain {
	t.Helper()
	shard, err := rules.ParseSource("header:x-api-key")
	if err != nil {
		t.Fatal(err)
	}
	return rules.Domain{
		Name: "public-api", Revision: 12, Secret: [16]byte{1, 15: 16}, SettingsRevision: 9,
		Shard:  &shard,
		Exempt: []rules.Exemption{{Name: "health", Match: rules.Match{Path: []string{"/livez"}}}},
		Freezes: []rules.Freeze{
			{Rule: "plan", Until: time.UnixMicro(1_800_000_000_000_001).UTC(), IncludingClosed: true},
			{Until: time.UnixMicro(1_800_000_000_000_000).UTC()},
		},
	}
}

// unwrapDomain is the domain as it arrives.
func unwrapDomain(t testing.TB, d rules.Domain) *xdspb.Resource {
	t.Helper()
	wire, err := xds.EncodeDomain(d, "lineage-1")
	if err != nil {
		t.Fatal(err)
	}
	if wire.GetName() != "public-api" || wire.GetVersion() != "lineage-1@12" {
		t.Errorf("name %q, version %q", wire.GetName(), wire.GetVersion())
	}
	body, err := xds.Unwrap(wire)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func TestDomainComesBackAsItWasSent(t *testing.T) {
	t.Parallel()
	bare := domain(t)
	bare.Shard, bare.Exempt, bare.Freezes = nil, nil, nil
	for _, want := range []rules.Domain{domain(t), bare} {
		got, err := xds.DecodeDomain("public-api", unwrapDomain(t, want))
		if err != nil || got.Refused != nil || !reflect.DeepEqual(got.Domain, want) || got.Lineage != "lineage-1" {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
}

// Of a domain that this program cannot take, the head and the freezes hold: the on-call's freeze must get through to
// programs of every age.
func TestHeadAndFreezesHoldWhateverElseTheDomainSays(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(*xdspb.Resource)
		want  string
	}{
		"unknown field":             {func(r *xdspb.Resource) { setUnknown(r.GetDomain()) }, "does not know"},
		"unknown field of a freeze": {func(r *xdspb.Resource) { setUnknown(r.GetDomain().GetFreezes()[0]) }, "does not know"},
		"unknown field around it":   {func(r *xdspb.Resource) { setUnknown(r) }, "does not know"},
		"unknown setting":           {func(r *xdspb.Resource) { r.GetDomain().Settings = []byte(`{"quota":1}`) }, "quota"},
		"garbage":                   {func(r *xdspb.Resource) { r.GetDomain().Settings = []byte(`{`) }, "decode settings"},
		"bad exemption": {func(r *xdspb.Resource) {
			r.GetDomain().Settings = []byte(`{"exempt":[{"name":"x","match":{"path":["no"]}}]}`)
		}, "exempt[0].match.path[0]"},
		"freezes in the wrong place": {func(r *xdspb.Resource) {
			r.GetDomain().Settings = []byte(`{"freezes":[{"until":"2026-01-01T00:00:00Z"}]}`)
		}, "freezes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := unwrapDomain(t, domain(t))
			test.spoil(body)
			got, err := xds.DecodeDomain("public-api", body)
			if err != nil || got.Refused == nil || !errors.Is(got.Refused, rules.ErrInvalid) || !strings.Contains(got.Refused.Error(), test.want) {
				t.Fatalf("got %v and refused %v, want only %q to be refused", err, got.Refused, test.want)
			}
			want := domain(t)
			want.Shard, want.Exempt = nil, nil
			if !reflect.DeepEqual(got.Domain, want) {
				t.Errorf("got %+v, want %+v", got.Domain, want)
			}
		})
	}
}

func TestLastGoodIsMarkedInsideAndOutside(t *testing.T) {
	t.Parallel()
	wire, err := xds.EncodeLastGood(rule(t))
	if err != nil {
		t.Fatal(err)
	}
	body, err := xds.Unwrap(wire)
	if err != nil || !body.GetLastGood() || !xds.IsLastGood(wire) {
		t.Errorf("not marked: %v, %v, %q", err, body, wire.GetVersion())
	}
	got, err := xds.DecodeRule("public-api/plan", body)
	if err != nil {
		t.Fatal(err)
	}
	sameRule(t, got, rule(t))
	newest, err := xds.EncodeRule(rule(t))
	if err != nil || xds.IsLastGood(newest) {
		t.Errorf("the newest is marked: %v, %q", err, newest.GetVersion())
	}
}

func TestRuleVersionIsItsContent(t *testing.T) {
	t.Parallel()
	a, err := xds.EncodeRule(rule(t))
	if err != nil {
		t.Fatal(err)
	}
	same, err := xds.EncodeRule(rule(t))
	if err != nil {
		t.Fatal(err)
	}
	changed := rule(t)
	changed.Percent++
	other, err := xds.EncodeRule(changed)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.GetVersion()) != 32 || a.GetVersion() != same.GetVersion() || a.GetVersion() == other.GetVersion() {
		t.Errorf("versions %q, the same %q, another percentage %q", a.GetVersion(), same.GetVersion(), other.GetVersion())
	}
}

func TestDomainVersion(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{
		"l@1": true, "l@with@9": true,
		"": false, "l": false, "@1": false, "l@": false, "l@0": false, "l@-1": false, "l@01": false, "l@+1": false, "l@1#x": false,
	} {
		lineage, revision, got := xds.ParseDomainVersion(text)
		if got != ok {
			t.Errorf("%q: got %v, want %v", text, got, ok)
		}
		if got && xds.DomainVersion(lineage, revision) != text {
			t.Errorf("%q came back as %q", text, xds.DomainVersion(lineage, revision))
		}
	}
}

func TestDecodeRuleRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spoil func(*xdspb.Rule)
		want  string
	}{
		"higher level":         {func(r *xdspb.Rule) { r.FeatureLevel = xds.FeatureLevel + 1 }, "feature level 2"},
		"unknown override":     {func(r *xdspb.Rule) { r.Overrides = []byte(`[{"later":1}]`) }, "later"},
		"many overrides":       {func(r *xdspb.Rule) { r.Overrides = manyOverrides() }, "at most 100"},
		"no uid":               {func(r *xdspb.Rule) { r.Uid = "" }, "uid"},
		"no version":           {func(r *xdspb.Rule) { r.Stable, r.Candidate, r.Percent = nil, nil, 0 }, "neither"},
		"over 100 %":           {func(r *xdspb.Rule) { r.Percent = 10_001 }, "percent"},
		"percent of nothing":   {func(r *xdspb.Rule) { r.Candidate = nil }, "without a candidate"},
		"no revision":          {func(r *xdspb.Rule) { r.Revision = 0 }, "revision"},
		"negative epoch":       {func(r *xdspb.Rule) { r.Epoch = -1 }, "epoch"},
		"version 0":            {func(r *xdspb.Rule) { r.Candidate.Number = 0 }, "candidate: invalid: version 0"},
		"another name":         {func(r *xdspb.Rule) { r.Name = "other" }, "holds rule public-api/other"},
		"bad name":             {func(r *xdspb.Rule) { r.Name = "A/B" }, "not a name"},
		"unknown spec field":   {func(r *xdspb.Rule) { r.Stable.Spec = []byte(`{"key":[],"limits":[],"lease":1}`) }, "lease"},
		"invalid spec":         {func(r *xdspb.Rule) { r.Stable.Spec = []byte(`{"key":[],"limits":[]}`) }, "limit"},
		"unknown field":        {func(r *xdspb.Rule) { setUnknown(r) }, "does not know"},
		"unknown deeper field": {func(r *xdspb.Rule) { setUnknown(r.Candidate) }, "does not know"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wire, err := xds.EncodeRule(rule(t))
			if err != nil {
				t.Fatal(err)
			}
			body, err := xds.Unwrap(wire)
			if err != nil {
				t.Fatal(err)
			}
			test.spoil(body.GetRule())
			_, err = xds.DecodeRule("public-api/plan", body)
			if !errors.Is(err, rules.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want ErrInvalid with %q", err, test.want)
			}
		})
	}
}

func TestDecodeDomainRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*xdspb.Domain){
		"short secret": func(d *xdspb.Domain) { d.Secret = d.Secret[:15] },
		"no lineage":   func(d *xdspb.Domain) { d.Lineage = "" },
		"no revision":  func(d *xdspb.Domain) { d.Revision = 0 },
		"another name": func(d *xdspb.Domain) { d.Name = "other" },
		"bad name":     func(d *xdspb.Domain) { d.Name = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &xdspb.Domain{Name: "public-api", Revision: 1, Lineage: "l", Secret: make([]byte, 16)}
			spoil(d)
			_, err := xds.DecodeDomain("public-api", &xdspb.Resource{Kind: &xdspb.Resource_Domain{Domain: d}})
			if !errors.Is(err, rules.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
}

// A kind of resource that is added later arrives as an unknown field of Resource.
func TestDecodeRefusesAKindItDoesNotKnow(t *testing.T) {
	t.Parallel()
	var later xdspb.Resource
	setUnknown(&later)
	if _, err := xds.DecodeRule("public-api/plan", &later); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("rule: got %v", err)
	}
	if _, err := xds.DecodeDomain("public-api", &later); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("domain: got %v", err)
	}
}

// manyOverrides is more than a rule may have.
func manyOverrides() []byte {
	one := `{"key":"` + strings.Repeat("0", 32) + `","rate":"1/min","until":"2026-01-01T00:00:00Z"}`
	return []byte("[" + strings.Repeat(one+",", rules.MaxOverrides) + one + "]")
}

func setUnknown(m proto.Message) {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
}

// FuzzDecode feeds bytes from a foreign or broken control plane: nothing may panic, and what is taken must be sound.
func FuzzDecode(f *testing.F) {
	wire, err := xds.EncodeRule(rule(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire.GetResource().GetValue())
	wire, err = xds.EncodeDomain(domain(f), "l")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire.GetResource().GetValue())
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := xds.Unwrap(&discovery.Resource{Resource: &anypb.Any{TypeUrl: xds.TypeURL, Value: b}})
		if err != nil {
			return
		}
		if r, err := xds.DecodeRule("public-api/plan", body); err == nil {
			again, err := xds.EncodeRule(r)
			if err != nil {
				t.Fatalf("a decoded rule cannot be encoded: %v", err)
			}
			if body, err = xds.Unwrap(again); err != nil {
				t.Fatal(err)
			}
			back, err := xds.DecodeRule("public-api/plan", body)
			if err != nil {
				t.Fatalf("an encoded rule cannot be decoded: %v", err)
			}
			sameRule(t, back, r)
		}
		d, err := xds.DecodeDomain("public-api", body)
		if err != nil {
			return
		}
		if d.Revision < 1 || d.Lineage == "" || d.Refused != nil && (d.Shard != nil || d.Exempt != nil) {
			t.Fatalf("took domain %+v", d)
		}
		if _, err := xds.EncodeDomain(d.Domain, d.Lineage); err != nil {
			t.Fatalf("a decoded domain cannot be encoded: %v", err)
		}
	})
}
