package load

import (
	"errors"
	"fmt"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// response is what a subscriber keeps of a delta response.
type response struct {
	nonce     string
	version   string // of the whole
	resources int
	size      int // on the wire, in bytes
	last      outline
}

// outline is one resource of a response; its content is left alone.
type outline struct {
	name, version string
}

// The numbers of the fields that are looked at.
const (
	responseVersion   protowire.Number = 1
	responseResources protowire.Number = 2
	responseNonce     protowire.Number = 5
	resourceVersion   protowire.Number = 1
	resourceName      protowire.Number = 3
)

// codec is that of a subscriber: it encodes requests as usual, and of a response reads the outline.
type codec struct{}

var _ encoding.CodecV2 = codec{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	request, ok := v.(*discovery.DeltaDiscoveryRequest)
	if !ok {
		return nil, fmt.Errorf("%T is no request", v)
	}
	b, err := proto.Marshal(request)
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	out, ok := v.(*response)
	if !ok {
		return fmt.Errorf("%T is no response", v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	return out.scan(b.ReadOnlyData())
}

func (r *response) scan(b []byte) error {
	*r = response{size: len(b)}
	var last []byte
	err := fields(b, func(number protowire.Number, value []byte) {
		switch number {
		case responseVersion:
			r.version = string(value)
		case responseNonce:
			r.nonce = string(value)
		case responseResources:
			r.resources++
			last = value
		}
	})
	if err != nil || last == nil {
		return err
	}
	return fields(last, func(number protowire.Number, value []byte) {
		switch number {
		case resourceName:
			r.last.name = string(value)
		case resourceVersion:
			r.last.version = string(value)
		}
	})
}

// fields calls see with every field of a message that holds bytes.
func fields(b []byte, see func(protowire.Number, []byte)) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errors.New("broken message")
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(number, kind, b)
		if size < 0 {
			return errors.New("broken message")
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(b)
			see(number, value)
		}
		b = b[size:]
	}
	return nil
}
