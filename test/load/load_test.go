package load

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The figures are not looked at: a busy machine is slow. A run fails when a subscriber misses a change, gets more or less
// than all rules, is sent what it holds, or sees a revision go back.
func TestEverySubscriberGetsEveryChange(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"sqlite": {Compared: 20, Clients: 3, Rulectl: harness.Build(t, "./cmd/rulectl")},
		"memory": {Memory: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Subscribers, o.Rules, o.Few, o.Changes = 20, 200, 3, 3
			var table strings.Builder
			if err := Run(t.Context(), o, &table); err != nil {
				t.Fatal(err)
			}
			want := []string{"one changed rule of 200 ", "one changed rule of 3 ", "holding the head"}
			if !o.Memory {
				want = append(want, "with LinearCache", "until 3 clients of sidecars")
			}
			for _, figure := range want {
				if !strings.Contains(table.String(), figure) {
					t.Errorf("there is no figure for %q in\n%s", figure, table.String())
				}
			}
		})
	}
}
