package load

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/web/api/adminpb"
)

// rollbacks is how many are measured.
const rollbacks = 5

// rollback measures `rulectl rollback --wait`, from the start of the process to its end, against the real control plane
// and a crowd.
func (r *run) rollback(ctx context.Context, kind string, who Connect) (err error) {
	config := app.DefaultConfig()
	config.Database = filepath.Join(r.dir, fmt.Sprintf("rollback-%d.db", who.Subscribers))
	config.GRPCListen, config.HTTPListen = "127.0.0.1:0", "127.0.0.1:0"
	plane, err := app.New(ctx, config, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- plane.Run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()

	addr := plane.GRPCAddr().String()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	admin := adminpb.NewAdminServiceClient(conn)
	revision, err := applyFile(ctx, admin, ruleFile(r.o.Rules), true)
	if err != nil {
		return err
	}
	crowd, err := r.crowd(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, crowd.Stop()) }()
	who.Addr, who.Domain = addr, Domain
	if _, err := crowd.Connect(who); err != nil {
		return err
	}
	if _, err := crowd.Await(revision); err != nil {
		return err
	}
	var took []time.Duration
	for range rollbacks {
		one, err := r.oneRollback(ctx, admin, crowd, addr)
		if err != nil {
			return err
		}
		took = append(took, one)
	}
	r.report.Row("≤ 500 ms", Milliseconds(median(took))+", "+Milliseconds(slices.Max(took)),
		"rulectl rollback --wait, from its start until %d %s with %d rules have acked: median and worst of %d", who.Subscribers, kind, r.o.Rules, rollbacks)
	return nil
}

// oneRollback lets a candidate bind, and takes it back.
func (r *run) oneRollback(ctx context.Context, admin adminpb.AdminServiceClient, crowd *Remote, addr string) (time.Duration, error) {
	rule := r.o.Rules / 2
	if _, err := applyFile(ctx, admin, header+ruleText(rule, 700), false); err != nil {
		return 0, err
	}
	promoted, err := admin.Promote(ctx, &adminpb.PromoteRequest{Domain: Domain, Rule: ruleName(rule), To: 500})
	if err != nil {
		return 0, err
	}
	if _, err := crowd.Await(promoted.GetOutcome().GetRevision()); err != nil {
		return 0, err
	}
	begun := time.Now()
	out, err := exec.CommandContext(ctx, r.o.Rulectl, "rollback", Domain+"/"+ruleName(rule), "--wait", "--server", addr).CombinedOutput()
	took := time.Since(begun)
	if err != nil {
		return 0, fmt.Errorf("rulectl rollback: %w\n%s", err, out)
	}
	_, err = crowd.Await(promoted.GetOutcome().GetRevision() + 1)
	return took, err
}

func applyFile(ctx context.Context, admin adminpb.AdminServiceClient, content string, enforce bool) (revision int64, err error) {
	answer, err := admin.Apply(ctx, &adminpb.ApplyRequest{
		Files: []*adminpb.File{{Name: "load.yaml", Content: []byte(content)}}, Enforce: enforce, Again: true, Confirmed: true,
	})
	if err != nil {
		return 0, err
	}
	return answer.GetOutcomes()[0].GetRevision(), nil
}
