package xdstest

import (
	"context"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdspb"
)

// Raw is a client in the raw protocol. What it receives, the test answers.
type Raw struct {
	tb       testing.TB
	stream   discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	received chan *discovery.DeltaDiscoveryResponse
	end      context.CancelFunc
	done     chan struct{}
	err      error // why the stream ended; read after done
}

// Dial opens a stream as node, subscribes to the domains and offers what it holds (nil: nothing).
func Dial(tb testing.TB, conn *grpc.ClientConn, node string, holds map[string]string, domains ...string) *Raw {
	tb.Helper()
	return DialAs(tb, conn, Node(node, nil), holds, domains...)
}

// Node is a node with that metadata.
func Node(id string, metadata map[string]string) *core.Node {
	fields := map[string]*structpb.Value{}
	for name, value := range metadata {
		fields[name] = structpb.NewStringValue(value)
	}
	return &core.Node{
		Id: id, UserAgentName: "raw", UserAgentVersionType: &core.Node_UserAgentVersion{UserAgentVersion: "1.2.3"},
		Metadata: &structpb.Struct{Fields: fields},
	}
}

// DialAs does as Dial does, with all that the node says of itself.
func DialAs(tb testing.TB, conn *grpc.ClientConn, node *core.Node, holds map[string]string, domains ...string) *Raw {
	tb.Helper()
	ctx, end := context.WithCancel(context.Background())
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		end()
		tb.Fatal(err)
	}
	r := &Raw{tb: tb, stream: stream, received: make(chan *discovery.DeltaDiscoveryResponse, 100), end: end, done: make(chan struct{})}
	go r.receive()
	tb.Cleanup(r.Close)
	r.Send(&discovery.DeltaDiscoveryRequest{
		Node: node, TypeUrl: xds.TypeURL, ResourceNamesSubscribe: domains, InitialResourceVersions: holds,
	})
	return r
}

func (r *Raw) receive() {
	defer close(r.done)
	for {
		response, err := r.stream.Recv()
		if err != nil {
			r.err = err
			return
		}
		r.received <- response
	}
}

// Close ends the stream.
func (r *Raw) Close() {
	r.end()
	<-r.done
}

// Err waits for the stream to end and says why it did.
func (r *Raw) Err() error {
	r.tb.Helper()
	select {
	case <-r.done:
		return r.err
	case <-time.After(Patience):
		r.tb.Fatal("the stream did not end")
		return nil
	}
}

// Send sends a request as it is.
func (r *Raw) Send(request *discovery.DeltaDiscoveryRequest) {
	r.tb.Helper()
	if err := r.stream.Send(request); err != nil {
		r.tb.Fatalf("send: %v", err)
	}
}

// Next waits for the next response.
func (r *Raw) Next() *discovery.DeltaDiscoveryResponse {
	r.tb.Helper()
	select {
	case response := <-r.received:
		return response
	case <-r.done:
		r.tb.Fatalf("the stream ended instead of a response: %v", r.err)
	case <-time.After(Patience):
		r.tb.Fatal("no response")
	}
	return nil
}

// Nothing fails the test if there is a response that was not taken by Next. It looks, and does not wait: let the test
// wait first for something that comes after.
func (r *Raw) Nothing() {
	r.tb.Helper()
	select {
	case response := <-r.received:
		r.tb.Fatalf("unexpected response: %v, removed %v", Resources(response), response.GetRemovedResources())
	default:
	}
}

// Ack takes the response.
func (r *Raw) Ack(response *discovery.DeltaDiscoveryResponse) {
	r.tb.Helper()
	r.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResponseNonce: response.GetNonce()})
}

// Nack refuses the response, and in it the rules named as {"domain/name": reason}. It holds another version of them.
func (r *Raw) Nack(response *discovery.DeltaDiscoveryResponse, text string, refused map[string]string) {
	r.tb.Helper()
	r.nack(response, text, refused, true)
}

// NackEmpty does as Nack does, and holds nothing of the rules that it refuses.
func (r *Raw) NackEmpty(response *discovery.DeltaDiscoveryResponse, refused map[string]string) {
	r.tb.Helper()
	r.nack(response, "", refused, false)
}

func (r *Raw) nack(response *discovery.DeltaDiscoveryResponse, text string, refused map[string]string, holds bool) {
	r.tb.Helper()
	detail := &status.Status{Code: 3, Message: text}
	for name, reason := range refused {
		packed, err := anypb.New(&xdspb.Rejection{Rule: name, Reason: reason, Holds: holds})
		if err != nil {
			r.tb.Fatal(err)
		}
		detail.Details = append(detail.Details, packed)
	}
	r.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResponseNonce: response.GetNonce(), ErrorDetail: detail})
}

// Sync acknowledges responses until the domain is committed at the revision, and returns their resource names.
func (r *Raw) Sync(domain string, revision int64) []string {
	r.tb.Helper()
	var names []string
	for {
		response := r.Next()
		names = append(names, Resources(response)...)
		r.Ack(response)
		for _, resource := range response.GetResources() {
			_, at, ok := xds.ParseDomainVersion(resource.GetVersion())
			if resource.GetName() == domain && ok && at == revision {
				return names
			}
		}
	}
}

// Resources are the names of the resources in the response.
func Resources(response *discovery.DeltaDiscoveryResponse) []string {
	names := make([]string, len(response.GetResources()))
	for i, r := range response.GetResources() {
		names[i] = r.GetName()
	}
	return names
}
