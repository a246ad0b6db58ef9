package cli_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/spike"
	"github.com/headgate/headgate/storage/sqlite"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/auth"
	"github.com/headgate/headgate/web/notify"
	"github.com/headgate/headgate/xds/certs"
	"github.com/headgate/headgate/xds/push"
	"github.com/headgate/headgate/xds/rpcstatus"
)

// controlPlane is the admin API and the stream on an SQLite file, served on a real socket.
type controlPlane struct {
	addr    string
	store   *sqlite.Store
	service *rollout.Service
	cache   *push.Cache
	tallies *tallies
	targets *targets
	stop    func()
}

// targets are where alerts go: as many as there are.
type targets struct{ n atomic.Int64 }

func (t *targets) Targets() (names []string) {
	for i := range t.n.Load() {
		names = append(names, fmt.Sprintf("webhook %d", i+1))
	}
	return names
}

// Test is answered by all.
func (t *targets) Test(context.Context, string) (answers []notify.Answer) {
	for _, name := range t.Targets() {
		answers = append(answers, notify.Answer{Target: name})
	}
	return answers
}

// tallies are what the sidecars counted of each rule: what its newest version judged, and would have refused.
type tallies struct{ judged, refused, shared atomic.Int64 }

func (c *tallies) Series(_ context.Context, q tally.Query) ([]tally.Point, error) {
	if c.judged.Load() == 0 {
		return nil, nil
	}
	one := tally.Point{Domain: q.Domain, UID: q.UIDs[0], Version: 1, Start: q.From}
	two := one
	two.Version = 2
	one.Counts[tally.CellAllowed], one.Counts[tally.CellRefused+1] = c.judged.Load()-5, 5
	two.Counts[tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, false)] = c.refused.Load()
	two.Counts[tally.WhatIfCell(tally.WouldRefuse, tally.BesideAllowed, true)] = c.shared.Load()
	two.Counts[tally.WhatIfCell(tally.WouldAllow, tally.BesideAllowed, false)] = c.judged.Load() - c.refused.Load() - c.shared.Load()
	return []tally.Point{one, two}, nil
}

func (c *tallies) Sources(context.Context) ([]tally.Progress, error) { return nil, nil }

func (c *tallies) Missing(_ context.Context, _, _ time.Time) ([]tally.Missing, error) {
	return nil, nil
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// doors say how a control plane is entered. The zero value asks nobody who they are, and has no TLS.
type doors struct {
	auth bool
	tls  *certs.Server
}

// start serves a fresh control plane, which keeps its file in dir, until stop.
func start(dir string, d doors) (*controlPlane, error) {
	store, err := sqlite.Open(context.Background(), filepath.Join(dir, "headgate.db"))
	if err != nil {
		return nil, err
	}
	c := &controlPlane{store: store, tallies: &tallies{}, targets: &targets{}}
	c.service = rollout.NewService(store, time.Now).WithTallies(c.tallies)
	options := auth.Options{Refused: c.service.Refused}
	if d.auth {
		options.Store = store
	}
	door, err := auth.New(options)
	if err != nil {
		return nil, err
	}
	c.cache = push.NewCache(push.CacheOptions{})
	fleet, err := push.NewFleet(store, c.cache, push.FleetOptions{Feed: store, BreakGlass: c.service.BreakGlass})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c.addr = listener.Addr().String()
	refused := rpcstatus.NewRefused()
	serverOptions := append(push.ServerOptions(), grpc.MaxRecvMsgSize(api.MaxRequestBytes),
		grpc.ChainUnaryInterceptor(rpcstatus.UnaryServer(discardLog(), refused), door.UnaryServer()),
		grpc.ChainStreamInterceptor(rpcstatus.StreamServer(discardLog(), refused), door.StreamServer()))
	if d.tls != nil {
		serverOptions = append(serverOptions, grpc.Creds(d.tls.Credentials()))
	}
	server := grpc.NewServer(serverOptions...)
	ctx, end := context.WithCancel(context.Background())
	fleetCtx, endFleet := context.WithCancel(context.Background())
	push.Register(ctx, server, c.cache, fleet)
	adminpb.RegisterAdminServiceServer(server, api.NewServer(c.service, api.Options{Program: "controlplane/test", Tallies: store, Alerts: store, Notifier: c.targets}))
	var running, saving sync.WaitGroup
	running.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	running.Go(func() { _ = c.cache.Run(ctx, store, time.Second) })
	saving.Go(func() { _ = fleet.Run(fleetCtx) })
	c.stop = func() {
		end()
		server.Stop()
		running.Wait()
		endFleet() // after the streams, so that the nodes are written as disconnected
		saving.Wait()
		_ = store.Close()
	}
	return c, nil
}

// pushed waits until the newest revision is what new streams get.
func (c *controlPlane) pushed(ctx context.Context) error {
	head, err := c.store.Head(ctx)
	if err != nil {
		return err
	}
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		if _, revision, loaded := c.cache.Head(); loaded && revision >= head.Revision {
			return nil
		}
		<-again.C
	}
}

