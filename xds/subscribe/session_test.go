package subscribe_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/subscribe"
	"github.com/headgate/headgate/xds/xdspb"
	"github.com/headgate/headgate/xds/xdstest"
)

type adsStream = discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer

// foreign is a control plane that says what a test tells it to.
type foreign struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	handle func(adsStream) error
}

func (f *foreign) DeltaAggregatedResources(stream adsStream) error { return f.handle(stream) }

// serve runs a control plane of which each stream is handled by handle, until stop.
func serve(t *testing.T, handle func(adsStream) error) (conn *grpc.ClientConn, stop func()) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(server, &foreign{handle: handle})
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	conn, err := subscribe.Dial("passthrough:///memory",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	return conn, func() { _ = conn.Close(); server.Stop(); <-done }
}

// script is a foreign control plane with one stream, driven from the test.
type script struct {
	t        *testing.T
	requests chan *discovery.DeltaDiscoveryRequest
	send     chan *discovery.DeltaDiscoveryResponse
}

func startScript(t *testing.T) (*script, *grpc.ClientConn) {
	t.Helper()
	s := &script{t: t, requests: make(chan *discovery.DeltaDiscoveryRequest), send: make(chan *discovery.DeltaDiscoveryResponse)}
	conn, stop := serve(t, func(stream adsStream) error {
		ended := make(chan struct{})
		go func() { defer close(ended); s.receive(stream) }()
		for {
			select {
			case response := <-s.send:
				if err := stream.Send(response); err != nil {
					return err
				}
			case <-ended:
				return nil
			}
		}
	})
	t.Cleanup(stop)
	return s, conn
}

// receive hands over requests until the client says goodbye or the stream ends.
func (s *script) receive(stream adsStream) {
	for {
		request, err := stream.Recv()
		if err != nil || len(request.GetResourceNamesUnsubscribe()) > 0 {
			return
		}
		select {
		case s.requests <- request:
		case <-stream.Context().Done():
			return
		}
	}
}

func (s *script) request() *discovery.DeltaDiscoveryRequest {
	s.t.Helper()
	select {
	case r := <-s.requests:
		return r
	case <-time.After(xdstest.Patience):
		s.t.Fatal("no request")
		return nil
	}
}

// exchange sends a response and returns the answer.
func (s *script) exchange(nonce string, resources ...*discovery.Resource) *discovery.DeltaDiscoveryRequest {
	s.t.Helper()
	return s.exchangeAll(&discovery.DeltaDiscoveryResponse{TypeUrl: xds.TypeURL, Nonce: nonce, Resources: resources})
}

func (s *script) exchangeAll(response *discovery.DeltaDiscoveryResponse) *discovery.DeltaDiscoveryRequest {
	s.t.Helper()
	select {
	case s.send <- response:
	case <-time.After(xdstest.Patience):
		s.t.Fatal("the stream takes no response")
	}
	answer := s.request()
	if answer.GetResponseNonce() != response.GetNonce() {
		s.t.Fatalf("answer to nonce %q, want %q", answer.GetResponseNonce(), response.GetNonce())
	}
	return answer
}

