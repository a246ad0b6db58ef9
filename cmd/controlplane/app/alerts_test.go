package app_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/cmd/controlplane/app"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/rules/rollout/rollouttest"
	"github.com/headgate/headgate/rules/tally"
	"github.com/headgate/headgate/rules/tally/spike"
	"github.com/headgate/headgate/storage/sqlite"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/web/notify"
)

// The whole way in the program itself: a rule of which three evaluations have found a spike, a leader that makes the fourth, and a
// webhook that is told.
func TestALeaderTellsOfASpike(t *testing.T) {
	t.Parallel()
	bodies := make(chan map[string]any, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || !strings.HasPrefix(r.Header.Get(notify.SignatureHeader), "sha256=") {
			t.Errorf("%v, %s %q", err, notify.SignatureHeader, r.Header.Get(notify.SignatureHeader))
		}
		bodies <- body
	}))
	defer receiver.Close()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, func(c *app.Config) {
		c.Alerts = app.Alerts{Webhooks: []string{receiver.URL}, WebhookSecretFile: secret}
		spiked(t, c.Database)
	})
	select {
	case body := <-bodies:
		labels, _ := body["commonLabels"].(map[string]any)
		url, _ := body["externalURL"].(string)
		if labels["alertname"] != "HeadgateShadowSpike" || labels["rule"] != "login" || url != "https://"+p.HTTPAddr().String() {
			t.Errorf("%v", body)
		}
	case <-time.After(patience):
		t.Fatal("no alert came")
	}
	admin := adminpb.NewAdminServiceClient(p.connect(p.token("ops", access.Admin, nil)))
	alerts, err := admin.ListAlerts(t.Context(), &adminpb.ListAlertsRequest{Domain: "api"})
	if err != nil || len(alerts.GetAlerts()) != 1 {
		t.Errorf("alerts: %v, %v, want one", alerts, err)
	}
	answers, err := admin.TestAlerts(t.Context(), &adminpb.TestAlertsRequest{})
	if err != nil || len(answers.GetAnswers()) != 1 || answers.GetAnswers()[0].GetError() != "" {
		t.Errorf("a test: %v, %v, want that the webhook takes it", answers, err)
	}
}

// spiked makes a database with a rule in shadow that would refuse all that comes, as was found three times.
func spiked(t *testing.T, file string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	store, err := sqlite.Open(t.Context(), file)
	check(err)
	rule := rules.Rule{Domain: "api", Name: "login", UID: rules.NewUID(), Salt: 1, Candidate: &rules.Version{Number: 1, Spec: rollouttest.Spec(t, "5/min")}}
	_, err = store.Commit(t.Context(), "api", func(rollout.Tx) (*rollout.Change, error) {
		return &rollout.Change{Record: rollout.Record{Domain: "api", Before: []byte("{}"), After: []byte("{}")}, Rules: []rules.Rule{rule}}, nil
	})
	check(err)
	round := time.Now().UTC().Truncate(spike.Every)
	v := tally.VersionTally{Domain: "api", UID: rule.UID, Version: 1}
	v.Counts[tally.WhatIfCell(tally.WouldRefuse, tally.BesideNone, false)] = 15
	check(store.SaveWindows(t.Context(), []tally.SourceWindows{{
		Source:  tally.Source{Node: "n", Epoch: "e"},
		Windows: []tally.Window{{Number: 1, Start: round.Add(-time.Minute), End: round.Add(tally.Span - time.Minute), Versions: []tally.VersionTally{v}}},
	}}))
	watch := alert.Watch{VersionID: alert.VersionID{UID: rule.UID, Version: 1}}
	watch.Would.Streak = 3
	check(store.SaveRound(t.Context(), time.Time{}, alert.Round{At: round.Add(-spike.Every), Settled: round.Add(-spike.Lag), Watches: []alert.Watch{watch}}))
	check(store.Close())
}

func TestWhereAlertsGoIsChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	secret := write("secret", "key")
	for name, c := range map[string]struct {
		alerts app.Alerts
		want   string
	}{
		"no secret":       {app.Alerts{Webhooks: []string{"http://h"}}, "--webhook: needs --webhook-secret-file"},
		"no file":         {app.Alerts{Webhooks: []string{"http://h"}, WebhookSecretFile: filepath.Join(dir, "none")}, "--webhook-secret-file: "},
		"an empty file":   {app.Alerts{SlackWebhookFile: write("empty", " \n")}, "--slack-webhook-file: the file "},
		"no URL in it":    {app.Alerts{SlackWebhookFile: write("slack", "hunter2")}, "--slack-webhook-file: the URL of a target (slack) is none"},
		"no URL":          {app.Alerts{Alertmanagers: []string{"hunter2:9093"}}, "--alertmanager, "},
		"a secret and no": {app.Alerts{WebhookSecretFile: secret}, ""},
	} {
		config := app.DefaultConfig()
		config.Database, config.GRPCListen, config.HTTPListen = filepath.Join(dir, "db "+name), "127.0.0.1:0", "127.0.0.1:0"
		config.Alerts = c.alerts
		a, err := app.New(t.Context(), config, slog.New(slog.DiscardHandler))
		if err == nil {
			err = a.Close()
		}
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2")):
			t.Errorf("%s: %v, want %q, and not what may be a secret", name, err, c.want)
		}
		if name == "no file" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
