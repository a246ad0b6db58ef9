package app_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api/adminpb"
)

// A plan without sidecars is done at once where it ends, and goes nowhere else.
func TestPlansAreRunByTheLeader(t *testing.T) {
	t.Parallel()
	p := start(t, nil)
	operator := adminpb.NewAdminServiceClient(p.connect(p.token("op", access.Operator, nil)))
	for _, domain := range []string{"ends", "waits"} {
		if _, err := operator.Apply(t.Context(), application(domain)); err != nil {
			t.Fatal(err)
		}
	}
	for domain, plan := range map[string]string{"ends": "100%", "waits": "1% 1s, 100%"} {
		if _, err := operator.Promote(t.Context(), &adminpb.PromoteRequest{Domain: domain, Rule: "r", Plan: plan}); err != nil {
			t.Fatal(err)
		}
	}
	harness.Eventually(t, patience, func() error {
		trail, err := operator.ListAudit(t.Context(), &adminpb.ListAuditRequest{})
		if err != nil {
			return err
		}
		if r := trail.GetRecords()[0]; r.GetAction() != "plan-done" || r.GetActor() != "plan of op" || !r.GetVerified() || r.GetTarget() != "ends/r" {
			return fmt.Errorf("the last record is %v", r)
		}
		got, err := operator.GetRollout(t.Context(), &adminpb.GetRolloutRequest{Domain: "waits", Rule: "r"})
		if err != nil {
			return err
		}
		if got.GetRollout().GetStanding() != "holding" || got.GetRollout().GetPlan().GetWaits()[0] != "there is no sidecar" {
			return errors.New("the other one is " + got.GetRollout().String())
		}
		return nil
	})
}
