package xds

import (
	"errors"
	"fmt"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/xdspb"
)

// Unwrap takes a resource off the wire. Every failure here and below is a [rules.ErrInvalid].
func Unwrap(r *discovery.Resource) (*xdspb.Resource, error) {
	if url := r.GetResource().GetTypeUrl(); url != TypeURL {
		return nil, invalid("resource of type %q: only %s is known", url, TypeURL)
	}
	var m xdspb.Resource
	if err := proto.Unmarshal(r.GetResource().GetValue(), &m); err != nil {
		return nil, fmt.Errorf("%w: %w", rules.ErrInvalid, err)
	}
	return &m, nil
}

// DecodeRule returns the rule in a resource of the given name, or the first reason why it cannot be taken.
func DecodeRule(name string, r *xdspb.Resource) (*rules.Rule, error) {
	if err := known(r); err != nil {
		return nil, err
	}
	m := r.GetRule()
	if m == nil {
		return nil, invalid("the resource holds no rule")
	}
	if err := checkRule(name, m); err != nil {
		return nil, err
	}
	stable, err := decodeVersion(m.GetStable())
	if err != nil {
		return nil, fmt.Errorf("stable: %w", err)
	}
	candidate, err := decodeVersion(m.GetCandidate())
	if err != nil {
		return nil, fmt.Errorf("candidate: %w", err)
	}
	overrides, err := decodeOverrides(m.GetOverrides())
	if err != nil {
		return nil, err
	}
	return &rules.Rule{
		Domain: m.GetDomain(), Name: m.GetName(), UID: m.GetUid(), Revision: m.GetRevision(),
		Stable: stable, Candidate: candidate,
		Percent: rules.Percent(m.GetPercent()), Salt: m.GetSalt(), Epoch: m.GetEpoch(),
		Overrides: overrides,
	}, nil
}

func checkRule(name string, m *xdspb.Rule) error {
	for _, part := range []string{m.GetDomain(), m.GetName()} {
		if problem := rules.CheckName(part); problem != "" {
			return invalid("%s", problem)
		}
	}
	switch {
	case RuleName(m.GetDomain(), m.GetName()) != name:
		return invalid("the resource named %q holds rule %s/%s", name, m.GetDomain(), m.GetName())
	case m.GetFeatureLevel() > FeatureLevel:
		return invalid("the rule needs feature level %d: this program has level %d, a newer one may take it", m.GetFeatureLevel(), FeatureLevel)
	case m.GetUid() == "":
		return invalid("the uid is missing")
	case m.GetRevision() < 1:
		return invalid("revision %d: revisions begin at 1", m.GetRevision())
	case m.GetStable() == nil && m.GetCandidate() == nil:
		return invalid("neither a stable version nor a candidate")
	case m.GetPercent() > uint32(rules.AllKeys):
		return invalid("percent %d is more than %d, all keys", m.GetPercent(), rules.AllKeys)
	case m.GetPercent() > 0 && m.GetCandidate() == nil:
		return invalid("percent %d without a candidate", m.GetPercent())
	case m.GetEpoch() < 0:
		return invalid("epoch %d is negative", m.GetEpoch())
	}
	return nil
}

func decodeVersion(m *xdspb.Version) (*rules.Version, error) {
	if m == nil {
		return nil, nil
	}
	if m.GetNumber() < 1 {
		return nil, invalid("version %d: versions begin at 1", m.GetNumber())
	}
	spec, err := rules.DecodeSpec(m.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("v%d: %w", m.GetNumber(), err)
	}
	return &rules.Version{Number: m.GetNumber(), Spec: spec}, nil
}

func decodeOverrides(b []byte) ([]rules.Override, error) {
	if len(b) == 0 {
		return nil, nil
	}
	list, err := rules.DecodeOverrides(b)
	switch {
	case err != nil:
		return nil, err
	case len(list) > rules.MaxOverrides:
		return nil, invalid("%d overrides: at most %d are taken", len(list), rules.MaxOverrides)
	}
	return list, nil
}

// Domain is what a domain's resource says.
type Domain struct {
	rules.Domain
	Lineage string // of the revision
	// Refused is why shard and exemptions could not be taken, and are empty here; nil when they could. Head and freezes
	// hold in either case.
	Refused error
}

// DecodeDomain returns the domain in a resource of the given name. An error means that not even its head can be taken.
func DecodeDomain(name string, r *xdspb.Resource) (d Domain, err error) {
	m := r.GetDomain()
	if m == nil {
		return d, errors.Join(known(r), invalid("the resource holds no domain"))
	}
	if problem := rules.CheckName(m.GetName()); problem != "" {
		return d, invalid("%s", problem)
	}
	switch {
	case m.GetName() != name:
		return d, invalid("the resource named %q holds domain %s", name, m.GetName())
	case m.GetRevision() < 1:
		return d, invalid("revision %d: revisions begin at 1", m.GetRevision())
	case m.GetLineage() == "":
		return d, invalid("the lineage is missing")
	case len(m.GetSecret()) != len(d.Secret):
		return d, invalid("the secret has %d bytes, not %d", len(m.GetSecret()), len(d.Secret))
	}
	d.Name, d.Revision, d.Lineage, d.SettingsRevision = m.GetName(), m.GetRevision(), m.GetLineage(), m.GetSettingsRevision()
	copy(d.Secret[:], m.GetSecret())
	for _, f := range m.GetFreezes() {
		d.Freezes = append(d.Freezes, rules.Freeze{
			Rule: f.GetRule(), Until: time.UnixMicro(f.GetUntil()).UTC(), IncludingClosed: f.GetIncludingClosed(),
		})
	}
	if d.Refused = known(r); d.Refused == nil {
		d.Refused = DecodeSettings(m.GetSettings(), &d.Domain)
	}
	return d, nil
}

// DecodeSettings reads what [EncodeSettings] wrote into the domain. On an error nothing is changed.
func DecodeSettings(b []byte, into *rules.Domain) error {
	var s rules.Settings
	if len(b) > 0 {
		var err error
		if s, err = rules.DecodeSettings(b); err != nil {
			return err
		}
	}
	var problems []rules.Problem
	for i := range s.Exempt {
		s.Exempt[i].Match.Validate(func(code, path, format string, args ...any) {
			problems = append(problems, rules.Problem{
				Code: code, Path: fmt.Sprintf("exempt[%d].match%s", i, path), Message: fmt.Sprintf(format, args...),
			})
		})
	}
	switch {
	case len(s.Freezes) > 0:
		return invalid("freezes among shard and exemptions")
	case len(problems) > 0:
		return &rules.ValidationError{Problems: problems}
	}
	into.Shard, into.Exempt = s.Shard, s.Exempt
	return nil
}

// known refuses a message with a field that this program does not know, at any depth.
func known(m proto.Message) error { return knownFields(m.ProtoReflect()) }

func knownFields(m protoreflect.Message) (err error) {
	if len(m.GetUnknown()) > 0 {
		return invalid("%s has a field this program does not know: a newer sidecar may", m.Descriptor().FullName())
	}
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.Message() == nil || field.IsMap(): // no message of ours has a map
		case field.IsList():
			for i := 0; i < v.List().Len() && err == nil; i++ {
				err = knownFields(v.List().Get(i).Message())
			}
		default:
			err = knownFields(v.Message())
		}
		return err == nil
	})
	return err
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", rules.ErrInvalid, fmt.Sprintf(format, args...))
}
