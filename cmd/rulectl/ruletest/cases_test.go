package ruletest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/cmd/rulectl/ruletest"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// runCase runs a file of testdata in memory and in Redis, with the same result, and looks that nothing stays behind.
func runCase(t *testing.T, name string) {
	t.Helper()
	t.Parallel()
	path := filepath.Join("testdata", name+".test.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := ruletest.Decode(path, content)
	if err != nil {
		t.Fatal(err)
	}
	addr := harness.Redis(t).Addr
	for i := range tests {
		for _, store := range []string{"memory", "redis://" + addr} {
			result, err := ruletest.Run(t.Context(), &tests[i], store)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range result.Failures {
				t.Errorf("%s: step %d, request %d, on %s: %+v", f.Place, f.Step, f.Request, store, f.Differences)
			}
		}
	}
	if n := keysIn(t, addr); n != 0 {
		t.Errorf("%d keys are left in Redis", n)
	}
}

func keysIn(t *testing.T, addr string) int64 {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	n, err := client.DBSize(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestC01WildcardPathWithOwnAndSharedCounters(t *testing.T)   { runCase(t, "c01") }
func TestC03RefusedCallDoesNotEatAnotherLimit(t *testing.T)      { runCase(t, "c03") }
func TestC04TwoRulesOverTheSameKeyShareNoCounter(t *testing.T)   { runCase(t, "c04") }
func TestC05CostsThatVaryAndOneThatNeverFits(t *testing.T)       { runCase(t, "c05") }
func TestC07PublishedExampleOfTheSlidingWindow(t *testing.T)     { runCase(t, "c07") }
func TestC08BucketDripsWhileCallsKeepComing(t *testing.T)        { runCase(t, "c08") }
func TestC10RefillFasterThanOneSecond(t *testing.T)              { runCase(t, "c10") }
func TestC12RetryAfterIsAPromise(t *testing.T)                   { runCase(t, "c12") }
func TestC13RefusalDescribesTheLimitThatRefused(t *testing.T)    { runCase(t, "c13") }
func TestC15ZeroAlwaysRefusesAndUnlimitedNever(t *testing.T)     { runCase(t, "c15") }
func TestC17TwoLimitsOverTheSameSelector(t *testing.T)           { runCase(t, "c17") }
func TestC23ShadowRuleDoesNotWeakenAnEnforcedOne(t *testing.T)   { runCase(t, "c23") }
func TestC25ValuesThatLookLikeSeparatorsStayApart(t *testing.T)  { runCase(t, "c25") }
func TestC26NotationOfAnAddressDoesNotDecideItsKey(t *testing.T) { runCase(t, "c26") }
func TestTheContractsExampleRunsOnBothStores(t *testing.T)       { runCase(t, "contract") }
