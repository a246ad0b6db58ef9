package api

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

// ListNodes returns the sidecars and where each stands.
func (s *Server) ListNodes(ctx context.Context, req *adminpb.ListNodesRequest) (*adminpb.ListNodesResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	list, err := gather(ctx, req.GetDomain(), s.service.Fleet)
	if err != nil {
		return nil, fmt.Errorf("list sidecars: %w", err)
	}
	return &adminpb.ListNodesResponse{Nodes: nodeMessages(list)}, nil
}

// DescribeNode returns all that is known of one sidecar, and which rules it lacks.
func (s *Server) DescribeNode(ctx context.Context, req *adminpb.DescribeNodeRequest) (*adminpb.DescribeNodeResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	all, err := gather(ctx, "", s.service.Fleet)
	if err != nil {
		return nil, fmt.Errorf("describe sidecar: %w", err)
	}
	list := slices.DeleteFunc(all, func(n rollout.NodeStatus) bool { return n.ID != req.GetId() })
	if len(list) == 0 {
		return nil, fmt.Errorf("sidecar %q: %w", req.GetId(), rules.ErrNotFound)
	}
	resp := &adminpb.DescribeNodeResponse{Nodes: nodeMessages(list)}
	for i := range list {
		lacks, err := s.service.Lacks(ctx, &list[i].Node)
		if err != nil {
			return nil, fmt.Errorf("describe sidecar %s: %w", req.GetId(), err)
		}
		for _, l := range lacks {
			resp.Lacks = append(resp.Lacks, &adminpb.Lack{Rule: l.Rule, Has: l.Has, Wanted: l.Wanted, Revision: l.Revision, Refused: l.Refused})
		}
	}
	return resp, nil
}

// Await streams the states of a domain's nodes until all have acknowledged the revision.
func (s *Server) Await(req *adminpb.AwaitRequest, stream grpc.ServerStreamingServer[adminpb.AwaitResponse]) error {
	if err := checkDomain(req.GetDomain()); err != nil {
		return fmt.Errorf("await: %w", err)
	}
	if req.GetRevision() < 1 {
		return fmt.Errorf("await %s: %w: revision is %d; revisions begin with 1", req.GetDomain(), rules.ErrInvalid, req.GetRevision())
	}
	ctx, cancel := context.WithTimeout(stream.Context(), awaitTime)
	defer cancel()
	if err := identity(ctx).May(access.Viewer, req.GetDomain()); err != nil {
		return fmt.Errorf("await %s: %w", req.GetDomain(), err)
	}
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

func nodeMessages(list []rollout.NodeStatus) []*adminpb.Node {
	nodes := make([]*adminpb.Node, len(list))
	for i, n := range list {
		nodes[i] = &adminpb.Node{
			Id: n.ID, Domain: n.Domain, Program: n.Program, State: string(n.State), Seen: timestamp(n.Seen),
			Wanted: n.Wanted, Sent: n.Sent, Acked: n.Acked, Nacked: n.Nacked, NackReason: n.NackReason,
			Level: int32(n.Level), Lineage: n.Lineage, Refused: n.Refused, //nolint:gosec // feature levels are small
			BreakGlass: n.BrokenGlass(time.Now()),
		}
	}
	return nodes
}

// ReplaceLineage lets sidecars that hold another history follow this one.
func (s *Server) ReplaceLineage(ctx context.Context, req *adminpb.ReplaceLineageRequest) (*adminpb.ReplaceLineageResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	reason, err := why(ctx, &adminpb.Why{Message: req.GetMessage()})
	if err != nil {
		return nil, fmt.Errorf("replace lineage: %w", err)
	}
	return &adminpb.ReplaceLineageResponse{}, s.service.ReplaceLineage(ctx, req.GetLineage(), reason)
}