func rule(t *testing.T, name, limit string, revision int64) *discovery.Resource {
	t.Helper()
	r, err := xds.EncodeRule(&rules.Rule{
		Domain: "api", Name: name, UID: "u", Revision: revision,
		Stable: &rules.Version{Number: revision, Spec: xdstest.Spec(t, limit)},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func domain(t *testing.T, lineage string, revision int64) *discovery.Resource {
	t.Helper()
	r, err := xds.EncodeDomain(rules.Domain{Name: "api", Revision: revision}, lineage)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// refusals are the details of an answer: rule and reason.
func refusals(t *testing.T, answer *discovery.DeltaDiscoveryRequest) map[string]string {
	t.Helper()
	if answer.GetErrorDetail() == nil {
		return nil
	}
	out := map[string]string{}
	for _, d := range answer.GetErrorDetail().GetDetails() {
		var r xdspb.Rejection
		if err := d.UnmarshalTo(&r); err != nil {
			t.Fatal(err)
		}
		out[r.GetRule()] = r.GetReason()
	}
	return out
}

func wantRefusals(t *testing.T, answer *discovery.DeltaDiscoveryRequest, want map[string]string) {
	t.Helper()
	if diff := cmp.Diff(want, refusals(t, answer)); diff != "" {
		t.Fatalf("refused (-want +got):\n%s", diff)
	}
}

func TestFirstRequestNamesAllDomainsAndWhatIsHeld(t *testing.T) {
	t.Parallel()
	file := diskFile(t)
	s, conn := startScript(t)
	client := run(t, settings{conn: conn, domains: []string{"other", "api"}, file: file, sink: newSink("13/min")})
	first := s.request()
	if diff := cmp.Diff([]string{"api", "other"}, first.GetResourceNamesSubscribe()); diff != "" {
		t.Errorf("subscribes (-want +got):\n%s", diff)
	}
	if n := first.GetNode(); n.GetId() != "n1" || n.GetUserAgentName() != "test" || n.GetUserAgentVersion() != "1" || first.GetTypeUrl() != xds.TypeURL {
		t.Errorf("first request %v", first)
	}
	if len(first.GetInitialResourceVersions()) != 0 {
		t.Errorf("offers %v", first.GetInitialResourceVersions())
	}
	good := rule(t, "b", "60/min", 4)
	wantRefusals(t, s.exchange("1", rule(t, "a", "13/min", 5), good, domain(t, "one", 5)), map[string]string{"api/a": "forbidden limit"})
	wantRefusals(t, s.exchange("2", rule(t, "b", "13/min", 6), domain(t, "one", 6)), map[string]string{"api/b": "forbidden limit"})
	client.stop()

	s, conn = startScript(t)
	run(t, settings{conn: conn, domains: []string{"other", "api"}, file: file, sink: newSink("13/min")})
	want := map[string]string{"api": "one@6", "api/a": "", "api/b": good.GetVersion()}
	if diff := cmp.Diff(want, s.request().GetInitialResourceVersions()); diff != "" {
		t.Errorf("offers (-want +got):\n%s", diff)
	}
}

func TestSomethingOlderIsRefused(t *testing.T) {
	t.Parallel()
	s, conn := startScript(t)
	client := run(t, settings{conn: conn})
	s.request()
	wantRefusals(t, s.exchange("1", rule(t, "a", "60/min", 7), domain(t, "one", 7)), nil)
	wantRefusals(t, s.exchange("2", rule(t, "a", "50/min", 5), domain(t, "one", 5)),
		map[string]string{"api": "older than the revision in force: 5, in force is 7"})
	client.sink.want(t, "api", map[string]string{"a": "60/min"})
	// The control plane may have caught up since.
	wantRefusals(t, s.exchange("3", rule(t, "b", "60/min", 8), domain(t, "one", 8)), nil)
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "60/min"})
	// The same revision again, with a rule that stood as refused, is no step back.
	wantRefusals(t, s.exchange("4", rule(t, "b", "61/min", 8), domain(t, "one", 8)), nil)
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "61/min"})
}

// A domain resource that cannot be taken refuses the whole step. The control plane goes on from there, so the next one
// brings what this one brought.
func TestRefusedDomainKeepsItsStepForTheNext(t *testing.T) {
	t.Parallel()
	s, conn := startScript(t)
	client := run(t, settings{conn: conn})
	s.request()
	wantRefusals(t, s.exchange("1", rule(t, "a", "60/min", 1), domain(t, "one", 1)), nil)
	bad := domain(t, "one", 2)
	bad.Resource.TypeUrl = "type.googleapis.com/later"
	answer := s.exchange("2", rule(t, "a", "61/min", 2), bad)
	wantRefusals(t, answer, map[string]string{"api": `invalid: resource of type "type.googleapis.com/later": only ` + xds.TypeURL + ` is known`})
	client.sink.want(t, "api", map[string]string{"a": "60/min"})
	wantRefusals(t, s.exchange("3", rule(t, "b", "60/min", 3), domain(t, "one", 3)), nil)
	client.sink.want(t, "api", map[string]string{"a": "61/min", "b": "60/min"})
}

func TestForeignResourcesAreRefusedAndCounted(t *testing.T) {
	t.Parallel()
	s, conn := startScript(t)
	client := run(t, settings{conn: conn})
	s.request()
	stranger := rule(t, "a", "60/min", 1)
	stranger.Name = "stranger/a"
	renamed := rule(t, "a", "60/min", 1)
	renamed.Name = "api/b"
	garbage := rule(t, "c", "60/min", 1)
	garbage.Resource.Value = []byte{0xff, 0xff}
	empty := &discovery.Resource{Name: "api/d"}
	answer := s.exchange("1", stranger, renamed, garbage, empty, rule(t, "a", "60/min", 1), domain(t, "one", 1))
	got := refusals(t, answer)
	for _, name := range []string{"stranger/a", "api/b", "api/c", "api/d"} {
		if got[name] == "" {
			t.Errorf("%s is not refused: %v", name, got)
		}
	}
	if len(got) != 4 || answer.GetErrorDetail().GetMessage() == "" {
		t.Errorf("got %v", answer.GetErrorDetail())
	}
	client.sink.want(t, "api", map[string]string{"a": "60/min"})
	if n := client.metric(t, "headgate_config_rejected_total", "api"); n != 3 {
		t.Errorf("headgate_config_rejected_total %v", n)
	}
}

func TestRemovedRuleLeavesWithItsRevision(t *testing.T) {
	t.Parallel()
	s, conn := startScript(t)
	client := run(t, settings{conn: conn})
	s.request()
	s.exchange("1", rule(t, "a", "60/min", 1), rule(t, "b", "60/min", 1), domain(t, "one", 1))
	part := &discovery.DeltaDiscoveryResponse{TypeUrl: xds.TypeURL, Nonce: "2", RemovedResources: []string{"api/a", "stranger/x", "stranger"}}
	wantRefusals(t, s.exchangeAll(part), map[string]string{"stranger": "not subscribed to", "stranger/x": "not subscribed to"})
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "60/min"})
	s.exchange("3", domain(t, "one", 2))
	client.sink.want(t, "api", map[string]string{"b": "60/min"})
}

