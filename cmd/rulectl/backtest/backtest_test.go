package backtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/rulectl/accesslog"
	"github.com/headgate/headgate/cmd/rulectl/backtest"
	"github.com/headgate/headgate/rules/rulefile"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// ruleSets decodes rule sets, each written as its domain and the lines of its rules.
func ruleSets(t *testing.T, domains ...string) []rulefile.RuleSet {
	t.Helper()
	var files []rulefile.File
	for i, d := range domains {
		files = append(files, rulefile.File{
			Name: fmt.Sprintf("%d.yaml", i), Content: []byte("apiVersion: headgate/v1\nkind: RuleSet\n" + d),
		})
	}
	sets, err := rulefile.DecodeAll(files)
	if err != nil {
		t.Fatal(err)
	}
	return sets
}

// web is a domain "web" with one rule "r".
func web(rule string) string { return "domain: web\nrules:\n  - {name: r, " + rule + "}\n" }

func run(t *testing.T, store string, log string, domains ...string) backtest.Result {
	t.Helper()
	result, err := backtest.Run(t.Context(), strings.NewReader(log), options(t, store, domains...))
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func options(t *testing.T, store string, domains ...string) backtest.Options {
	t.Helper()
	return backtest.Options{
		Sets: ruleSets(t, domains...), Store: store,
		Log: accesslog.Options{Parse: accesslog.ParseCombined, SortWindow: backtest.DefaultSortWindow},
	}
}

func publicLog(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "access-public.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// The numbers were computed once from the log by a program of its own, in exact arithmetic.
var publicNumbers = []struct {
	name, rule           string
	matched, refused     int
	refusedKeys          int
	worst                string
	worstRefused, keys   int
	checkKeys, checkTop0 bool
}{
	{
		name: "bucket 20 burst 10", rule: "key: [ip], limit: 20/min burst 10", matched: 5000, refused: 270, refusedKeys: 15,
		worst: "198.18.0.97", worstRefused: 149, checkTop0: true,
	},
	{name: "bucket 6 burst 5", rule: "key: [ip], limit: 6/min burst 5", matched: 5000, refused: 817, refusedKeys: 44},
	{name: "window 20", rule: "key: [ip], limit: 20/min, algorithm: sliding-window", matched: 5000, refused: 437, refusedKeys: 21},
	{
		name: "window 120 for all", rule: "key: [], limit: 120/min, algorithm: sliding-window", matched: 5000, refused: 104,
		refusedKeys: 1, worst: "*", worstRefused: 104, checkTop0: true, keys: 1, checkKeys: true,
	},
	{name: "images", rule: "match: {path: /images/*}, key: [ip], limit: 10/min burst 5", matched: 585, refused: 3, refusedKeys: -1},
}

func TestPublicLogGivesTheKnownNumbersOnBothStores(t *testing.T) {
	t.Parallel()
	log := publicLog(t)
	addr := harness.Redis(t).Addr
	for _, test := range publicNumbers {
		for _, store := range []string{"memory", "redis://" + addr} {
			t.Run(test.name+" in "+strings.Split(store, ":")[0], func(t *testing.T) {
				result := run(t, store, log, web(test.rule))
				if result.Lines != 5000 || result.Malformed != 0 || result.OutOfOrder != 2451 {
					t.Errorf("lines %d, malformed %d, out of order %d; want 5000, 0, 2451", result.Lines, result.Malformed, result.OutOfOrder)
				}
				r := result.Rules[0]
				if r.Rule != "web/r" || r.Matched != test.matched || r.Refused != test.refused {
					t.Errorf("%s: matched %d, refused %d; want web/r, %d, %d", r.Rule, r.Matched, r.Refused, test.matched, test.refused)
				}
				if test.refusedKeys >= 0 && r.RefusedKeys != test.refusedKeys {
					t.Errorf("refused keys %d, want %d", r.RefusedKeys, test.refusedKeys)
				}
				if want := (backtest.Key{Key: test.worst, Refused: test.worstRefused}); test.checkTop0 && r.Top[0] != want {
					t.Errorf("worst %v, want %v", r.Top[0], want)
				}
				if test.checkKeys && r.Keys != test.keys {
					t.Errorf("keys %d, want %d", r.Keys, test.keys)
				}
			})
		}
	}
	if left := redisKeys(t, addr); len(left) > 0 {
		t.Errorf("%d keys are left in Redis, such as %s", len(left), left[0])
	}
}

func redisKeys(t *testing.T, addr string) []string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	keys, err := client.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// line is a well-formed line, so many seconds after ten o'clock.
func line(ip string, second int, path string) string {
	at := time.Date(2015, 5, 17, 10, 0, second, 0, time.UTC).Format("02/Jan/2006:15:04:05 -0700")
	return fmt.Sprintf("%s - - [%s] \"GET %s HTTP/1.1\" 200 1 \"-\" \"agent\"\n", ip, at, path)
}

func TestRulesAreJudgedTogetherAndRefusalsAreTheirOwn(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for range 5 {
		log.WriteString(line("192.0.2.1", 0, "/a"))
	}
	// Only three calls get past the first rule, so only those are spent of the others: had the refused ones been spent,
	// the third rule would have refused the last call.
	log.WriteString(line("192.0.2.2", 0, "/a"))
	result := run(t, "", log.String(),
		"domain: b\nrules:\n  - {name: per-ip, key: [ip], limit: 3/min}\n  - {name: all, key: [], limit: 4/min}\n",
		"domain: a\nrules:\n  - {name: other, key: [], limit: 4/min}\n")
	want := []backtest.Rule{
		{Rule: "a/other", Matched: 6, Keys: 1, Top: []backtest.Key{}, OverTime: []int{0}},
		{Rule: "b/all", Matched: 6, Keys: 1, Top: []backtest.Key{}, OverTime: []int{0}},
		{Rule: "b/per-ip", Matched: 6, Refused: 2, Keys: 2, RefusedKeys: 1, Top: []backtest.Key{{Key: "192.0.2.1", Refused: 2}}, OverTime: []int{2}},
	}
	if diff := cmp.Diff(want, result.Rules); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if result.Requests != 6 || result.Refused != 2 {
		t.Errorf("requests %d, refused %d; want 6, 2", result.Requests, result.Refused)
	}
}

func TestExemptionsHoldForTheirOwnDomain(t *testing.T) {
	t.Parallel()
	log := line("192.0.2.1", 0, "/livez") + line("192.0.2.1", 0, "/livez") + line("192.0.2.1", 0, "/x")
	result := run(t, "", log,
		"domain: a\nexempt: [{name: health, match: {path: /livez}}]\nrules:\n  - {name: r, key: [], limit: 1/min}\n",
		"domain: b\nrules:\n  - {name: r, key: [], limit: 5/min}\n")
	if a, b := result.Rules[0], result.Rules[1]; a.Matched != 1 || a.Refused != 0 || b.Matched != 3 {
		t.Errorf("a matched %d, refused %d, b matched %d; want 1, 0, 3", a.Matched, a.Refused, b.Matched)
	}
}

func TestMatchedLeavesOutSkippedKeys(t *testing.T) {
	t.Parallel()
	log := line("192.0.2.1", 0, "/?user=a") + line("192.0.2.1", 0, "/") + line("192.0.2.1", 0, "/?user=a")
	result := run(t, "", log, web("key: [query:user], missingKey: skip, limit: 1/min"))
	if r := result.Rules[0]; r.Matched != 2 || r.Keys != 1 || r.Refused != 1 {
		t.Errorf("matched %d, keys %d, refused %d; want 2, 1, 1", r.Matched, r.Keys, r.Refused)
	}
}

func TestTopHasTenByCountThenKeyAndShowsKeysAsAgreed(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	for i := range 12 {
		for range 2 + i/11 { // the last has one more
			log.WriteString(line(fmt.Sprintf("192.0.2.%d", 30-i), i, "/?token=t&user=%2C"))
		}
	}
	result := run(t, "", log.String(), web("key: [ip, {from: query:user}, {from: query:token, hash: true}], limit: 1/h"))
	r := result.Rules[0]
	if r.RefusedKeys != 12 || len(r.Top) != 10 {
		t.Fatalf("refused keys %d, top %d; want 12, 10", r.RefusedKeys, len(r.Top))
	}
	hashed := strings.TrimPrefix(r.Top[0].Key, "192.0.2.19,,,")
	if len(hashed) != 11 || hashed[0] != '#' || r.Top[0].Refused != 2 {
		t.Errorf("worst %v, want 192.0.2.19,,,#… with 2", r.Top[0])
	}
	if !slices.IsSortedFunc(r.Top[1:], func(a, b backtest.Key) int { return strings.Compare(a.Key, b.Key) }) {
		t.Errorf("ties are not in the order of the keys: %v", r.Top)
	}
}

func TestResultsJSONIsTheContract(t *testing.T) {
	t.Parallel()
	log := line("192.0.2.1", 1, "/") + "junk\n" + line("192.0.2.1", 0, "/")
	got, err := json.Marshal(run(t, "", log, web("key: [ip], limit: 1/min")))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"lines":3,"malformed":1,"out_of_order":1,"rules":[{"rule":"web/r","matched":2,"refused":1,"keys":1,` +
		`"refused_keys":1,"top":[{"key":"192.0.2.1","refused":1}]}]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	got, err = json.Marshal(run(t, "", "\n", web("key: [ip], limit: 1/min")))
	if err != nil {
		t.Fatal(err)
	}
	want = `{"lines":0,"malformed":0,"out_of_order":0,"rules":[{"rule":"web/r","matched":0,"refused":0,"keys":0,"refused_keys":0,"top":[]}]}`
	if string(got) != want {
		t.Errorf("an empty log: got  %s\nwant %s", got, want)
	}
}

func TestAStoreThatFailsEndsTheRunWhateverTheRulesSay(t *testing.T) {
	t.Parallel()
	_, err := backtest.Run(t.Context(), strings.NewReader(line("192.0.2.1", 0, "/")),
		options(t, "redis://"+harness.FreeAddr(t), web("key: [ip], limit: 1/min, failure: open")))
	if err == nil || !strings.Contains(err.Error(), "redis") {
		t.Errorf("error %v, want one that names redis", err)
	}
}

func TestAnInterruptedRunLeavesNothingInRedis(t *testing.T) {
	t.Parallel()
	addr := harness.Redis(t).Addr
	ctx, cancel := context.WithCancel(t.Context())
	o := options(t, "redis://"+addr, web("key: [ip], limit: 1/min"))
	o.Log.SortWindow = 0
	o.Log.Malformed = func(int, error) { cancel() }
	log := line("192.0.2.1", 0, "/") + line("192.0.2.2", 1, "/") + "junk\n" + line("192.0.2.3", 2, "/")
	if _, err := backtest.Run(ctx, strings.NewReader(log), o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if left := redisKeys(t, addr); len(left) > 0 {
		t.Errorf("keys are left in Redis: %v", left)
	}
}
