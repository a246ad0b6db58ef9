package subscribe

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
)

// inMemory is a sink that checks the laws of what is put in force.
type inMemory struct {
	tb    testing.TB
	sets  map[string]Update
	count int
}

func (s *inMemory) Check(r *rules.Rule) error {
	if r.Stable != nil && r.Stable.Number%5 == 0 {
		return fmt.Errorf("%w: a multiple of five", rules.ErrInvalid)
	}
	return nil
}

func (s *inMemory) Apply(u Update) {
	for i, r := range u.Rules {
		switch {
		case s.Check(r) != nil || r.Domain != u.Domain.Name:
			s.tb.Fatalf("in force in %s: %+v", u.Domain.Name, r)
		case i > 0 && u.Rules[i-1].Name >= r.Name:
			s.tb.Fatalf("rules are not in the order of their names: %s, %s", u.Rules[i-1].Name, r.Name)
		}
	}
	s.sets[u.Domain.Name] = u
	s.count++
}

func newTestClient(tb testing.TB) (*Client, *inMemory) {
	tb.Helper()
	sink := &inMemory{tb: tb, sets: map[string]Update{}}
	c, err := New(Options{
		Conn: noConn{}, Node: "n", Domains: []string{"api", "other"}, Sink: sink, File: NewFile("never-written"),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return c, sink
}

// fuzzed makes one response of five bytes. Most of what it says is nearly right.
func fuzzed(tb testing.TB, op []byte) *discovery.DeltaDiscoveryResponse {
	tb.Helper()
	domain, name := []string{"api", "other", "stranger"}[op[0]%3], []string{"a", "b", "@settings", "*", ""}[op[1]%5]
	revision := int64(op[2]%8) + 1
	lineage := []string{"one", "two"}[op[3]>>7]
	response := &discovery.DeltaDiscoveryResponse{TypeUrl: xds.TypeURL, Nonce: fmt.Sprint(op[4])}
	add := func(r *discovery.Resource, err error) {
		if err != nil {
			tb.Fatal(err)
		}
		response.Resources = append(response.Resources, r)
	}
	rule := &rules.Rule{Domain: domain, Name: name, UID: "u", Revision: revision, Stable: &rules.Version{
		Number: int64(op[2]) + 1,
		Spec:   rules.Spec{Limits: []rules.Limit{{Algorithm: rules.TokenBucket, Rate: rules.Rate{Amount: 1, Window: 1e9, Burst: 1}}}},
	}}
	own := rules.Domain{Name: domain, Revision: revision, Exempt: []rules.Exemption{{Name: fmt.Sprint(op[2])}}}
	for bit := range 7 {
		if op[3]&(1<<bit) == 0 {
			continue
		}
		switch bit {
		case 0, 1:
			add(xds.EncodeDomain(own, lineage))
		case 2:
			add(xds.EncodeRule(rule))
		case 3:
			response.RemovedResources = append(response.RemovedResources, domain+"/"+name)
		case 4:
			add(xds.EncodeLastGood(rule))
		case 5:
			add(&discovery.Resource{Name: domain, Resource: &anypb.Any{TypeUrl: xds.TypeURL, Value: op}}, nil)
		case 6:
			response.SystemVersionInfo = xds.DomainVersion(lineage, 9)
		}
	}
	return response
}

// FuzzSessionResponses lets a broken or foreign control plane say a sequence of things: the answer is always to that
// response, nothing in force goes back in its history, and what is saved comes back as what is in force.
func FuzzSessionResponses(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0b101, 1, 0, 1, 1, 0b1001, 2, 0, 0, 2, 0b10001, 3})
	f.Add([]byte{0, 0, 4, 0b101, 1, 0, 0, 0, 0b10001, 2, 0, 3, 5, 0b1101, 3, 0, 2, 6, 0b100001, 4})
	f.Add([]byte{1, 1, 1, 0b1000101, 1, 1, 1, 2, 0b11000101, 2, 2, 0, 0, 0xff, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		c, sink := newTestClient(t)
		s := &session{client: c, steps: map[string]*step{}}
		for len(b) >= 5 {
			response := fuzzed(t, b[:5])
			b = b[5:]
			before, applied := maps.Clone(c.held), sink.count
			answer, err := s.answer(response)
			if err != nil || answer.GetResponseNonce() != response.GetNonce() || answer.GetTypeUrl() != response.GetTypeUrl() {
				t.Fatalf("answer %v, %v to %v", answer, err, response)
			}
			if len(response.GetResources()) == 0 && len(response.GetRemovedResources()) == 0 && sink.count != applied {
				t.Fatal("a response without resources changed what is in force")
			}
			forward(t, before, c.held)
		}
		restored(t, c)
	})
}

