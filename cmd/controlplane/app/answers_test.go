package app

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

func specOf(t *testing.T, rule string) *rules.Spec {
	t.Helper()
	sets, err := rulefile.Decode("f.yaml", []byte("apiVersion: headgate/v1\nkind: RuleSet\ndomain: api\nrules: [{name: r, key: [], "+rule+"}]\n"))
	if err != nil {
		t.Fatal(err)
	}
	return &sets[0].Rules[0].Spec
}

func TestAnswersAreThoseOfDoors(t *testing.T) {
	t.Parallel()
	allowed, refused, err := answers(t.Context(), "r", specOf(t, "limit: 60/min burst 120"))
	if err != nil {
		t.Fatal(err)
	}
	const policy = `"r";q=60;w=60;headgate-burst=120`
	if diff := cmp.Diff(http.Header{"RateLimit-Policy": {policy}, "RateLimit": {`"r";r=119;t=1`}}, allowed.Header); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
	want := http.Header{
		"RateLimit-Policy": {policy}, "RateLimit": {`"r";r=0;t=1`}, "Retry-After": {"1"},
		"Cache-Control": {"no-store"}, "Content-Type": {"application/problem+json"},
	}
	if diff := cmp.Diff(want, refused.Header); diff != "" || refused.Status != http.StatusTooManyRequests || !strings.Contains(string(refused.Body), `"violated-policies":["r"]`) {
		t.Errorf("refused with %d and %s (-want +got):\n%s", refused.Status, refused.Body, diff)
	}
}

func TestAnswersOfWhatNeverOrAlwaysRefuses(t *testing.T) {
	t.Parallel()
	if allowed, refused, err := answers(t.Context(), "r", specOf(t, "limit: unlimited")); err != nil || allowed == nil || refused != nil {
		t.Errorf("unlimited: %v, %v, %v", allowed, refused, err)
	}
	if allowed, refused, err := answers(t.Context(), "never", specOf(t, "limit: 0/min")); err != nil || allowed != nil || refused == nil {
		t.Errorf("0/min: %v, %v, %v", allowed, refused, err)
	}
	many := specOf(t, "limits: [{name: a, limit: 1_000/min}, {name: b, limit: 90/h, algorithm: sliding-window}], response: {status: 503, headers: none}")
	if _, refused, err := answers(t.Context(), "r", many); err != nil || refused == nil || refused.Status != http.StatusServiceUnavailable || refused.Header.Get("RateLimit") != "" {
		t.Errorf("two limits: %+v, %v", refused, err)
	}
}
