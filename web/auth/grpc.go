package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

// anyone is what everybody is called where nobody is asked. Package api knows better: it asks the client.
const anyone = "unknown"

// askAgain is how often the credential of an open stream is looked at again.
const askAgain = 30 * time.Second

// UnaryServer puts the caller's identity into the context of each call, or refuses the call.
func (a *Authenticator) UnaryServer() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, _, err := a.admit(ctx, info.FullMethod, req)
		if err != nil {
			return nil, err
		}
		return handle(ctx, req)
	}
}

// StreamServer does the same for streams, and ends a stream when its caller's credential ends.
func (a *Authenticator) StreamServer() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, shown, err := a.admit(stream.Context(), info.FullMethod, nil)
		if err != nil {
			return err
		}
		if a.credentials == nil || methods[info.FullMethod].role == nobody {
			return handle(srv, &guarded{ServerStream: stream, ctx: ctx})
		}
		ctx, end := context.WithCancelCause(ctx)
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			a.watch(ctx, shown, access.From(ctx).Expires, end)
		}()
		err = handle(srv, &guarded{ServerStream: stream, ctx: ctx})
		end(nil)
		<-watched
		if cause := ended(ctx); cause != nil {
			a.failed(ctx, cause, info.FullMethod, peerOf(ctx))
			return cause
		}
		return err
	}
}

// watch ends the stream when its credential expires, or no longer counts.
func (a *Authenticator) watch(ctx context.Context, shown proof, expires time.Time, end context.CancelCauseFunc) {
	if !expires.IsZero() {
		over := unauthenticated(expired, "the credential of this stream expired on "+expires.UTC().Format(time.DateTime))
		timer := time.AfterFunc(time.Until(expires), func() { end(over) })
		defer timer.Stop()
	}
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			if _, err := a.identify(ctx, shown); errors.Is(err, rules.ErrUnauthenticated) {
				end(err)
			}
		}
	}
}

// ended returns why the stream was ended here, or nil.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, rules.ErrUnauthenticated) {
		return cause
	}
	return nil
}

// guarded is a stream of a known caller. A handler that only waits for messages, and not for the context, meets the end
// of the credential at the next message.
type guarded struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *guarded) Context() context.Context { return s.ctx }

func (s *guarded) SendMsg(m any) error {
	if cause := ended(s.ctx); cause != nil {
		return cause
	}
	return s.ServerStream.SendMsg(m)
}

func (s *guarded) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if cause := ended(s.ctx); cause != nil {
		return cause
	}
	return err
}

// admit finds out who calls, and whether they may.
func (a *Authenticator) admit(ctx context.Context, method string, req any) (context.Context, proof, error) {
	if a.credentials == nil {
		return access.With(ctx, access.Local(anyone)), proof{}, nil
	}
	if methods[method].role == nobody {
		return ctx, proof{}, nil
	}
	shown := proofOf(ctx)
	identity, err := a.identify(ctx, shown)
	if err != nil {
		a.failed(ctx, err, method, peerOf(ctx))
		return ctx, proof{}, err
	}
	if err := mayCall(identity, method); err != nil {
		return ctx, proof{}, a.record(ctx, identity, method, req, err)
	}
	return access.With(ctx, identity), shown, nil
}

func proofOf(ctx context.Context) proof {
	p := proof{authorization: metadata.ValueFromIncomingContext(ctx, "authorization")}
	from, ok := peer.FromContext(ctx)
	if !ok {
		return p
	}
	if tls, ok := from.AuthInfo.(credentials.TLSInfo); ok {
		p.verified(tls.State.VerifiedChains)
	}
	return p
}

// verified takes the names from the certificate of a client that was verified, and from no other.
func (p *proof) verified(chains [][]*x509.Certificate) {
	if len(chains) == 0 || len(chains[0]) == 0 {
		return
	}
	leaf := chains[0][0]
	for _, u := range leaf.URIs {
		p.names = append(p.names, u.String())
	}
	if leaf.Subject.CommonName != "" {
		p.names = append(p.names, leaf.Subject.CommonName)
	}
	p.until = leaf.NotAfter
}

func peerOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		return p.Addr.String()
	}
	return ""
}
