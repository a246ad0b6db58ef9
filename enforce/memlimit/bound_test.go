package memlimit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/limittest"
	"github.com/headgate/headgate/enforce/memlimit"
)

// call tells whether a call of a counter passes, with two a minute.
func call(t *testing.T, l *memlimit.Limiter, c enforce.Counter) bool {
	t.Helper()
	v, err := l.DecideAt(t.Context(), limittest.Start, []enforce.Charge{limittest.Binding(0, c, 2, 2)})
	if err != nil {
		t.Fatal(err)
	}
	return v[0].Fits
}

// A table that evicted would give a fresh budget to whoever comes back, and one that grew would grow by every key that a
// caller makes up.
func TestFullTableSharesOneBucketAndEvictsNobody(t *testing.T) {
	t.Parallel()
	l := memlimit.NewBounded(2)
	first, second := limittest.NewCounter(), limittest.NewCounter()
	var got []bool
	got = append(got, call(t, l, first), call(t, l, first), call(t, l, second))
	for range 3 { // each another caller
		got = append(got, call(t, l, limittest.NewCounter()))
	}
	got = append(got, call(t, l, first), call(t, l, second), call(t, l, second))
	want := []bool{true, true, true, true, true, false, false, true, false}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("two own buckets, then a shared one (-want +got):\n%s", diff)
	}
	for range 1000 {
		call(t, l, limittest.NewCounter())
	}
	if n := l.Counters(); n != 3 {
		t.Errorf("%d counters, want the two own ones and the shared one", n)
	}
}

func TestForgetForgetsEveryCount(t *testing.T) {
	t.Parallel()
	l := memlimit.New()
	c := limittest.NewCounter()
	for range 2 {
		call(t, l, c)
	}
	if call(t, l, c) {
		t.Error("the third call of two a minute passes")
	}
	l.Forget()
	if !call(t, l, c) {
		t.Error("the first call after Forget is refused")
	}
}
