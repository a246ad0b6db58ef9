package subscribe_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/subscribe"
	"github.com/headgate/headgate/xds/xdstest"
)

// heldAnswer lets the first answer of a client wait.
type heldAnswer struct {
	grpc.ClientStream
	once sync.Once
	hit  chan struct{}
	open chan struct{}
}

func (h *heldAnswer) SendMsg(m any) error {
	if r, ok := m.(*discovery.DeltaDiscoveryRequest); ok && r.GetResponseNonce() != "" {
		h.once.Do(func() {
			close(h.hit)
			<-h.open
		})
	}
	return h.ClientStream.SendMsg(m)
}

// A database is restored between two parts of a set: what came before of the other history stayed in force.
func TestPartsOfAnotherHistoryAreForgotten(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "5/min", "old-a", "old-b", "old-c")
	server := xdstest.Start(t, ledger, xdstest.Options{PartLimit: 1})
	hit, open := make(chan struct{}), make(chan struct{})
	conn := server.Conn(t, grpc.WithStreamInterceptor(func(
		ctx context.Context, d *grpc.StreamDesc, cc *grpc.ClientConn, method string, s grpc.Streamer, o ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		stream, err := s(ctx, d, cc, method, o...)
		if err != nil {
			return nil, err
		}
		return &heldAnswer{ClientStream: stream, hit: hit, open: open}, nil
	}))
	c := run(t, settings{conn: conn})
	<-hit // the first part is collected, not committed
	ledger.Restore("two")
	ledger.Put(t, "api", "7/min", "new")
	harness.Eventually(t, xdstest.Patience, func() error {
		if lineage, _, _ := server.Cache.Head(); lineage != "two" {
			return fmt.Errorf("the head is of lineage %s", lineage)
		}
		return nil
	})
	close(open)
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	if diff := cmp.Diff(map[string]string{"new": "7/min"}, c.sink.limits("api")); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
}

// Two programs shared a node id: the wait for acknowledgements heard only one of them.
func TestAnotherProgramWithTheSameIDIsTurnedAway(t *testing.T) {
	t.Parallel()
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "5/min", "a")
	server := xdstest.Start(t, ledger, xdstest.Options{})
	run(t, settings{conn: server.Conn(t)})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	sink := newSink()
	var log syncedText
	second, err := subscribe.New(subscribe.Options{
		Conn: server.Conn(t), Node: "n1", Domains: []string{"api"}, Sink: sink, Log: log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- second.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	harness.Eventually(t, xdstest.Patience, func() error {
		if text := log.String(); !strings.Contains(text, "another program is connected as node") {
			return fmt.Errorf("the second program has logged %q", text)
		}
		return nil
	})
	if sink.applies() != 0 {
		t.Error("the second program was served")
	}
}
