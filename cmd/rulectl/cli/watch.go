package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/subscribe"
)

type watchFlags struct {
	node string
	nack []string
	once bool
}

func (a *app) watchCommand() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch [DOMAIN…]",
		Short: "Receive revisions as a sidecar does, and print what each brings",
		Long: "Watch subscribes to domains, by default to all there are, prints each revision it gets, and acknowledges it. So while\n" +
			"it runs it counts as a sidecar: --wait waits for it, `sidecar list` shows it. It says goodbye at its end (Ctrl-C).\n" +
			"With --nack it refuses a rule as a sidecar would that cannot take it: to see what that does to a rollout.\n\n" +
			"Where tokens are asked for, it needs one with the role sidecar.",
		Example: "  rulectl watch public-api\n" +
			"  rulectl watch public-api --once -o json\n" +
			"  rulectl watch public-api --node test-1 --nack \"login=no such key source\"",
		GroupID: groupLook,
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.watch(ctx, args, f) }),
	}
	a.domainFlag(cmd, "the domain, as an argument would be")
	cmd.Flags().StringVar(&f.node, "node", "", "name of this sidecar in the fleet; by default rulectl-HOST-PID")
	cmd.Flags().StringArrayVar(&f.nack, "nack", nil, "refuse this rule, as RULE or RULE=REASON; may be repeated")
	cmd.Flags().BoolVar(&f.once, "once", false, "end when every domain has been received, within --timeout")
	return cmd
}

func (a *app) watch(ctx context.Context, domains []string, f watchFlags) error {
	if a.domain != "" {
		domains = append(domains, a.domain)
	}
	for _, d := range domains {
		if problem := rules.CheckName(d); problem != "" {
			return usagef("domain: %s", problem)
		}
	}
	if len(domains) == 0 {
		var err error
		if domains, err = a.allDomains(ctx); err != nil {
			return err
		}
		if len(domains) == 0 {
			a.nothing("domains", "name the one to wait for: rulectl watch DOMAIN")
			return nil
		}
	}
	options, err := a.dialOptions()
	if err != nil {
		return err
	}
	if f.node == "" {
		host, _ := os.Hostname() // without a name the number tells
		f.node = fmt.Sprintf("rulectl-%s-%d", host, os.Getpid())
	}
	run, end := context.WithCancelCause(ctx)
	defer end(nil)
	if f.once {
		var cancel context.CancelFunc
		run, cancel = context.WithTimeout(run, a.timeout)
		defer cancel()
	}
	w := &watcher{app: a, run: run, end: end, once: f.once, nack: f.nack, held: map[string]map[string]*rules.Rule{}}
	conn, err := subscribe.Dial(a.server, append([]grpc.DialOption{grpc.WithChainStreamInterceptor(w.observe)}, options...)...)
	if err != nil {
		return usagef("--server %q is not an address: %w", a.server, err)
	}
	defer func() { _ = conn.Close() }()
	w.client, err = subscribe.New(subscribe.Options{
		Conn: conn, Node: f.node, Program: rollout.Watcher, Version: programVersion(), Domains: domains, Sink: w,
	})
	if err != nil {
		return err
	}
	a.tell("watching %s as the sidecar %s", strings.Join(domains, ", "), f.node)
	if err := w.client.Run(run); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil // which is how a watch ends
	}
	cause := context.Cause(run)
	switch {
	case errors.Is(cause, errReceived):
		return nil
	case errors.Is(cause, rules.ErrForbidden):
		a.complain("%s", cause)
		a.advise("watch is a sidecar; for one, an admin makes: rulectl token create --name NAME --role sidecar -d "+domains[0]+" > watch.token",
			"and then: rulectl watch "+domains[0]+" --token-file watch.token; who may look has: rulectl get rules --watch")
		return explained{exitAuth}
	}
	return cause
}

func (a *app) allDomains(ctx context.Context) ([]string, error) {
	resp, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListDomainsResponse, error) {
		return client.ListDomains(ctx, &adminpb.ListDomainsRequest{})
	})
	list := make([]string, len(resp.GetDomains()))
	for i, d := range resp.GetDomains() {
		list[i] = d.GetName()
	}
	return list, err
}

// errReceived ends a watch that has all it wanted.
var errReceived = errors.New("every domain was received")

// watcher is a sidecar that enforces nothing: the sink that prints what it gets, and the observer of its streams.
type watcher struct {
	app    *app
	client *subscribe.Client
	run    context.Context // of the client; once it is over, streams end as they should
	end    context.CancelCauseFunc
	once   bool
	nack   []string

	held map[string]map[string]*rules.Rule // by domain and name; only touched by the sink

	mu       sync.Mutex
	received bool // something came on some stream
	broken   bool // the last stream ended, and that was told
}

// Check refuses the rules that --nack names.
func (w *watcher) Check(r *rules.Rule) error {
	for _, n := range w.nack {
		name, reason, given := strings.Cut(n, "=")
		if name != r.Name && name != r.ID() {
			continue
		}
		if !given {
			reason = "refused by rulectl watch --nack"
		}
		return errors.New(reason)
	}
	return nil
}

// Apply prints what the update brings.
func (w *watcher) Apply(u subscribe.Update) {
	had := w.held[u.Domain.Name]
	has := make(map[string]*rules.Rule, len(u.Rules))
	for _, r := range u.Rules {
		has[r.Name] = r
	}
	w.held[u.Domain.Name] = has
	if err := w.app.printUpdate(&u, had, has); err != nil {
		w.end(err)
	}
}

// observe shows the watcher what goes over its streams, since the client itself goes on trying whatever happens.
func (w *watcher) observe(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		w.failed(err)
		return nil, err
	}
	return &observed{ClientStream: stream, watcher: w}, nil
}

type observed struct {
	grpc.ClientStream
	watcher *watcher
}

func (o *observed) SendMsg(m any) error {
	err := o.ClientStream.SendMsg(m)
	if request, ok := m.(*discovery.DeltaDiscoveryRequest); ok && err == nil && request.GetResponseNonce() != "" {
		o.watcher.answered(request)
	}
	return err
}

func (o *observed) RecvMsg(m any) error {
	err := o.ClientStream.RecvMsg(m)
	if err != nil {
		o.watcher.failed(err)
		return err
	}
	o.watcher.mu.Lock()
	defer o.watcher.mu.Unlock()
	o.watcher.received, o.watcher.broken = true, false
	return nil
}

// answered tells of a refusal, and ends a watch that has answered for every domain.
func (w *watcher) answered(request *discovery.DeltaDiscoveryRequest) {
	if refused := request.GetErrorDetail(); refused != nil {
		fmt.Fprintf(w.app.io.Err, "✖ refused %s\n", oneLine(refused.GetMessage()))
	}
	if w.once && w.client.Ready() {
		w.end(errReceived)
	}
}

// failed ends the watch when trying again is of no use; a control plane that was there is waited for.
func (w *watcher) failed(err error) {
	if w.run.Err() != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	hopeless := errors.Is(err, rules.ErrForbidden) || errors.Is(err, rules.ErrUnauthenticated) || errors.Is(err, rules.ErrInvalid)
	if hopeless || !w.received && errors.Is(err, rules.ErrUnavailable) {
		w.end(err)
		return
	}
	if !w.broken {
		w.broken = true
		fmt.Fprintf(w.app.io.Err, "the stream broke, and is opened again: %s\n", oneLine(err.Error()))
	}
}
