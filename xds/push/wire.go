package push

import (
	"fmt"
	"slices"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/grpc/encoding"
	standard "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// message is a response whose resources are marshalled already, once for all streams that they are sent on: a first sync
// of 10,000 rules is 3.6 MB, which a thousand clients would otherwise each have a copy of on its way.
//
// It is a protobuf message like any other: a codec that is not ours sends the same, at that price.
type message struct {
	*discovery.DeltaDiscoveryResponse
	// resources are those of the response, each as the field it is on the wire. They are shared, and nobody may change
	// them; nil where a response has others.
	resources mem.BufferSlice
}

// resourcesField is the number of a response's resources.
const resourcesField protowire.Number = 2

// marshalled returns the resource as the field of a response that it is on the wire.
func marshalled(r *discovery.Resource) (mem.Buffer, error) {
	body, err := proto.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("marshal resource %s: %w", r.GetName(), err)
	}
	field := make([]byte, 0, protowire.SizeTag(resourcesField)+protowire.SizeBytes(len(body)))
	field = protowire.AppendTag(field, resourcesField, protowire.BytesType)
	return mem.SliceBuffer(protowire.AppendBytes(field, body)), nil
}

// codec is gRPC's own, which sends a message's resources as they are: a protobuf message may be written field by field.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(standard.Name)} }

// Marshal is part of encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*message)
	if !ok || m.resources == nil {
		return c.CodecV2.Marshal(v)
	}
	rest, err := c.CodecV2.Marshal(&discovery.DeltaDiscoveryResponse{
		SystemVersionInfo: m.GetSystemVersionInfo(),
		TypeUrl:           m.GetTypeUrl(),
		RemovedResources:  m.GetRemovedResources(),
		Nonce:             m.GetNonce(),
	})
	if err != nil {
		return nil, err
	}
	return slices.Concat(m.resources, rest), nil
}

// answer is what a watch is answered with. The server takes the response out of it, writes the nonce into it and sends it,
// in the goroutine of the stream: what belongs to the response waits with the peer for that moment.
type answer struct {
	cache.DeltaPassthroughResponse
	peer    *peer
	message *message
}

// GetDeltaDiscoveryResponse is part of cache.DeltaResponse.
func (a *answer) GetDeltaDiscoveryResponse() (*discovery.DeltaDiscoveryResponse, error) {
	a.peer.outgoing = a.message
	return a.DeltaDiscoveryResponse, nil
}

type adsStream = discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer

// sharing is a stream that sends the responses of its peer as the messages they are.
type sharing struct {
	adsStream
	peer *peer
}

// Send is part of the stream's interface.
func (s sharing) Send(response *discovery.DeltaDiscoveryResponse) error {
	m := s.peer.outgoing
	if s.peer.outgoing = nil; m == nil || m.DeltaDiscoveryResponse != response {
		return s.adsStream.Send(response)
	}
	return s.SendMsg(m)
}
