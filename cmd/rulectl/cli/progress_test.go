package cli

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate/web/api/adminpb"
)

func pending(id string) *adminpb.Node { return &adminpb.Node{Id: id, State: statePending} }

func TestProgressRedrawsOneLineOnATerminal(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := newProgress(&out, true)
	w := &wait{domain: "a"}
	waits := []*wait{w, {domain: "b"}}
	p.show(waits, w)
	w.apply(update{nodes: []*adminpb.Node{pending("n1")}})
	p.show(waits, w)
	p.end()
	want := "\ra no answer yet; b no answer yet\x1b[K" +
		"\ra 0 of 1 sidecar acked; not yet: n1 ◌ Pending; b no answer yet\x1b[K" +
		"\r\x1b[K"
	if got := out.String(); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestProgressElsewhereIsALineForAChangeButNotTooMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		p := newProgress(&out, false)
		w := &wait{domain: "a"}
		waits := []*wait{w}
		show := func(ids ...string) {
			var nodes []*adminpb.Node
			for _, id := range ids {
				nodes = append(nodes, pending(id))
			}
			w.apply(update{nodes: nodes})
			p.show(waits, w)
		}
		show("n1", "n2", "n3", "n4", "n5", "n6")
		show("n1", "n2")
		show("n1")
		p.flush(waits)
		p.flush(waits) // nothing new
		time.Sleep(progressInterval)
		show()
		p.end()
		want := "waiting for sidecars of a: 0 of 6 sidecars acked; not yet: n1 ◌ Pending, n2 ◌ Pending, n3 ◌ Pending, n4 ◌ Pending and 2 more\n" +
			"waiting for sidecars of a: 0 of 1 sidecar acked; not yet: n1 ◌ Pending\n" +
			"waiting for sidecars of a: 0 of 0 sidecars acked\n"
		if got := out.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	})
}

func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 12 * time.Second: "12s", 132 * time.Second: "2m12s", 2 * time.Minute: "2m", 11*time.Minute + time.Second: "11m",
		3 * time.Hour: "3h", 50 * time.Hour: "2d",
	} {
		if got := age(d); got != want {
			t.Errorf("age(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestTextFromElsewhereCannotRedrawTheTerminal(t *testing.T) {
	t.Parallel()
	if got, want := renderTable([]string{"A"}, [][]string{{"x\x1b[2J\ny"}, {""}}), "A\nx\uFFFD[2J y\n-\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
