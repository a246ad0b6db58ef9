package notify_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/web/notify"
)

// patience bounds every wait for something that is expected to happen.
const patience = 60 * time.Second

// alertmanager starts Debian's, which tells the receiver at the URL of every alert at once.
func alertmanager(t *testing.T, receiver string) (url string) {
	t.Helper()
	binary, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		t.Fatal("prometheus-alertmanager is not installed. Install it with\n  sudo apt-get install -y --no-install-recommends prometheus-alertmanager")
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`
route: {receiver: headgate, group_by: [alertname, domain, rule], group_wait: 0s, group_interval: 1s, repeat_interval: 1h}
receivers: [{name: headgate, webhook_configs: [{url: %q, send_resolved: true}]}]
`, receiver)
	if err := os.WriteFile(filepath.Join(dir, "config.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := harness.FreeAddr(t)
	p := harness.Start(t, "alertmanager", binary, "--config.file", filepath.Join(dir, "config.yml"), "--storage.path", dir,
		"--web.listen-address", addr, "--web.external-url", "http://"+addr, "--cluster.listen-address", "")
	p.WaitLog("Listening on")
	return "http://" + addr
}

// active are the alerts that it has, by rule.
func active(alertmanager string) (map[string]any, error) {
	resp, err := http.Get(alertmanager + "/api/v2/alerts?active=true") //nolint:noctx // it ends with the test
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var list []struct {
		Labels, Annotations map[string]string
		StartsAt            time.Time
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, err
	}
	all := map[string]any{}
	for _, a := range list {
		all[a.Labels["rule"]] = []any{a.Labels["severity"], a.Labels["version"], a.Annotations["rollback"], a.StartsAt}
	}
	return all, nil
}

func TestARealAlertmanagerTakesAlertsAndSendsWhatWeSend(t *testing.T) {
	t.Parallel()
	bodies := map[string]chan map[string]any{"/theirs": make(chan map[string]any, 10), "/ours": make(chan map[string]any, 10)}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body map[string]any
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(b, &body)
		}
		if err != nil {
			t.Error(err)
		}
		bodies[r.URL.Path] <- body
	}))
	defer server.Close()
	manager := alertmanager(t, server.URL+"/theirs")

	m := rollouttest.New()
	a := anAlert("login")
	a.Since = time.Now().UTC().Truncate(time.Second).Add(-time.Minute)
	save(t, m, a)
	n := newNotifier(t, m, notify.Options{
		Alertmanagers: []string{manager}, Webhooks: []string{server.URL + "/ours"}, Secret: []byte("secret"), ExternalURL: manager,
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("run ended with %v", err)
		}
	}()

	same := func(status string) {
		t.Helper()
		theirs, ours := receive(t, bodies["/theirs"]), receive(t, bodies["/ours"])
		if theirs["status"] != status {
			t.Errorf("the status is %v, want %s", theirs["status"], status)
		}
		if diff := cmp.Diff(theirs, ours); diff != "" {
			t.Errorf("the body while %s (-Alertmanager's +ours):\n%s", status, diff)
		}
	}
	same("firing")
	want := map[string]any{"login": []any{"page", "3", "rulectl rollback api/login --wait", a.Since}}
	if got, err := active(manager); err != nil || !cmp.Equal(got, want) {
		t.Errorf("its API: %v, %v, want %v", got, err, want)
	}

	save(t, m, resolved(a, time.Now().UTC().Truncate(time.Second)))
	same("resolved")
	harness.Eventually(t, patience, func() error {
		if got, err := active(manager); err != nil || len(got) > 0 {
			return errors.Join(err, fmt.Errorf("it still has %v", got))
		}
		return nil
	})

	for _, answer := range n.Test(t.Context(), "ann") {
		if answer.Err != nil {
			t.Errorf("a test: %s: %v", answer.Target, answer.Err)
		}
	}
	if list, err := m.Alerts(t.Context(), alert.Query{Limit: 9}); err != nil || len(list) != 1 || len(list[0].Delivered) != 4 {
		t.Errorf("%v, %v, want that both statuses are noted for both targets", list, err)
	}
}

func receive(t *testing.T, bodies chan map[string]any) map[string]any {
	t.Helper()
	select {
	case body := <-bodies:
		return body
	case <-time.After(patience):
		t.Fatal("nothing was received")
		return nil
	}
}
