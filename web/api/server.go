package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
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
	callTime   = 30 * time.Second // also when the client sets no deadline
	awaitTime  = time.Hour        // a stream that nobody ends must not stay for ever
)

// Server implements [adminpb.AdminServiceServer]. It is safe for concurrent use.
type Server struct {
	adminpb.UnimplementedAdminServiceServer
	service *rollout.Service
}

// NewServer returns a server for the use cases of the service.
func NewServer(service *rollout.Service) *Server { return &Server{service: service} }

// ListRules returns rules as they stand.
func (s *Server) ListRules(ctx context.Context, req *adminpb.ListRulesRequest) (*adminpb.ListRulesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	list, err := s.service.Rules(ctx, req.GetDomain())
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	resp := &adminpb.ListRulesResponse{Rules: make([]*adminpb.Rule, len(list))}
	for i := range list {
		if resp.Rules[i], err = ruleMessage(&list[i]); err != nil {
			return nil, fmt.Errorf("list rules: %s: %w", list[i].ID(), err)
		}
	}
	return resp, nil
}

// Promote moves a candidate to a percentage of keys.
func (s *Server) Promote(ctx context.Context, req *adminpb.PromoteRequest) (*adminpb.PromoteResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	why, err := checkChange(ctx, req.GetDomain(), req.GetRule(), req.GetMessage())
	if err != nil {
		return nil, fmt.Errorf("promote: %w", err)
	}
	to := rules.Percent(req.GetTo())
	if to > rules.AllKeys {
		return nil, fmt.Errorf("promote %s/%s: %w: to is %s; at most 100%%", req.GetDomain(), req.GetRule(), rules.ErrInvalid, to)
	}
	out, err := s.service.Promote(ctx, req.GetDomain(), req.GetRule(), to, why)
	if err != nil {
		return nil, err
	}
	return &adminpb.PromoteResponse{Outcome: outcomeMessage(req.GetDomain(), out)}, nil
}

// Rollback undoes the last step of a rule.
func (s *Server) Rollback(ctx context.Context, req *adminpb.RollbackRequest) (*adminpb.RollbackResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	why, err := checkChange(ctx, req.GetDomain(), req.GetRule(), req.GetMessage())
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	if req.GetTo() < 0 {
		return nil, fmt.Errorf("rollback %s/%s: %w: v%d is no version", req.GetDomain(), req.GetRule(), rules.ErrInvalid, req.GetTo())
	}
	out, err := s.service.Rollback(ctx, req.GetDomain(), req.GetRule(), req.GetTo(), why)
	if err != nil {
		return nil, err
	}
	return &adminpb.RollbackResponse{Outcome: outcomeMessage(req.GetDomain(), out)}, nil
}

// ListNodes returns the sidecars and where each stands.
func (s *Server) ListNodes(ctx context.Context, req *adminpb.ListNodesRequest) (*adminpb.ListNodesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	list, err := s.service.Fleet(ctx, req.GetDomain())
	if err != nil {
		return nil, fmt.Errorf("list sidecars: %w", err)
	}
	return &adminpb.ListNodesResponse{Nodes: nodeMessages(list)}, nil
}

// Await streams the states of a domain's nodes until all have acknowledged the revision.
func (s *Server) Await(req *adminpb.AwaitRequest, stream grpc.ServerStreamingServer[adminpb.AwaitResponse]) error {
	if problem := rules.CheckName(req.GetDomain()); problem != "" {
		return fmt.Errorf("await: %w: domain: %s", rules.ErrInvalid, problem)
	}
	if req.GetRevision() < 1 {
		return fmt.Errorf("await %s: %w: revision is %d; revisions begin with 1", req.GetDomain(), rules.ErrInvalid, req.GetRevision())
	}
	ctx, cancel := context.WithTimeout(stream.Context(), awaitTime)
	defer cancel()
	err := s.service.Await(ctx, req.GetDomain(), req.GetRevision(), func(list []rollout.NodeStatus) error {
		return stream.Send(&adminpb.AwaitResponse{
			Nodes: nodeMessages(list), Missing: int32(rollout.Missing(list)), //nolint:gosec // a fleet has fewer than 2^31 nodes
		})
	})
	if err != nil {
		return fmt.Errorf("await revision %d of %s: %w", req.GetRevision(), req.GetDomain(), err)
	}
	return nil
}

func ruleMessage(r *rules.Rule) (*adminpb.Rule, error) {
	m := &adminpb.Rule{
		Domain: r.Domain, Name: r.Name, Uid: r.UID, Revision: r.Revision, Stage: string(r.Stage()), Percent: uint32(r.Percent),
	}
	var err error
	if m.Stable, err = versionMessage(r.Stable); err != nil {
		return nil, err
	}
	m.Candidate, err = versionMessage(r.Candidate)
	return m, err
}

func versionMessage(v *rules.Version) (*adminpb.Version, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // no version is no message
	}
	spec, err := v.Spec.Encode()
	if err != nil {
		return nil, err
	}
	return &adminpb.Version{Number: v.Number, Spec: string(spec)}, nil
}

func outcomeMessage(domain string, out rollout.Outcome) *adminpb.Outcome {
	m := &adminpb.Outcome{Domain: domain, Revision: out.Revision, Note: out.Note, Steps: make([]*adminpb.Step, len(out.Steps))}
	for i, step := range out.Steps {
		m.Steps[i] = &adminpb.Step{Rule: step.Rule, Before: step.Before, After: step.After}
		for _, w := range step.Warnings {
			m.Steps[i].Warnings = append(m.Steps[i].Warnings, w.String())
		}
	}
	return m
}

func nodeMessages(list []rollout.NodeStatus) []*adminpb.Node {
	nodes := make([]*adminpb.Node, len(list))
	for i, n := range list {
		nodes[i] = &adminpb.Node{
			Id: n.ID, Domain: n.Domain, Program: n.Program, State: string(n.State), Seen: timestamppb.New(n.Seen),
			Wanted: n.Wanted, Sent: n.Sent, Acked: n.Acked, Nacked: n.Nacked, NackReason: n.NackReason,
		}
	}
	return nodes
}
