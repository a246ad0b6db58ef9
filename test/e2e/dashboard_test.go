package e2e_test

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/spike"
	"github.com/headgate/headgate/storage/postgres"
	"github.com/headgate/headgate/test/browser"
	"github.com/headgate/headgate/test/harness"
)

// screenshots is where the tests of the dashboard leave pictures of what they see, to be looked at.
var screenshots = flag.String("screenshots", "", "folder for pictures of the dashboard's pages; none are taken without")

// board is a system whose control plane asks who people are, with a sidecar of the domain shop and a person for each role.
type board struct {
	*system
	one    *sidecar
	tokens map[string]string // files, by role
}

// shop is a rule file of the domain.
func shop(rules ...string) string {
	return "apiVersion: headgate/v1\nkind: RuleSet\ndomain: shop\nrules:\n  - " + strings.Join(rules, "\n  - ") + "\n"
}

func startBoard(t *testing.T) *board {
	t.Helper()
	b := &board{system: start(t, "--auth", "token"), tokens: map[string]string{}}
	for _, role := range []string{"viewer", "operator", "admin"} {
		b.tokens[role] = b.token(role)
	}
	b.env = []string{"RULECTL_TOKEN_FILE=" + b.tokens["admin"]}
	b.one = b.sidecar("one", "shop", "--controlplane-token-file", b.token("sidecar", "--domain", "shop"))
	return b
}

// enforce applies a rule file so that it binds everybody at once.
func (b *board) enforce(content string) {
	b.t.Helper()
	b.must("apply", "-f", b.file(content), "--stage", "enforce", "--yes", "--wait")
}

// calls has so many clients call so many times each, and returns how many calls were refused.
func (b *board) calls(clients, each int) (refused int) {
	b.t.Helper()
	for i := range clients {
		for range each {
			if b.one.call(http.MethodGet, "/", client(i)).status == http.StatusTooManyRequests {
				refused++
			}
		}
	}
	return refused
}

func client(i int) string { return fmt.Sprintf("192.0.2.%d", i) }

// tab is an empty tab.
func (b *board) tab() *browser.Tab { b.t.Helper(); return browser.New(b.t, "http://"+b.http) }

// as is a tab of a person with the role, who has signed in and looks at a page.
func (b *board) as(role, path string) *browser.Tab {
	b.t.Helper()
	tab := b.tab()
	b.signIn(tab, role, path)
	return tab
}

func (b *board) signIn(tab *browser.Tab, role, path string) {
	b.t.Helper()
	token, err := os.ReadFile(b.tokens[role])
	if err != nil {
		b.t.Fatal(err)
	}
	tab.Open(path)
	tab.WaitText("h1", "Sign in")
	tab.Type("[name=token]", strings.TrimSpace(string(token)))
	tab.Click("#main [type=submit]")
	tab.WaitGone("[name=token]")
	if got := tab.Path(); got != path {
		b.t.Fatalf("who signs in to see %s is led to %s", path, got)
	}
}

// confirm fills in the message of the form that is open, and sends it.
func confirm(tab *browser.Tab, message string) {
	tab.Type("#dialog[open] [name=message]", message)
	tab.Click("#dialog[open] [type=submit]")
	tab.WaitGone("#dialog[open]")
}

// picture takes one of the page, where they are wanted.
func (b *board) picture(tab *browser.Tab, name string) {
	if *screenshots != "" {
		tab.Screenshot(filepath.Join(*screenshots, strings.NewReplacer("/", "_", "?", "_", "&", "_").Replace(name)+".png"))
	}
}

// fire waits until so many refusals are stored, and whose they are, makes the rounds that the control plane would make of them in the next two
// minutes, and returns the alert that fires. The control plane sees the rounds made.
func (b *board) fire(refusals int64) alert.Alert {
	b.t.Helper()
	store, err := postgres.Open(b.t.Context(), b.database, postgres.Options{NoListen: true})
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	now := time.Now()
	harness.Eventually(b.t, patience, func() error {
		keys, err := store.Keys(b.t.Context(), tally.Query{Domain: "shop", From: now.Add(-time.Hour).Truncate(time.Minute), To: now.Add(time.Hour)})
		if err != nil {
			return err
		}
		var stored int64
		for i := range keys {
			for _, k := range keys[i].Keys.Keys() {
				stored += k.Refused
			}
		}
		if stored < refusals {
			return fmt.Errorf("%d refusals of known keys are stored, want %d", stored, refusals)
		}
		return nil
	})
	watcher, err := alert.NewWatcher(store, store, store, alert.Options{Now: func() time.Time { return now }})
	if err != nil {
		b.t.Fatal(err)
	}
	for range 6 { // four are enough; the control plane may make one of its own
		now = now.Add(spike.Every)
		if err := watcher.Look(b.t.Context()); err != nil && !errors.Is(err, rules.ErrConflict) {
			b.t.Fatal(err)
		}
	}
	alerts, err := store.Alerts(b.t.Context(), alert.Query{Domain: "shop", Limit: 1})
	if err != nil || len(alerts) == 0 {
		b.t.Fatalf("nothing fires: %v", err)
	}
	return alerts[0]
}

// taken does what makes a revision, and returns when the sidecar has it.
func (b *board) taken(change func()) {
	b.t.Helper()
	before := b.one.revision()
	change()
	harness.Eventually(b.t, patience, func() error {
		if got := b.one.revision(); got <= before {
			return fmt.Errorf("the sidecar has revision %d, as before", got)
		}
		return nil
	})
}

// audited wants texts in the audit trail.
func (b *board) audited(want ...string) {
	b.t.Helper()
	if trail := b.must("audit", "list", "-o", "json"); !containsAll(trail, want...) {
		b.t.Errorf("the audit trail lacks %q:\n%s", want, trail)
	}
}

// rulePage is the address of a rule's page.
func rulePage(rule, tab string) string {
	return "/d/shop/r/" + rule + "?" + url.Values{"tab": {tab}}.Encode()
}
