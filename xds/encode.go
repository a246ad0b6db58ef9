package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/xdspb"
)

// EncodeRule returns the rule as a resource that is ready for the wire.
func EncodeRule(r *rules.Rule) (*discovery.Resource, error) { return encodeRule(r, false) }

// lastGoodPrefix begins the version of a resource that is marked as a last good one: who passes it on need not look
// inside.
const lastGoodPrefix = "last-good:"

// EncodeLastGood returns the rule marked as a last good one.
func EncodeLastGood(r *rules.Rule) (*discovery.Resource, error) { return encodeRule(r, true) }

// IsLastGood reports whether EncodeLastGood made the resource.
func IsLastGood(r *discovery.Resource) bool { return strings.HasPrefix(r.GetVersion(), lastGoodPrefix) }

func encodeRule(r *rules.Rule, lastGood bool) (*discovery.Resource, error) {
	m := &xdspb.Rule{
		Domain: r.Domain, Name: r.Name, Uid: r.UID, Revision: r.Revision,
		Percent: uint32(r.Percent), Salt: r.Salt, Epoch: r.Epoch, FeatureLevel: levelOf(r),
	}
	var err error
	if m.Stable, err = encodeVersion(r.Stable); err != nil {
		return nil, fmt.Errorf("encode rule %s: stable: %w", r.ID(), err)
	}
	if m.Candidate, err = encodeVersion(r.Candidate); err != nil {
		return nil, fmt.Errorf("encode rule %s: candidate: %w", r.ID(), err)
	}
	if len(r.Overrides) > 0 {
		if m.Overrides, err = rules.EncodeOverrides(r.Overrides); err != nil {
			return nil, fmt.Errorf("encode rule %s: %w", r.ID(), err)
		}
	}
	body, err := marshal(&xdspb.Resource{Kind: &xdspb.Resource_Rule{Rule: m}, LastGood: lastGood})
	if err != nil {
		return nil, fmt.Errorf("encode rule %s: %w", r.ID(), err)
	}
	version := contentHash(body)
	if lastGood {
		version = lastGoodPrefix + version
	}
	return wrap(RuleName(r.Domain, r.Name), version, body), nil
}

// levelOf is the feature level that enforcing the rule takes: the highest of its versions. Level 1 is sent as 0, since
// programs from before there were levels refuse a field they do not know.
func levelOf(r *rules.Rule) uint32 {
	level := uint32(1)
	for _, v := range []*rules.Version{r.Stable, r.Candidate} {
		if v != nil {
			level = max(level, specLevel(&v.Spec))
		}
	}
	if level == 1 {
		return 0
	}
	return level
}

// specLevel is the one place that knows which level a spec needs. All that a spec can say today is of level 1.
func specLevel(*rules.Spec) uint32 { return 1 }

func encodeVersion(v *rules.Version) (*xdspb.Version, error) {
	if v == nil {
		return nil, nil
	}
	spec, err := v.Spec.Encode()
	if err != nil {
		return nil, err
	}
	return &xdspb.Version{Number: v.Number, Spec: spec}, nil
}

// EncodeDomain returns the domain, as the lineage numbers it, as a resource that is ready for the wire.
func EncodeDomain(d rules.Domain, lineage string) (*discovery.Resource, error) {
	m := &xdspb.Domain{
		Name: d.Name, Revision: d.Revision, Lineage: lineage, Secret: d.Secret[:], SettingsRevision: d.SettingsRevision,
	}
	for _, f := range d.Freezes {
		m.Freezes = append(m.Freezes, &xdspb.Freeze{Rule: f.Rule, Until: f.Until.UnixMicro(), IncludingClosed: f.IncludingClosed})
	}
	var err error
	if m.Settings, err = EncodeSettings(d); err != nil {
		return nil, fmt.Errorf("encode domain %s: %w", d.Name, err)
	}
	body, err := marshal(&xdspb.Resource{Kind: &xdspb.Resource_Domain{Domain: m}})
	if err != nil {
		return nil, fmt.Errorf("encode domain %s: %w", d.Name, err)
	}
	return wrap(d.Name, DomainVersion(lineage, d.Revision), body), nil
}

// EncodeSettings returns the domain's shard and exemptions as its resource holds them.
func EncodeSettings(d rules.Domain) ([]byte, error) {
	if d.Shard == nil && len(d.Exempt) == 0 {
		return nil, nil
	}
	return rules.Settings{Shard: d.Shard, Exempt: d.Exempt}.Encode()
}

func marshal(r *xdspb.Resource) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(r)
}

// contentHash is the version of a rule's resource: 128 bits of SHA-256, as hex. It tells people and logs which content
// they look at; what is sent to whom is decided by revisions.
func contentHash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:16])
}

func wrap(name, version string, body []byte) *discovery.Resource {
	return &discovery.Resource{
		Name: name, Version: version,
		Resource: &anypb.Any{TypeUrl: TypeURL, Value: body},
	}
}
