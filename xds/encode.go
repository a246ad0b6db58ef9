package xds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/xdspb"
)

// EncodeRule returns the rule as a resource that is ready for the wire.
func EncodeRule(r *rules.Rule) (*discovery.Resource, error) {
	stable, err := encodeVersion(r.Stable)
	if err != nil {
		return nil, fmt.Errorf("encode rule %s: stable: %w", r.ID(), err)
	}
	candidate, err := encodeVersion(r.Candidate)
	if err != nil {
		return nil, fmt.Errorf("encode rule %s: candidate: %w", r.ID(), err)
	}
	body, err := marshal(&xdspb.Resource{Kind: &xdspb.Resource_Rule{Rule: &xdspb.Rule{
		Domain: r.Domain, Name: r.Name, Uid: r.UID, Revision: r.Revision,
		Stable: stable, Candidate: candidate,
		Percent: uint32(r.Percent), Salt: r.Salt, Epoch: r.Epoch,
	}}})
	if err != nil {
		return nil, fmt.Errorf("encode rule %s: %w", r.ID(), err)
	}
	return wrap(RuleName(r.Domain, r.Name), contentHash(body), body), nil
}

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
	body, err := marshal(&xdspb.Resource{Kind: &xdspb.Resource_Domain{Domain: &xdspb.Domain{
		Name: d.Name, Revision: d.Revision, Lineage: lineage, Secret: d.Secret[:],
	}}})
	if err != nil {
		return nil, fmt.Errorf("encode domain %s: %w", d.Name, err)
	}
	return wrap(d.Name, DomainVersion(lineage, d.Revision), body), nil
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
