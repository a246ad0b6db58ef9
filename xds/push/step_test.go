package push

import (
	"maps"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
)

func TestPositionComesBackAsText(t *testing.T) {
	t.Parallel()
	for _, want := range []position{
		{},
		{absent: true},
		{lineage: "l", revision: 5},
		{lineage: "l", revision: 5, rule: "login", began: 3, from: "l"},
		{lineage: "a@b", revision: 1, rule: "x"},
	} {
		if got := parsePosition(want.String()); got != want {
			t.Errorf("%q came back as %+v, want %+v", want.String(), got, want)
		}
	}
	for _, text := range []string{"", "l", "l@", "l@0", "@1", "l@x#y", "#@", "l@1#a", "l@1#a.x"} {
		if got := parsePosition(text); got != (position{}) {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}

// The rule moved on while its last good version was looked up: it is sent no more, and not kept either.
func TestLastGoodIsOnlyForTheNewestVersion(t *testing.T) {
	t.Parallel()
	spec := rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: 1e9, Burst: 1}}}}
	s, err := (&state{}).after(rollout.Changes{
		Head: 2, Lineage: "l", Domains: []rules.Domain{{Name: "d", Revision: 2}},
		Rules: []rules.Rule{{Domain: "d", Name: "a", UID: "u", Revision: 2, Stable: &rules.Version{Number: 2, Spec: spec}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stand := &discovery.Resource{Name: "d/a", Version: "older"}
	newest := s.domains["d"].find("a").GetVersion()
	at := &held{domain: "d", at: position{lineage: "l", revision: 2}}
	for refused, want := range map[string]int{newest: 2, "what was the newest": 0} {
		p := newPeer(nil, nil)
		p.good["d"] = []lastGood{{want: want30(refused), resource: stand}}
		if got := p.lastGood(s, at, 1000); len(got) != want || len(p.good["d"]) != 0 {
			t.Errorf("for %s: got %v, and %d are left", refused, got, len(p.good["d"]))
		}
	}
	p := newPeer(nil, nil)
	p.good["d"] = []lastGood{{want: want30(newest), resource: stand}}
	ahead := &held{domain: "d", at: position{lineage: "l", revision: 3}}
	foreign := &held{domain: "d", at: position{lineage: "x", revision: 1}}
	for _, h := range []*held{ahead, foreign} {
		if got := p.lastGood(s, h, 1000); len(got) != 0 || len(p.good["d"]) != 1 {
			t.Errorf("at %s: got %v, and %d are left", h.at, got, len(p.good["d"]))
		}
	}
}

func want30(version string) want { return want{rule: "a", version: version, revision: 2} }

// Whatever changes between the parts of whatever size, a client that adds up what it is sent holds exactly the head when
// the domain's resource arrives.
func TestPropertyStepsAddUpToTheHead(t *testing.T) {
	t.Parallel()
	spec := rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: 1e9, Burst: 1}}}}
	rapid.Check(t, func(t *rapid.T) {
		s := &state{}
		truth := map[string]string{}
		change := func() {
			revision := s.head + 1
			changes := rollout.Changes{Head: revision, Lineage: "l", Domains: []rules.Domain{{Name: "d", Revision: revision}}}
			for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}), 1, 6, rapid.ID).Draw(t, "touched") {
				r := rules.Rule{Domain: "d", Name: name, UID: "u", Revision: revision}
				if rapid.IntRange(0, 2).Draw(t, "deleted") > 0 {
					r.Stable = &rules.Version{Number: revision, Spec: spec}
				}
				changes.Rules = append(changes.Rules, r)
			}
			next, err := s.after(changes)
			if err != nil {
				t.Fatal(err)
			}
			s = next
			truth = map[string]string{}
			for _, r := range s.domains["d"].resources {
				truth[r.GetName()] = r.GetVersion()
			}
		}
		change()
		at, holds, collected := position{}, map[string]string{}, map[string]string{}
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			if rapid.Bool().Draw(t, "head moves") {
				change()
			}
			d := s.domains["d"]
			if !d.lags(at) {
				if !maps.Equal(holds, truth) {
					t.Fatalf("client at %s holds %v, the head is %v", at, holds, truth)
				}
				continue
			}
			response := &message{DeltaDiscoveryResponse: &discovery.DeltaDiscoveryResponse{Nonce: "1"}}
			next := d.step(at, rapid.IntRange(1, 600).Draw(t, "limit"), response)
			part := onTheWire(t, response).GetResources()
			if len(part) == 0 {
				t.Fatal("an empty part")
			}
			if at == (position{}) && len(response.GetRemovedResources()) > 0 {
				t.Fatalf("a client that has nothing is told of %v", response.GetRemovedResources())
			}
			for _, name := range response.GetRemovedResources() {
				if name == "d/"+xds.Everything {
					clear(holds)
					clear(collected)
				}
				collected[name] = ""
			}
			for _, r := range part {
				collected[r.GetName()] = r.GetVersion()
			}
			at = parsePosition(next.String())
			if _, rule := xds.SplitName(part[len(part)-1].GetName()); rule == "" {
				maps.Copy(holds, collected)
				maps.DeleteFunc(holds, func(_, version string) bool { return version == "" })
				clear(collected)
				if !maps.Equal(holds, truth) {
					t.Fatalf("committed %v, the head is %v", holds, truth)
				}
			}
		}
	})
}

// What clients that do not read hold up is one copy of the rules, not one for each of them.
func TestResponsesShareTheirBytes(t *testing.T) {
	t.Parallel()
	spec := rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: 1e9, Burst: 1}}}}
	s, err := (&state{}).after(rollout.Changes{
		Head: 1, Lineage: "one", Domains: []rules.Domain{{Name: "d", Revision: 1}},
		Rules: []rules.Rule{{Domain: "d", Name: "a", UID: "u", Revision: 1, Stable: &rules.Version{Number: 1, Spec: spec}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	first := func(nonce string) []byte {
		t.Helper()
		m := &message{DeltaDiscoveryResponse: &discovery.DeltaDiscoveryResponse{Nonce: nonce}}
		s.domains["d"].step(position{}, DefaultPartLimit, m)
		buffers, err := newCodec().Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return buffers[0].ReadOnlyData()
	}
	if a, b := first("1"), first("2"); len(a) < 50 || &a[0] != &b[0] {
		t.Errorf("a rule of %d bytes is there twice on its way to two clients", len(a))
	}
}

// onTheWire returns the message as a client decodes it, which must be as it was meant, also from a server without our
// codec.
func onTheWire(t *rapid.T, m *message) *discovery.DeltaDiscoveryResponse {
	var got discovery.DeltaDiscoveryResponse
	for _, c := range []encoding.CodecV2{newCodec().CodecV2, newCodec()} {
		buffers, err := c.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Unmarshal(buffers, &got); err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(m.DeltaDiscoveryResponse, &got) || buffers.Len() != proto.Size(&got) {
			t.Fatalf("sent %v in %d bytes, meant %v", &got, buffers.Len(), m.DeltaDiscoveryResponse)
		}
	}
	return &got
}