// forward checks that no domain was taken away, and that neither it nor a rule went back in its history.
func forward(t *testing.T, before, after map[string]*held) {
	t.Helper()
	for name, was := range before {
		is := after[name]
		switch {
		case was.info.Revision > 0 && is.info.Revision == 0:
			t.Fatalf("domain %s was taken away", name)
		case was.lineage != is.lineage:
			continue
		case is.info.Revision < was.info.Revision:
			t.Fatalf("domain %s went from revision %d to %d", name, was.info.Revision, is.info.Revision)
		}
		for _, r := range was.rules {
			if now := is.rules.find(r.name); now != nil && now.rule.Revision < r.value.rule.Revision {
				t.Fatalf("rule %s went from revision %d to %d", r.name, r.value.rule.Revision, now.rule.Revision)
			}
		}
	}
}

// restored checks that a restart from disk finds what is in force.
func restored(t *testing.T, c *Client) {
	t.Helper()
	for name, h := range c.held {
		for _, r := range h.rules {
			// What stands in for a refused version can be of the history before.
			if r.value.rule.Revision > h.info.Revision && h.rejected.find(r.name) == nil {
				t.Fatalf("rule %s of revision %d in revision %d", r.name, r.value.rule.Revision, h.info.Revision)
			}
		}
		m := h.save()
		back, err := restore(m, c.o.Sink.Check)
		if err != nil {
			t.Fatalf("restore %s: %v", name, err)
		}
		if again := back.save(); !proto.Equal(m, again) {
			t.Fatalf("saved %v, restored and saved %v", m, again)
		}
		offered, offers := map[string]string{}, map[string]string{}
		h.offer(offered)
		back.offer(offers)
		if !maps.Equal(offered, offers) {
			t.Fatalf("offers %v, and after a restart %v", offered, offers)
		}
	}
}

// FuzzSessionBytes feeds whole responses as they come from the wire.
func FuzzSessionBytes(f *testing.F) {
	for op := range 64 {
		b, err := proto.Marshal(fuzzed(f, binary.BigEndian.AppendUint32([]byte{0}, uint32(op)<<8|1)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c, _ := newTestClient(t)
		s := &session{client: c, steps: map[string]*step{}}
		for _, b := range [][]byte{first, second} {
			var response discovery.DeltaDiscoveryResponse
			if proto.Unmarshal(b, &response) != nil {
				continue
			}
			answer, err := s.answer(&response)
			if err != nil || answer.GetResponseNonce() != response.GetNonce() {
				t.Fatalf("answer %v, %v to %v", answer, err, &response)
			}
			if _, err := proto.Marshal(answer); err != nil {
				t.Fatalf("the answer cannot be sent: %v", err)
			}
		}
		restored(t, c)
	})
}

// Of the sets that are handed to the saver, the newest is written; nothing waits for it.
func TestSaverWritesTheNewestSet(t *testing.T) {
	t.Parallel()
	c, _ := newTestClient(t)
	c.saves = make(chan []*held, 1) // nobody reads it: the disk hangs
	for revision := int64(1); revision <= 3; revision++ {
		c.commit(&held{name: "api", lineage: "one", info: rules.Domain{Revision: revision}})
		c.saveSoon()
		c.saveSoon() // nothing has changed since
	}
	sets := <-c.saves
	if len(sets) != 1 || sets[0].info.Revision != 3 || len(c.saves) != 0 {
		t.Errorf("to be written: %+v, and %d more", sets, len(c.saves))
	}
}

// A step that never ends is not collected for ever.
func TestStreamThatNeverCommitsEnds(t *testing.T) {
	t.Parallel()
	c, sink := newTestClient(t)
	s := &session{client: c, steps: map[string]*step{}}
	value := bytes.Repeat([]byte{1}, 1<<20)
	for i := range 300 {
		answer, err := s.answer(&discovery.DeltaDiscoveryResponse{
			TypeUrl: xds.TypeURL, Nonce: fmt.Sprint(i),
			Resources: []*discovery.Resource{{Name: "api/a", Resource: &anypb.Any{TypeUrl: xds.TypeURL, Value: value}}},
		})
		if err != nil {
			if answer.GetErrorDetail() == nil || sink.count != 0 || i < 200 {
				t.Errorf("answer %d is %v, %d sets in force", i, answer, sink.count)
			}
			return
		}
	}
	t.Error("300 MiB were collected")
}

// noConn is no connection at all.
type noConn struct{ grpc.ClientConnInterface }
