package rpcstatus

import (
	"context"
	"log/slog"

	"google.golang.org/grpc"
)

// UnaryServer turns the errors of handlers into statuses, and logs those that have no kind.
func UnaryServer(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		resp, err := handle(ctx, req)
		return resp, answer(ctx, log, info.FullMethod, err)
	}
}

// StreamServer does the same for streams.
func StreamServer(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		return answer(stream.Context(), log, info.FullMethod, handle(srv, stream))
	}
}

func answer(ctx context.Context, log *slog.Logger, method string, err error) error {
	if err == nil {
		return nil
	}
	s, known := ToStatus(err)
	if !known {
		log.ErrorContext(ctx, "request failed", "method", method, "err", err)
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
