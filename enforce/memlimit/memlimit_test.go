package memlimit_test

import (
	"testing"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	limittest.Run(t, func(*testing.T) limittest.Limiter { return memlimit.New() })
}

func TestDecideCountsAtTheTimeOfTheProcess(t *testing.T) {
	t.Parallel()
	l := memlimit.New()
	c := limittest.NewCounter()
	for i, want := range []bool{true, true, false} {
		v, err := l.Decide(t.Context(), []enforce.Charge{limittest.Binding(0, c, 2, 2)})
		if err != nil || v[0].Fits != want {
			t.Errorf("call %d: got %v, %v; want fits %v", i+1, v, err, want)
		}
	}
}
