package auth_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/auth"
	"github.com/headgate/headgate/xds/xdspb"
)

// stream is a server's stream on which nothing ever comes.
type stream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s stream) Context() context.Context { return s.ctx }
func (s stream) RecvMsg(any) error        { return nil }
func (s stream) SendMsg(any) error        { return nil }

const xds = discovery.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName

// open runs a stream until its context ends, and returns how it ended and after how long.
func (f *fixture) open(ctx context.Context, method string) (time.Duration, error) {
	f.t.Helper()
	opened := time.Now()
	err := f.StreamServer()(nil, stream{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: method}, func(_ any, s grpc.ServerStream) error {
		<-s.Context().Done()
		return nil // as the xDS server does
	})
	return time.Since(opened), err
}

func TestStreamEndsWhenItsCredentialExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		token, _ := f.store.token("n1", access.Sidecar, func(c *access.Credential) { c.Expires = time.Now().Add(95 * time.Second) })
		after, err := f.open(call(t.Context(), token, nil), xds)
		if after != 95*time.Second || !errors.Is(err, rules.ErrUnauthenticated) {
			t.Errorf("ended after %v with %v, want 95 s and an ErrUnauthenticated", after, err)
		}
		if n := f.failures("expired"); n != 1 {
			t.Errorf("counted %v, want 1", n)
		}

		c := certificate(t, "by-name")
		c.NotAfter = time.Now().Add(45 * time.Second)
		f.store.certificate("by-name", access.Sidecar)
		after, err = f.open(call(t.Context(), "", c), xds)
		if after != 45*time.Second || !errors.Is(err, rules.ErrUnauthenticated) {
			t.Errorf("ended after %v with %v, want the 45 s of the certificate and an ErrUnauthenticated", after, err)
		}
	})
}

func TestStreamEndsSoonAfterItsCredentialIsRevoked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		token, c := f.store.token("n1", access.Sidecar, nil)
		time.AfterFunc(70*time.Second, func() {
			c.Revoked = time.Now()
			f.store.put(c)
		})
		after, err := f.open(call(t.Context(), token, nil), xds)
		if after != 90*time.Second || !errors.Is(err, rules.ErrUnauthenticated) {
			t.Errorf("ended after %v with %v, want 90 s and an ErrUnauthenticated", after, err)
		}
		if n := f.failures("revoked"); n != 1 {
			t.Errorf("counted %v, want 1", n)
		}
	})
}

func TestStreamSurvivesADatabaseThatIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		token, _ := f.store.token("n1", access.Sidecar, nil)
		time.AfterFunc(10*time.Second, func() { f.store.fail(rules.ErrUnavailable) })
		ctx, hangUp := context.WithTimeout(t.Context(), time.Hour)
		defer hangUp()
		if after, err := f.open(call(ctx, token, nil), xds); after != time.Hour || err != nil {
			t.Errorf("ended after %v with %v, want when the client hung up", after, err)
		}
	})
}

func TestStreamWhoseHandlerOnlyReadsEndsAtTheNextMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := setup(t)
		token, _ := f.store.token("vi", access.Viewer, func(c *access.Credential) { c.Expires = time.Now().Add(10 * time.Second) })
		info := &grpc.StreamServerInfo{FullMethod: reflectionpb.ServerReflection_ServerReflectionInfo_FullMethodName}
		messages := 0
		err := f.StreamServer()(nil, stream{ctx: call(t.Context(), token, nil)}, info, func(_ any, s grpc.ServerStream) error {
			for {
				time.Sleep(3 * time.Second)
				if err := s.RecvMsg(nil); err != nil {
					return err
				}
				if err := s.SendMsg(nil); err != nil {
					return err
				}
				messages++
			}
		})
		if messages != 3 || !errors.Is(err, rules.ErrUnauthenticated) {
			t.Errorf("%d messages and %v, want 3 and an ErrUnauthenticated", messages, err)
		}
	})
}

func TestHandlersOwnErrorIsKept(t *testing.T) {
	t.Parallel()
	f := setup(t)
	token, _ := f.store.token("n1", access.Sidecar, nil)
	err := f.StreamServer()(nil, stream{ctx: call(t.Context(), token, nil)}, &grpc.StreamServerInfo{FullMethod: xds},
		func(any, grpc.ServerStream) error { return io.ErrUnexpectedEOF })
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v, want the handler's error", err)
	}
}

// TestEveryMethodIsInTheTable holds the table against what the control plane serves. A method that is added without
// saying who may call it would be refused to all.
func TestEveryMethodIsInTheTable(t *testing.T) {
	t.Parallel()
	s := grpc.NewServer()
	defer s.Stop()
	adminpb.RegisterAdminServiceServer(s, adminpb.UnimplementedAdminServiceServer{})
	discovery.RegisterAggregatedDiscoveryServiceServer(s, discovery.UnimplementedAggregatedDiscoveryServiceServer{})
	xdspb.RegisterTallyServiceServer(s, xdspb.UnimplementedTallyServiceServer{})
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	reflection.Register(s)
	missing, stale := auth.Unlisted(s.GetServiceInfo())
	for _, m := range missing {
		t.Errorf("%s is not in the table: say there which role it needs", m)
	}
	for _, m := range stale {
		t.Errorf("%s is in the table, and no service has it", m)
	}
}
