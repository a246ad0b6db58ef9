package rpcstatus

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// NewRefused returns the counter of the calls that ended with an error. It is not registered yet.
func NewRefused() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_rpc_refused_total", Help: "Calls that ended with an error, by method and gRPC code.",
	}, []string{"method", "code"})
}

// UnaryServer turns the errors of handlers into statuses, logs those of which the client is not told all, and counts all
// of them in refused (nil: nowhere). gRPC asks it only for methods that are registered, so a caller cannot invent labels.
func UnaryServer(log *slog.Logger, refused *prometheus.CounterVec) grpc.UnaryServerInterceptor {
	s := &server{log: log, refused: refused}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		resp, err := handle(ctx, req)
		return resp, s.answer(ctx, info.FullMethod, err)
	}
}

// StreamServer does the same for streams.
func StreamServer(log *slog.Logger, refused *prometheus.CounterVec) grpc.StreamServerInterceptor {
	s := &server{log: log, refused: refused}
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		return s.answer(stream.Context(), info.FullMethod, handle(srv, stream))
	}
}

// server is the server's side of one interceptor.
type server struct {
	log     *slog.Logger
	refused *prometheus.CounterVec
	away    atomic.Int64 // the second in which the last error was logged that means that the database is away
}

func (s *server) answer(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	out, whole := ToStatus(err)
	if !whole && s.isNews(ctx, out.Code()) {
		s.log.ErrorContext(ctx, "request failed", "method", method, "err", err)
	}
	if s.refused != nil {
		s.refused.WithLabelValues(method, out.Code().String()).Inc()
	}
	return out.Err()
}

// isNews: an outage of the database is logged once a second, since every call fails then, also those of strangers; and a
// call that the caller gave up is no failure.
func (s *server) isNews(ctx context.Context, code codes.Code) bool {
	switch code {
	case codes.Unavailable:
		now := time.Now().Unix()
		return s.away.Swap(now) != now
	case codes.Canceled, codes.DeadlineExceeded:
		return ctx.Err() == nil
	default:
		return true
	}
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
