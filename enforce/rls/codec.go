package rls

import (
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
)

// codec is gRPC's own. It counts the calls whose message cannot be read (no protobuf, text that is not UTF-8): gRPC answers
// them itself, with Internal, and neither the door nor an interceptor hears of them.
type codec struct {
	encoding.CodecV2
	unread prometheus.Counter
}

func newCodec(unread prometheus.Counter) codec {
	return codec{encoding.GetCodecV2(proto.Name), unread}
}

// Unmarshal is part of encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if _, ok := v.(*ratelimitv3.RateLimitRequest); ok && err != nil {
		c.unread.Inc()
	}
	return err
}
