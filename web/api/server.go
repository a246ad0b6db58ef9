package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// MaxRequestBytes is the largest request that Apply is made for; a gRPC server must be told (grpc.MaxRecvMsgSize), or
// refuses everything above 4 MiB.
const MaxRequestBytes = adminpb.MaxRequestBytes

// Bounds of one request.
const (
	maxFiles   = 1000
	maxMessage = 4096
	maxTarget  = 1024
	maxActor   = 256
	maxGates   = 10
	callTime   = 30 * time.Second // also when the client sets no deadline
	awaitTime  = time.Hour        // a stream that nobody ends must not stay for ever
)

// Server implements [adminpb.AdminServiceServer]. It is safe for concurrent use. The context of each call carries who
// asks; without one nobody may do anything.
type Server struct {
	adminpb.UnimplementedAdminServiceServer
	service *rollout.Service
	options Options
}

// Options are what a server needs beside the use cases. Without Alerts there are none, and without Tallies nothing is
// counted.
type Options struct {
	Program  string // the version that WhoAmI tells
	Tallies  Tallies
	Alerts   Alerts
	Notifier Targets
}

// NewServer returns a server for the use cases of the service.
func NewServer(service *rollout.Service, o Options) *Server {
	if o.Alerts == nil {
		o.Alerts = noAlerts{}
	}
	if o.Notifier == nil {
		o.Notifier = noAlerts{}
	}
	return &Server{service: service, options: o}
}

// WhoAmI returns who the caller is taken for.
func (s *Server) WhoAmI(ctx context.Context, _ *adminpb.WhoAmIRequest) (*adminpb.WhoAmIResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	head, err := s.service.Head(ctx)
	if err != nil {
		return nil, err
	}
	who := identity(ctx)
	resp := &adminpb.WhoAmIResponse{
		Name: who.Name, Domains: who.Domains, Verified: who.Verified, Expires: timestamp(who.Expires),
		Program: s.options.Program, Lineage: head.Lineage, Revision: head.Revision, Time: timestamppb.Now(),
	}
	if !who.Local {
		resp.Role = string(who.Role)
	}
	return resp, nil
}

// visible returns the domains to list for the caller: the one that is named, or "" for all, or those the caller is for.
func visible(ctx context.Context, domain string) ([]string, error) {
	who := identity(ctx)
	if domain == "" && who.Domains != nil {
		for _, d := range who.Domains {
			if err := who.May(access.Viewer, d); err != nil {
				return nil, err
			}
		}
		return who.Domains, nil
	}
	return []string{domain}, who.May(access.Viewer, domain)
}

// gather lists what every visible domain has.
func gather[T any](ctx context.Context, domain string, list func(context.Context, string) ([]T, error)) ([]T, error) {
	domains, err := visible(ctx, domain)
	if err != nil {
		return nil, err
	}
	var all []T
	for _, d := range domains {
		some, err := list(ctx, d)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}