// More is refused than fits a message: what is not named must not pass for taken.
func TestHugeRefusalFitsAMessage(t *testing.T) {
	t.Parallel()
	s, conn := startScript(t)
	run(t, settings{conn: conn})
	s.request()
	var resources []*discovery.Resource
	for _, name := range xdstest.Names("api/rule", 3000) {
		resources = append(resources, &discovery.Resource{Name: name})
	}
	answer := s.exchange("1", append(resources, domain(t, "one", 1))...)
	got := refusals(t, answer)
	if len(got) != 1001 || got["api"] != "2000 more rules" {
		t.Errorf("%d details, the domain's %q", len(got), got["api"])
	}
}

// instants collects when things happened, since the start, in streams and the test.
type instants struct {
	mu    sync.Mutex
	began time.Time
	list  []time.Duration
}

func newInstants() *instants { return &instants{began: time.Now()} }

// now adds the present instant and returns how many there are.
func (i *instants) now() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.list = append(i.list, time.Since(i.began))
	return len(i.list)
}

func (i *instants) all() []time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.list)
}

// Every stream ends as soon as it is open, once with and once without an answer before. The rules stay in force, and the
// tries become rarer: a handful in ten seconds.
func TestC19aBrokenStreamsAreRetriedWithGrowingWaits(t *testing.T) {
	t.Parallel()
	for name, exchange := range map[string]bool{"at once": false, "after an exchange": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				opened := newInstants()
				conn, stop := serve(t, func(stream adsStream) error {
					opened.now()
					if _, err := stream.Recv(); err != nil {
						return err
					}
					if exchange {
						if err := stream.Send(&discovery.DeltaDiscoveryResponse{
							TypeUrl: xds.TypeURL, Nonce: "1", Resources: []*discovery.Resource{domain(t, "one", 1)},
						}); err != nil {
							return err
						}
						if _, err := stream.Recv(); err != nil {
							return err
						}
					}
					return grpcstatus.ErrorProto(&status.Status{Code: 13, Message: "RST_STREAM NO_ERROR"}) // INTERNAL
				})
				file := diskFile(t)
				if err := file.Save(held(t)); err != nil {
					t.Fatal(err)
				}
				client := run(t, settings{conn: conn, file: file})
				time.Sleep(10 * time.Second) // of the bubble
				synctest.Wait()
				tries := opened.all()
				if n := len(tries); n < 3 || n > 8 {
					t.Errorf("%d tries in 10 s: %v", n, tries)
				}
				client.sink.want(t, "api", map[string]string{"a": "60/min"})
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				tries = opened.all()
				for i := 8; i < len(tries); i++ {
					if wait := tries[i] - tries[i-1]; wait < 7*time.Second || wait > 24*time.Second {
						t.Errorf("wait %d is %v, want 15 s, half as long or half as long again", i, wait)
					}
				}
				if n := len(tries); n < 15 || n > 40 {
					t.Errorf("%d tries in 5 min", n)
				}
				client.stop()
				stop()
			})
		})
	}
}

// held is a file's content: revision 1 of "api" with rule a.
func held(t *testing.T) *xdspb.LastGood {
	t.Helper()
	h := &xdspb.HeldDomain{Name: "api", Version: "one@1"}
	for _, r := range []*discovery.Resource{rule(t, "a", "60/min", 1), domain(t, "one", 1)} {
		body, err := xds.Unwrap(r)
		if err != nil {
			t.Fatal(err)
		}
		h.Resources = append(h.Resources, &xdspb.HeldResource{Name: r.GetName(), Version: r.GetVersion(), Resource: body})
	}
	return &xdspb.LastGood{Domains: []*xdspb.HeldDomain{h}}
}

// After a stream that was good for a while, the first wait is short again.
func TestWaitIsShortAfterAGoodStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		opened, ended := newInstants(), newInstants()
		conn, stop := serve(t, func(stream adsStream) error {
			defer ended.now()
			if opened.now() < 8 {
				return grpcstatus.ErrorProto(&status.Status{Code: 14})
			}
			select { // up to date: nothing is ever sent
			case <-time.After(30 * time.Second):
			case <-stream.Context().Done():
			}
			return grpcstatus.ErrorProto(&status.Status{Code: 14})
		})
		client := run(t, settings{conn: conn})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		starts, ends := opened.all(), ended.all()
		if len(starts) < 10 {
			t.Fatalf("%d streams", len(starts))
		}
		if wait := starts[8] - ends[7]; wait > 300*time.Millisecond {
			t.Errorf("waited %v after a stream of 30 s", wait)
		}
		client.stop()
		stop()
	})
}
