package app

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/rules/rollout/alert"
	"github.com/headgate/headgate/web/notify"
)

// Alerts is where alerts go. Only whoever starts the program says it: a URL that users could set would let them make calls
// from here.
type Alerts struct {
	Alertmanagers     []string `env:"ALERTMANAGER"`        // URLs, without the path of the API
	Webhooks          []string `env:"WEBHOOK"`             // URLs
	WebhookSecretFile string   `env:"WEBHOOK_SECRET_FILE"` // holds the key of their signatures
	SlackWebhookFile  string   `env:"SLACK_WEBHOOK_FILE"`  // holds the URL of an incoming webhook
	ExternalURL       string   `env:"EXTERNAL_URL"`        // of the control plane, for people; "": its HTTP port
}

// openAlerts makes what finds alerts and what sends them; the leader runs both.
func (a *App) openAlerts(reg prometheus.Registerer, log *slog.Logger) (err error) {
	if a.watcher, err = alert.NewWatcher(a.store, a.store, a.store, alert.Options{Log: log, Registerer: reg}); err != nil {
		return err
	}
	where := a.config.Alerts
	o := notify.Options{Alertmanagers: where.Alertmanagers, Webhooks: where.Webhooks, ExternalURL: where.ExternalURL, Log: log, Registerer: reg}
	if o.ExternalURL == "" {
		o.ExternalURL = "http://" + a.HTTPAddr().String()
		if a.certs != nil {
			o.ExternalURL = "https://" + a.HTTPAddr().String()
		}
	}
	if o.Secret, err = readSecret("webhook-secret-file", where.WebhookSecretFile); err != nil {
		return err
	}
	slack, err := readSecret("slack-webhook-file", where.SlackWebhookFile)
	if err != nil {
		return err
	}
	o.Slack = string(slack)
	if a.notifier, err = notify.New(a.store, o); err != nil {
		return fmt.Errorf("--alertmanager, --webhook, --slack-webhook-file: %w", err)
	}
	return nil
}

// readSecret reads what a file holds, without white space at its ends; nothing where none is named.
func readSecret(flag, path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err == nil && len(bytes.TrimSpace(content)) == 0 {
		err = errors.New("the file " + path + " is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return bytes.TrimSpace(content), nil
}
