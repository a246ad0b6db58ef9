package push

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	subscription "github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdspb"
)

// line is a stream as go-control-plane's server drives it.
type line struct {
	peer   *peer
	sub    *subscription.Subscription
	out    chan cache.DeltaResponse
	cancel func()
	nonces int
	last   *discovery.DeltaDiscoveryResponse
}

func newLine(f *Fleet) *line {
	return &line{peer: newTestPeer(f), out: make(chan cache.DeltaResponse, 20), cancel: func() {}}
}

// request returns the error that ends the stream.
func (l *line) request(req *discovery.DeltaDiscoveryRequest) error {
	l.send()
	if err := l.peer.OnStreamDeltaRequest(1, req); err != nil {
		return err
	}
	if l.sub == nil {
		sub := subscription.NewDeltaSubscription(req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe(), req.GetInitialResourceVersions(), false)
		l.sub = &sub
	} else {
		l.cancel()
		l.sub.UpdateResourceSubscriptions(req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe())
	}
	var err error
	l.cancel, err = l.peer.CreateDeltaWatch(req, l.sub, l.out)
	return err
}

// send sends what waits to be sent.
func (l *line) send() {
	for len(l.out) > 0 {
		response := <-l.out
		body, err := response.GetDeltaDiscoveryResponse()
		if err != nil {
			panic(err)
		}
		l.nonces++
		body.Nonce = fmt.Sprint(l.nonces)
		l.peer.OnStreamDeltaResponse(1, response.GetDeltaRequest(), body)
		l.sub.SetReturnedResources(response.GetNextVersionMap())
		l.last = body
	}
}

func (l *line) close() {
	l.cancel()
	l.peer.OnDeltaStreamClosed(1, nil)
}

// said makes one request of four bytes. Most of what it says is nearly right.
func said(l *line, op []byte) *discovery.DeltaDiscoveryRequest {
	req := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL}
	domain := []string{"api", "other", "none", "A/B"}[op[1]%4]
	if op[0]&1 != 0 || l.sub == nil {
		req.Node = &core.Node{Id: []string{"n1", "n2", "n3", ""}[op[2]%4]}
		req.ResourceNamesSubscribe = []string{domain}
		req.InitialResourceVersions = map[string]string{}
		if op[2]&8 != 0 {
			req.InitialResourceVersions[domain] = xds.DomainVersion([]string{"one", "two", "a b"}[op[2]>>4%3], int64(op[3]%9)+1)
		}
		if op[2]&4 != 0 {
			req.InitialResourceVersions[domain+"/"+[]string{"a", "b", xds.Settings, "A"}[op[3]%4]] = ""
		}
	}
	if op[0]&2 != 0 && l.last != nil {
		req.ResponseNonce = l.last.GetNonce()
	}
	if op[0]&4 != 0 {
		req.ResponseNonce = fmt.Sprint(op[3])
	}
	if op[0]&8 != 0 {
		req.ErrorDetail = &status.Status{Message: string(op)}
		for _, r := range l.last.GetResources() {
			if detail, err := anypb.New(&xdspb.Rejection{Rule: r.GetName(), Reason: string(op), Holds: op[3]&1 != 0}); err == nil && op[3]&2 != 0 {
				req.ErrorDetail.Details = append(req.ErrorDetail.Details, detail, &anypb.Any{TypeUrl: "x", Value: op})
			}
		}
	}
	if op[0]&16 != 0 {
		req.ResourceNamesUnsubscribe = []string{domain}
	}
	if op[0]&32 != 0 {
		req.TypeUrl = ""
	}
	return req
}

