package cli

import (
	"context"
	"fmt"
	"os/user"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/rpcstatus"
)

// maxReplyBytes is room for the rules of a large control plane: ten thousand are about 5 MiB.
const maxReplyBytes = 64 << 20

// connect returns a client of the control plane, and what closes its connection. No connection is made yet: that the
// server is not there is an error of the first call.
func (a *app) connect() (adminpb.AdminServiceClient, func(), error) {
	options, err := a.dialOptions()
	if err != nil {
		return nil, nil, err
	}
	conn, err := grpc.NewClient(a.server, options...)
	if err != nil {
		return nil, nil, usagef("--server %q is not an address: %w", a.server, err)
	}
	return adminpb.NewAdminServiceClient(conn), func() { _ = conn.Close() }, nil
}

// dialOptions are for every connection to the control plane: who asks, and errors as package rules knows them.
func (a *app) dialOptions() ([]grpc.DialOption, error) {
	if err := a.settle(); err != nil {
		return nil, err
	}
	a.server = withPort(a.server)
	if err := checkServer(a.server); err != nil {
		return nil, err
	}
	proof, err := a.proof.dialOptions(a.server)
	if err != nil {
		return nil, err
	}
	return append(proof,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReplyBytes)),
		grpc.WithChainUnaryInterceptor(rpcstatus.UnaryClient()),
		grpc.WithChainStreamInterceptor(rpcstatus.StreamClient())), nil
}

// call returns a context for one call: it ends with the timeout, and names the actor.
func (a *app) call(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = metadata.AppendToOutgoingContext(ctx, adminpb.ActorKey, adminpb.EscapeActor(a.actor()))
	return context.WithTimeout(ctx, a.timeout)
}

// ask makes one connection for what do asks on it, all within the timeout.
func ask[T any](ctx context.Context, a *app, do func(context.Context, adminpb.AdminServiceClient) (T, error)) (T, error) {
	client, closeConn, err := a.connect()
	if err != nil {
		var none T
		return none, err
	}
	defer closeConn()
	ctx, cancel := a.call(ctx)
	defer cancel()
	return do(ctx, client)
}

// actor is the operating system's user.
func (a *app) actor() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return a.io.Getenv("USER")
}

// ruleName reads RULE: DOMAIN/NAME, or a name when -d, or else the context, names the domain.
func (a *app) ruleName(arg string) (domain, name string, err error) {
	domain, name, found := strings.Cut(arg, "/")
	switch {
	case !found && a.domain != "":
		return a.domain, arg, nil
	case !found:
		if err := a.settle(); err != nil {
			return "", "", err
		}
		if a.context == nil || a.context.Domain == "" {
			meant := ""
			if a.domainWay != "" {
				meant = "; if it is a domain: " + fmt.Sprintf(a.domainWay, arg)
			}
			return "", "", usagef("rule %q has no domain: write DOMAIN/%s, or name the domain with -d%s", arg, arg, meant)
		}
		return a.context.Domain, arg, nil
	case a.domain != "" && a.domain != domain:
		return "", "", usagef("rule %q is not in the domain %q that -d names", arg, a.domain)
	case domain == "" || name == "" || strings.Contains(name, "/"):
		return "", "", usagef("rule %q is not of the form DOMAIN/NAME", arg)
	}
	return domain, name, nil
}

// domainOrRule reads DOMAIN|RULE: without a "/" it is a domain, and the rule "", unless -d names the domain.
func (a *app) domainOrRule(arg string) (domain, rule string, err error) {
	if !strings.Contains(arg, "/") && a.domain == "" {
		return arg, "", nil
	}
	return a.ruleName(arg)
}

// nothing says that there is nothing to list.
func (a *app) nothing(what, hint string) {
	where := ""
	if a.domain != "" {
		where = " in domain " + a.domain
	}
	a.tell("no %s%s; %s", what, where, hint)
}
