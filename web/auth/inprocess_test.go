package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/web/api"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/auth"
)

// admin answers two methods.
type admin struct {
	adminpb.UnimplementedAdminServiceServer
	asked    *adminpb.PromoteRequest
	asker    access.Identity
	answer   *adminpb.PromoteResponse
	refusal  error
	promoted int
}

func (s *admin) Promote(ctx context.Context, req *adminpb.PromoteRequest) (*adminpb.PromoteResponse, error) {
	s.asked, s.asker = req, access.From(ctx)
	s.promoted++
	return s.answer, s.refusal
}

func (s *admin) WhoAmI(ctx context.Context, _ *adminpb.WhoAmIRequest) (*adminpb.WhoAmIResponse, error) {
	return &adminpb.WhoAmIResponse{Name: access.From(ctx).Name}, nil
}

func TestCallInProcessComesToItsMethod(t *testing.T) {
	t.Parallel()
	f := setup(t)
	server := &admin{answer: &adminpb.PromoteResponse{Outcome: &adminpb.Outcome{Domain: "d", Revision: 7}}}
	ctx := access.With(t.Context(), access.Identity{Name: "op", Role: access.Operator, Domains: []string{"d"}, Verified: true})
	req := &adminpb.PromoteRequest{Domain: "d", Rule: "r", Why: &adminpb.Why{Message: "evidence"}}
	resp, err := f.InProcess(server).Promote(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(server.answer, resp, protocmp.Transform()); diff != "" {
		t.Errorf("answer (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(req, server.asked, protocmp.Transform()); diff != "" {
		t.Errorf("request (-want +got)\n%s", diff)
	}
	if server.asker.Name != "op" {
		t.Errorf("the method is asked by %+v", server.asker)
	}
}

func TestCallInProcessGoesThroughTheDoor(t *testing.T) {
	t.Parallel()
	f := setup(t)
	server := &admin{answer: &adminpb.PromoteResponse{}}
	client := f.InProcess(server)
	promote := func(ctx context.Context) error {
		_, err := client.Promote(ctx, &adminpb.PromoteRequest{Domain: "d", Rule: "r"})
		return err
	}
	viewer := access.With(t.Context(), access.Identity{Name: "vi", Role: access.Viewer})
	if err := promote(viewer); !errors.Is(err, rules.ErrForbidden) || !strings.Contains(err.Error(), "promote: forbidden: vi has the role viewer; this needs operator") {
		t.Errorf("a viewer gets %v, want an ErrForbidden that says what is missing", err)
	}
	if got, want := strings.Join(f.refusals, "; "), `vi tried to promote d/r in "d"`; got != want {
		t.Errorf("recorded %q, want %q", got, want)
	}
	if err := promote(t.Context()); !errors.Is(err, rules.ErrUnauthenticated) {
		t.Errorf("nobody gets %v, want an ErrUnauthenticated", err)
	}
	if _, err := client.WhoAmI(t.Context(), &adminpb.WhoAmIRequest{}); !errors.Is(err, rules.ErrUnauthenticated) {
		t.Errorf("nobody, who asks for its name, gets %v, want an ErrUnauthenticated", err)
	}
	if server.promoted != 0 {
		t.Errorf("the method was called %d times", server.promoted)
	}
	if err := promote(access.With(t.Context(), access.Local("ann"))); err != nil || server.asker.Name != "ann" {
		t.Errorf("somebody local gets %v as %q", err, server.asker.Name)
	}
}

func TestErrorInProcessIsTheMethodsOwn(t *testing.T) {
	t.Parallel()
	f := setup(t)
	server := &admin{refusal: fmt.Errorf("promote: %w", &rules.ConflictError{Rule: "d/r", State: "frozen", Hint: "unfreeze it"})}
	ctx := access.With(t.Context(), access.Local("ann"))
	_, err := f.InProcess(server).Promote(ctx, &adminpb.PromoteRequest{})
	var conflict *rules.ConflictError
	if !errors.As(err, &conflict) || conflict.Hint != "unfreeze it" {
		t.Errorf("got %v, want the ConflictError", err)
	}
}

func TestStreamsAreRefusedInProcess(t *testing.T) {
	t.Parallel()
	f := setup(t)
	ctx := access.With(t.Context(), access.Local("ann"))
	if _, err := f.InProcess(&admin{}).Await(ctx, &adminpb.AwaitRequest{}); !errors.Is(err, rules.ErrInvalid) {
		t.Errorf("got %v, want an ErrInvalid", err)
	}
}

// The audit trail does not tell whether a change came from a browser or from rulectl.
func TestChangeFromABrowserIsRecordedAsItsPersons(t *testing.T) {
	t.Parallel()
	ledger := rollouttest.New()
	service := rollout.NewService(ledger, time.Now)
	on, err := auth.New(auth.Options{Store: ledger, Refused: service.Refused})
	if err != nil {
		t.Fatal(err)
	}
	off, err := auth.New(auth.Options{Local: "ann", Refused: service.Refused, AnyHost: true})
	if err != nil {
		t.Fatal(err)
	}
	session := func(name string, role access.Role) func(*http.Request) {
		t.Helper()
		token, c := access.NewToken()
		c.Name, c.Role = name, role
		if err := ledger.AddCredential(t.Context(), c, rollout.Record{Action: rollout.ActionAddCredential}); err != nil {
			t.Fatal(err)
		}
		got, _, err := on.SignIn(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		return cookie(got)
	}
	for _, c := range []struct {
		door  *auth.Authenticator
		who   func(*http.Request)
		actor rollout.Actor
		ok    bool
	}{
		{off, func(*http.Request) {}, rollout.Actor{Name: "ann"}, true},
		{on, session("ed", access.Editor), rollout.Actor{Name: "ed", Verified: true}, true},
		{on, session("vi", access.Viewer), rollout.Actor{Name: "vi", Verified: true}, false},
	} {
		client := c.door.InProcess(api.NewServer(service, api.Options{}))
		file := fmt.Appendf(nil, "apiVersion: headgate/v1\nkind: RuleSet\ndomain: %s\nrules: [{name: x, key: [ip], limit: 1/s}]", c.actor.Name)
		var err error
		door := c.door.Browser(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, err = client.Apply(r.Context(), &adminpb.ApplyRequest{Files: []*adminpb.File{{Name: "f", Content: file}}})
		}), nil)
		door.ServeHTTP(nil, page(t, "/apply", method(http.MethodPost), c.who))
		records, failed := ledger.Audit(t.Context(), rollout.AuditQuery{Limit: 1})
		if failed != nil {
			t.Fatal(failed)
		}
		if (err == nil) != c.ok || records[0].Actor != c.actor || records[0].Action != rollout.ActionApply || (records[0].Refused == "") != c.ok {
			t.Errorf("%s: got %v, recorded %+v", c.actor.Name, err, records[0])
		}
	}
}
