package rpcstatus

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// NewRefused returns the counter of the calls that ended with an error. It is not registered yet.
func NewRefused() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_rpc_refused_total", Help: "Calls that ended with an error, by method and gRPC code.",
	}, []string{"method", "code"})
}

// UnaryServer turns the errors of handlers into statuses, logs those that have no kind, and counts all of them in refused
// (nil: nowhere). gRPC asks it only for methods that are registered, so a caller cannot invent labels.
func UnaryServer(log *slog.Logger, refused *prometheus.CounterVec) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		resp, err := handle(ctx, req)
		return resp, answer(ctx, log, refused, info.FullMethod, err)
	}
}

// StreamServer does the same for streams.
func StreamServer(log *slog.Logger, refused *prometheus.CounterVec) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		return answer(stream.Context(), log, refused, info.FullMethod, handle(srv, stream))
	}
}

func answer(ctx context.Context, log *slog.Logger, refused *prometheus.CounterVec, method string, err error) error {
	if err == nil {
		return nil
	}
	s, known := ToStatus(err)
	if !known {
		log.ErrorContext(ctx, "request failed", "method", method, "err", err)
	}
	if refused != nil {
		refused.WithLabelValues(method, s.Code().String()).Inc()
	}
	return s.Err()
}

// UnaryClient turns the statuses of calls back into errors.
func UnaryClient() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return FromError(invoke(ctx, method, req, reply, cc, opts...))
	}
}

// StreamClient does the same for streams.
func StreamClient() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, FromError(err)
		}
		return clientStream{stream}, nil
	}
}

type clientStream struct{ grpc.ClientStream }

func (s clientStream) SendMsg(m any) error { return FromError(s.ClientStream.SendMsg(m)) }
func (s clientStream) RecvMsg(m any) error { return FromError(s.ClientStream.RecvMsg(m)) }