// FuzzRequests lets broken and foreign sidecars say a sequence of things on two streams, while the head moves and rules
// come and go: a stream never has more than one response without an answer, a part is never empty, and what is written of
// the nodes is bounded and says nothing that cannot be.
func FuzzRequests(f *testing.F) {
	f.Add([]byte{0, 1, 0, 0, 0, 0, 2, 0, 0, 0, 0x80, 0, 0, 0, 0, 2, 0, 0, 0})
	f.Add([]byte{0, 1, 0, 12, 1, 1, 1, 1, 0, 0, 0, 10, 0, 0, 2, 1, 2, 0, 0, 0})
	f.Add([]byte{0x80, 3, 1, 0, 0, 0, 1, 0, 12, 0, 0xc0, 0, 0, 0, 0, 0, 2, 0, 0, 0})
	f.Add([]byte("1X1x0\xc111001A100")) // leaves a domain that it is ahead in, and returns to it on the same stream
	spec := rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: 1e9, Burst: 1}}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newStore()
		fleet := newTestFleet(t, s, FleetOptions{})
		fleet.cache.partLimit = 200
		at := &state{}
		lines := []*line{newLine(fleet), newLine(fleet)}
		for ; len(b) >= 5; b = b[5:] {
			op := b[:5]
			if op[0]&0x80 != 0 {
				at = moved(t, at, op, spec)
				fleet.cache.publish(at)
				continue
			}
			l := &lines[op[0]&1]
			if err := (*l).request(said(*l, op[1:])); err != nil {
				(*l).close()
				*l = newLine(fleet)
			}
			(*l).send()
			check(t, fleet, *l)
		}
		for _, l := range lines {
			l.close()
		}
		if err := fleet.save(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if len(fleet.records)+len(fleet.current)+len(fleet.dirty)+len(fleet.cache.watches) != 0 {
			t.Fatalf("%d records, %d current, %d dirty, %d watches are left", len(fleet.records), len(fleet.current), len(fleet.dirty), len(fleet.cache.watches))
		}
	})
}

// moved is the state after one more revision, or of another history.
func moved(t *testing.T, at *state, op []byte, spec rules.Spec) *state {
	t.Helper()
	if op[0]&0x40 != 0 {
		at = &state{}
	}
	changes := rollout.Changes{Head: at.head + 1, Lineage: []string{"one", "two"}[op[1]%2]}
	if op[0]&0x20 != 0 {
		changes.Replaces = []string{"one", "two"}
	}
	if at.lineage != "" {
		changes.Lineage = at.lineage
	}
	domain := []string{"api", "other"}[op[2]%2]
	changes.Domains = []rules.Domain{{Name: domain, Revision: changes.Head}}
	for i, name := range []string{"a", "b", "c"} {
		r := rules.Rule{Domain: domain, Name: name, UID: "u", Revision: changes.Head}
		switch op[3] >> (2 * i) & 3 {
		case 0:
			continue
		case 1, 2:
			r.Stable = &rules.Version{Number: changes.Head, Spec: spec}
		}
		changes.Rules = append(changes.Rules, r)
	}
	next, err := at.after(changes)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func isOdd(r rune) bool { return !unicode.IsPrint(r) }

func check(t *testing.T, f *Fleet, l *line) {
	t.Helper()
	if l.peer.stream != nil && len(l.peer.stream.sent) > 1 {
		t.Fatalf("%d responses without an answer", len(l.peer.stream.sent))
	}
	if l.last != nil && len(l.last.GetResources())+len(l.last.GetRemovedResources()) == 0 {
		t.Fatal("an empty response")
	}
	for _, r := range f.records {
		if r.Acked > r.Sent || r.Acked < 0 || r.Nacked < 0 || len(r.Refused) > maxReasons || strings.ContainsFunc(r.NackReason, isOdd) {
			t.Fatalf("record %+v", r.Node)
		}
		if (len(r.refused) > 0 || r.alien) != (r.NackReason != "") {
			t.Fatalf("refuses %v, alien %v, and says %q", r.refused, r.alien, r.NackReason)
		}
		if r.alien && r.Acked != 0 {
			t.Fatalf("of another history, and acked: %+v", r.Node)
		}
	}
}

// FuzzRequestBytes feeds whole requests as they come from the wire.
func FuzzRequestBytes(f *testing.F) {
	for op := range byte(64) {
		b, err := proto.Marshal(said(newLine(newTestFleet(f, newStore(), FleetOptions{})), []byte{op, 0, 12, 1}))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		fleet := newTestFleet(t, newStore(), FleetOptions{})
		fleet.cache.publish(&state{lineage: "one", head: 3})
		l := newLine(fleet)
		for _, b := range [][]byte{first, second} {
			var req discovery.DeltaDiscoveryRequest
			if proto.Unmarshal(b, &req) != nil || l.request(&req) != nil {
				break
			}
			l.send()
			check(t, fleet, l)
		}
		l.close()
	})
}
