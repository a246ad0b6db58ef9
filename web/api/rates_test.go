package api_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/web/api/adminpb"
)

// rates is a window in which a minute of a version ends: keys 1, 2, … called so often.
func (c counting) rates(t *testing.T, rule string, number int64, calls ...int64) tally.Window {
	t.Helper()
	v := c.version(t, "a", rule, number, nil)
	for i, n := range calls {
		v.Rates.Keys = append(v.Rates.Keys, tally.KeyRate{Key: tally.RateKey(i + 1), Calls: n})
	}
	return window(v)
}

// Two sidecars that saw the same keys tell the curve of all calls.
func TestKeyRatesTellWhatALimitWouldMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		canary(t, s, "a")
		until("12:34:56")
		c.save(t, "n1", "11:33:50", c.rates(t, "x", 2, 1000)) // before
		c.save(t, "n1", "12:00:50", c.rates(t, "x", 2, 30, 4))
		c.save(t, "n2", "12:00:50", c.rates(t, "x", 2, 20, 1, 1))
		c.save(t, "n2", "12:33:50", c.rates(t, "x", 2, 10, 7))
		resp, err := s.KeyRates(as(t, access.Viewer, "a"), &adminpb.KeyRatesRequest{Domain: "a", Rule: "x", Tried: []int64{60, 5, 0, 20}})
		if err != nil {
			t.Fatal(err)
		}
		steps := resp.GetSteps()
		resp.Steps = nil
		want := &adminpb.KeyRatesResponse{
			From: timestamppb.New(at("11:34:00")), To: timestamppb.New(at("12:34:56")), Version: 2, Keys: 3, Calls: 73, Sampled: 3, ShareSampled: 1,
			Tried: []*adminpb.RateStep{
				{CallsPerMinute: 60}, {CallsPerMinute: 5, Keys: 2, Calls: 45 + 5 + 2}, {Keys: 3, Calls: 73}, {CallsPerMinute: 20, Keys: 1, Calls: 30},
			},
			Histogram: []*adminpb.RateBucket{
				{From: 1, Below: 2, Keys: 1, Calls: 1},
				{From: 2, Below: 5},
				{From: 5, Below: 10, Keys: 1, Calls: 12},
				{From: 10, Below: 20},
				{From: 20, Below: 50},
				{From: 50, Below: 100, Keys: 1, Calls: 60},
			},
		}
		if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		first, last := steps[0], steps[len(steps)-1]
		if first.GetCallsPerMinute() != 1 || first.GetKeys() != 2 || last.GetCallsPerMinute() != 51 || last.GetKeys() != 0 || last.GetCalls() != 0 {
			t.Errorf("the curve goes from %v to %v", first, last)
		}
		resp, err = s.KeyRates(anybody(t), &adminpb.KeyRatesRequest{Domain: "a", Rule: "x", Since: durationpb.New(time.Minute)})
		if err != nil || resp.GetCalls() != 17 || resp.GetFrom().AsTime() != at("12:33:00") {
			t.Errorf("of a minute: %v, %v", resp, err)
		}
	})
}

// A new limit or a new text is tried on the calls that were counted under the versions before; another key is not.
func TestKeyRatesAreOfVersionsThatMeetTheSameCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, c := setupCounts(t)
		canary(t, s, "a")
		look := func() *adminpb.KeyRatesResponse {
			t.Helper()
			resp, err := s.KeyRates(anybody(t), &adminpb.KeyRatesRequest{Domain: "a", Rule: "x"})
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		until("12:00:05")
		if got := look(); got.GetVersion() != 0 || got.GetKeys() != 0 || len(got.GetSteps()) != 0 {
			t.Errorf("without calls: %v", got)
		}
		c.save(t, "n1", "11:58:50", c.rates(t, "x", 1, 5))
		if got := look(); got.GetVersion() != 1 || got.GetCalls() != 5 {
			t.Errorf("of the stable, since the candidate has none yet: %v", got)
		}
		c.save(t, "n1", "11:59:50", c.rates(t, "x", 2, 7, 1))
		if got := look(); got.GetVersion() != 2 || got.GetCalls() != 13 || got.GetKeys() != 2 {
			t.Errorf("of the candidate and the stable, which have the same key: %v", got)
		}
		if _, err := s.Rollback(anybody(t), &adminpb.RollbackRequest{Domain: "a", Rule: "x"}); err != nil {
			t.Fatal(err)
		}
		if got := look(); got.GetVersion() != 1 || got.GetCalls() != 13 {
			t.Errorf("of the stable, after the candidate was dropped: %v", got)
		}
		other := file("f", "a", "x", "9/s")
		other.Content = []byte(strings.ReplaceAll(string(other.Content), "ip", "header:x-api-key"))
		apply(t, s, other)
		c.save(t, "n2", "11:59:50", c.rates(t, "x", 3, 2))
		if got := look(); got.GetVersion() != 3 || got.GetCalls() != 2 {
			t.Errorf("of a version with another key: %v", got)
		}
	})
}

func TestKeyRatesRefuseWhatIsOutOfBounds(t *testing.T) {
	t.Parallel()
	s, _ := setupCounts(t)
	apply(t, s, file("f", "a", "x", "1/s"))
	for _, req := range []*adminpb.KeyRatesRequest{
		{Domain: "a", Rule: "x", Since: durationpb.New(0)},
		{Domain: "a", Rule: "x", Since: durationpb.New(61 * time.Minute)},
		{Domain: "a", Rule: "x", Tried: make([]int64, 21)},
		{Domain: "a", Rule: "x", Tried: []int64{-1}},
		{Domain: "a", Rule: "x", Tried: []int64{1 << 62}},
	} {
		if _, err := s.KeyRates(anybody(t), req); !errors.Is(err, rules.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", req, err)
		}
	}
	if _, err := s.KeyRates(anybody(t), &adminpb.KeyRatesRequest{Domain: "a", Rule: "none"}); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("of a rule that never was: %v", err)
	}
	if _, err := s.KeyRates(as(t, access.Viewer, "b"), &adminpb.KeyRatesRequest{Domain: "a", Rule: "x"}); !errors.Is(err, rules.ErrForbidden) {
		t.Errorf("of another's domain: %v", err)
	}
}
