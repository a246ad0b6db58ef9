package e2e_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/api/adminpb"
)

// What two sidecars saw of the same keys is one curve: exact for some hundred keys, and near for 50,000.
func TestALimitCanBeTriedOnWhatKeysCalled(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.binaries["sidecar"] = harness.BuildPlain(t, "./cmd/sidecar") // with the race detector the calls would take long
	var file strings.Builder
	file.WriteString("apiVersion: headgate/v1\nkind: RuleSet\ndomain: d\nrules:\n  - {name: many, match: {path: /many}, key: [ip], limit: 9/s}\n")
	const attempts = 3
	for i := range attempts {
		fmt.Fprintf(&file, "  - {name: few%d, match: {path: /few%d}, key: [ip], limit: 9/min}\n", i, i)
	}
	s.apply(file.String())
	fleet := []*sidecar{s.sidecar("one", "d"), s.sidecar("two", "d")}
	call := func(path string, keys, most int) {
		t.Helper()
		var group errgroup.Group
		const conns = 10
		for i, c := range fleet {
			list := clients(keys, most, i)
			for some := range slices.Chunk(list, len(list)/conns+1) {
				group.Go(func() error { return pipeline(c.ops, path, some) })
			}
		}
		if err := group.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	const few, many, most = 300, 50_000, 12
	rule := ""
	for i := range attempts { // the exact curve is known of calls that were made in one minute
		rule = fmt.Sprint("few", i)
		began := time.Now()
		call("/"+rule, few, most)
		if began.Truncate(time.Minute).Equal(time.Now().Truncate(time.Minute)) {
			break
		}
	}
	call("/many", many, 1)
	for _, c := range fleet {
		if err := c.process.Interrupt(); err != nil { // with its last window it says what it has of the minute
			t.Fatal(err)
		}
	}

	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	rates := func(rule string, tried ...int64) *adminpb.KeyRatesResponse {
		t.Helper()
		resp, err := adminpb.NewAdminServiceClient(conn).KeyRates(t.Context(), &adminpb.KeyRatesRequest{Domain: "d", Rule: rule, Tried: tried})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	exact := rates(rule, 0, 1, 5, 11, most*2)
	if exact.GetSampled() != few || exact.GetShareSampled() != 1 || exact.GetVersion() != 1 {
		t.Errorf("%d keys are known, want %d: %v", exact.GetSampled(), few, exact)
	}
	for _, got := range exact.GetTried() {
		var keys, calls int64
		for i := range few {
			if n := int64(2 * (1 + i%most)); n > got.GetCallsPerMinute() {
				keys, calls = keys+1, calls+n-got.GetCallsPerMinute()
			}
		}
		if got.GetKeys() != keys || got.GetCalls() != calls {
			t.Errorf("above %d: %d keys and %d calls, want %d and %d", got.GetCallsPerMinute(), got.GetKeys(), got.GetCalls(), keys, calls)
		}
	}
	about := rates("many")
	for what, got := range map[string][2]int64{"keys": {about.GetKeys(), many}, "calls": {about.GetCalls(), 2 * many}} {
		// Between three and four standard errors of the 780 keys that are known, one in 64.
		if off := math.Abs(float64(got[0]-got[1])) / float64(got[1]); off > 0.13 || about.GetShareSampled() == 1 || about.GetSampled() < 500 {
			t.Errorf("about %d %s of %d, by %d keys", got[0], what, got[1], about.GetSampled())
		}
	}
}

// clients are keys of which the first calls once, the next twice, and so on up to the most, and again; the order is another
// at each sidecar.
func clients(keys, most, seed int) (list []string) {
	for i := range keys {
		key := (i + seed*keys/2) % keys
		for range 1 + key%most {
			list = append(list, fmt.Sprintf("10.%d.%d.%d", key>>16, key>>8&255, key&255))
		}
	}
	return list
}