// token makes a token, as `controlplane token create` does.
func (c *controlPlane) token(ctx context.Context, role access.Role, domains ...string) (string, error) {
	text, credential := access.NewToken()
	credential.Name, credential.Role, credential.Domains = string(role)+"@test", role, domains
	_, err := c.service.AddCredential(ctx, credential, rollout.Why{Who: access.Local("test")})
	return text, err
}

// saveAlert stores an alert of a rule, one minute younger than the one before. It fires unless it is to be over.
func (c *controlPlane) saveAlert(ctx context.Context, domain, rule string, over bool) error {
	last, err := c.store.LastRound(ctx)
	if err != nil {
		return err
	}
	r := alert.Round{At: time.Date(2026, 11, 30, 12, 2, 0, 0, time.UTC)}
	if !last.At.IsZero() {
		r.At = last.At.Add(time.Minute)
	}
	one := alert.Alert{
		ID: fmt.Sprint(domain, rule, r.At.Unix()), Domain: domain, Rule: rule, UID: "u", Version: 3, Kind: alert.Refused, Severity: alert.Page,
		State: "v3 at 25% beside stable v2", Evidence: spike.Evidence{Count: spike.Count{Refused: 40, Of: 200}, Bound: 0.127, Baseline: 0.005, Limit: 0.025},
		Hits: alert.Many, Distinct: 6, Keys: []alert.Key{{Label: "#1f2e3d4c", Count: 30}, {Label: "10.0.0.*", Count: 9}},
		Offers: []alert.Offer{{Command: "rulectl rollback " + domain + "/" + rule + " --wait", Effect: "v3 dropped and stable v2 alone in force"}},
		Since:  r.At,
	}
	if over {
		one.Resolved, one.Ending = r.At.Add(10*time.Minute), "it refuses about as much as usual again"
	}
	r.Alerts = append(r.Alerts, one)
	return c.store.SaveRound(ctx, last.At, r)
}

// saveNode stores a node as the control plane would know it. Facts are acked=N, sent=N, nacked=N, reason=TEXT, away,
// seen=AGE, lineage=TEXT, refused=RULE and glass=RULE (frozen at the node itself); without any the node is connected and
// has answered nothing.
func (c *controlPlane) saveNode(ctx context.Context, domain, id string, facts ...string) error {
	now := time.Now().UTC().Truncate(time.Microsecond)
	n := rollout.Node{ID: id, Domain: domain, Program: "headgate-sidecar/test", Connected: true, Seen: now, Level: 1}
	for _, fact := range facts {
		key, value, _ := strings.Cut(fact, "=")
		number, _ := strconv.ParseInt(value, 10, 64)
		switch key {
		case "acked":
			n.Acked = number
		case "sent":
			n.Sent = number
		case "nacked":
			n.Nacked = number
		case "reason":
			n.NackReason = value
		case "away":
			n.Connected = false
		case "lineage":
			n.Lineage = value
		case "refused":
			n.Refused = append(n.Refused, value)
		case "glass":
			b := rollout.BreakGlass{ID: "1", At: now, Actor: "anna", Domain: domain}
			b.Freeze.Rule, b.Freeze.Until = value, now.Add(15*time.Minute)
			n.BreakGlass = append(n.BreakGlass, b)
		case "seen":
			ago, err := time.ParseDuration(value)
			if err != nil {
				return err
			}
			n.Seen = n.Seen.Add(-ago)
		default:
			return fmt.Errorf("unknown fact %q", fact)
		}
	}
	return c.store.SaveNodes(ctx, []rollout.Node{n})
}
