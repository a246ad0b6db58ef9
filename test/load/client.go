package load

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/subscribe"
)

// follow is run with the client of a real sidecar. It begins with nothing, whatever it is to hold.
func (s *subscriber) follow(ctx context.Context, opened func()) error {
	opened()
	conn, err := subscribe.Dial(s.connect.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	client, err := subscribe.New(subscribe.Options{
		Conn: conn, Node: s.node, Program: "fanout", Version: "1", Domains: []string{s.connect.Domain}, Sink: nowhere{s},
	})
	if err != nil {
		return err
	}
	return client.Run(ctx)
}

// nowhere is a sink that takes everything.
type nowhere struct{ *subscriber }

func (nowhere) Check(*rules.Rule) error { return nil }

func (n nowhere) Apply(u subscribe.Update) {
	if err := n.note(u.Domain.Revision, len(u.Rules), 0, time.Now()); err != nil {
		n.crowd.fail(err)
	}
}
