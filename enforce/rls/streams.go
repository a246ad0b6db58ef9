package rls

import (
	"context"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// stream is one that a client may keep open for as long as it likes, and that carries no calls: a Watch of the health
// service, or reflection. It ends when the door shuts down, which would wait for it otherwise.
type stream struct {
	grpc.ServerStream

	ctx     context.Context
	serving bool // is what a Watch was told last
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s *stream) SendMsg(m any) error {
	if answer, ok := m.(*healthpb.HealthCheckResponse); ok {
		s.serving = answer.GetStatus() == healthpb.HealthCheckResponse_SERVING
	}
	return s.ServerStream.SendMsg(m)
}

// RecvMsg implements grpc.ServerStream. What comes after the end is dropped with the stream.
func (s *stream) RecvMsg(m any) error {
	received := make(chan error, 1)
	go func() { received <- s.ServerStream.RecvMsg(m) }()
	select {
	case err := <-received:
		return err
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// endWithDoor handles a stream until the door shuts down, when it ends as cancelled. A Watch hears before that it is not
// serving.
func (d *Door) endWithDoor(srv any, original grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, end := context.WithCancel(original.Context())
	defer end()
	defer context.AfterFunc(d.ending, end)()
	s := &stream{ServerStream: original, ctx: ctx}
	err := handle(srv, s)
	if s.serving && d.ending.Err() != nil {
		_ = s.SendMsg(&healthpb.HealthCheckResponse{Status: healthpb.HealthCheckResponse_NOT_SERVING}) // or it has gone
	}
	return err
}
