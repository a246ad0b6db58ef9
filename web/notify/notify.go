// Package notify tells others of alerts: Alertmanagers, webhooks and Slack.
//
// The picture to hold: the alerts in the database, each with what was delivered of it, are the queue. For every target
// one goroutine of the leader looks every few seconds for what the target has not been told, sends it, and notes it as
// delivered once the target took it. So nothing piles up in memory, a target that is away holds up neither the others nor the
// evaluation, and another leader goes on where this one was: a target hears of each status of an alert once, or twice when
// the leader dies between sending and noting. An Alertmanager is told again while an alert fires, since it forgets it otherwise.
//
// Nothing is sent of a rule that is silenced, but the end of what was told before. Where the targets are is
// said by whoever starts the control plane. Their URLs may hold secrets: errors, logs and metrics name the host alone. No
// redirect is followed.
package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/alert"
)

const (
	every      = 5 * time.Second // looks for what has not been delivered
	sendTime   = 10 * time.Second
	resend     = time.Minute     // to an Alertmanager, while it fires
	forgetTime = 5 * time.Minute // after which an Alertmanager that hears no more takes it for resolved
	firstPause = 2 * time.Second // after a failure; doubled each time
	maxPause   = time.Minute
	maxAsked   = 10 * time.Minute // that a target may ask for between two calls
	// endsFor is how long the end of an alert is still delivered.
	endsFor = time.Hour
	// most alerts are looked at, the newest of them.
	most = 1000
)

// Store is what the queue is made of.
type Store interface {
	Alerts(ctx context.Context, q alert.Query) ([]alert.Alert, error)
	MarkDelivered(ctx context.Context, list []alert.Delivery) error
	Silences(ctx context.Context, domain string) ([]rollout.Silence, error)
}

// Options are the settings of a [Notifier].
type Options struct {
	// Alertmanagers are their URLs, without the path of the API. All of them are told, as Prometheus does.
	Alertmanagers []string
	// Webhooks get the body that Alertmanager sends to its own, signed with the Secret.
	Webhooks []string
	Secret   []byte
	// Slack is the URL of an incoming webhook; "": none. It is a secret.
	Slack string
	// ExternalURL is where people find the control plane.
	ExternalURL string

	Now        func() time.Time      // nil: time.Now
	Log        *slog.Logger          // nil: none
	Registerer prometheus.Registerer // nil: none
}

// Notifier sends. It is safe for concurrent use.
type Notifier struct {
	store       Store
	targets     []*target
	externalURL string
	now         func() time.Time
	log         *slog.Logger
	client      *http.Client
	sent        *prometheus.CounterVec
}

// kind is what a target is.
type kind string

const (
	alertmanager kind = "alertmanager"
	webhook      kind = "webhook"
	slack        kind = "slack"
)

// target is one receiver.
type target struct {
	kind   kind
	name   string // kind and host
	id     string // kind and a hash of the URL: what was delivered is noted under it
	url    string // a secret
	secret []byte
}

// New returns a notifier. A URL that is none is an error that does not repeat it.
func New(store Store, o Options) (*Notifier, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert,errcheck // it is one
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	transport.MaxIdleConnsPerHost = 1
	n := &Notifier{
		store: store, externalURL: o.ExternalURL, now: o.Now, log: o.Log,
		client: &http.Client{Transport: transport, Timeout: sendTime, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		sent: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_notifications_total", Help: "What was sent of alerts, by the kind of the target and the result.",
		}, []string{"target", "result"}),
	}
	if n.now == nil {
		n.now = time.Now
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if err := n.add(o); err != nil {
		return nil, err
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(n.sent); err != nil {
			return nil, fmt.Errorf("register the metrics of notifications: %w", err)
		}
	}
	return n, nil
}

// add makes the targets. One that is named twice is told once.
func (n *Notifier) add(o Options) error {
	var errs []error
	for _, some := range []struct {
		kind kind
		urls []string
	}{{alertmanager, o.Alertmanagers}, {webhook, o.Webhooks}, {slack, []string{o.Slack}}} {
		for _, text := range some.urls {
			if text == "" {
				continue
			}
			t, err := newTarget(some.kind, text)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if some.kind == webhook {
				if t.secret = o.Secret; len(t.secret) == 0 {
					errs = append(errs, fmt.Errorf("%s: without a secret nobody could tell who calls", t.name))
				}
			}
			if !slices.ContainsFunc(n.targets, func(other *target) bool { return other.id == t.id }) {
				n.targets = append(n.targets, t)
			}
			n.sent.WithLabelValues(string(t.kind), "sent")
			n.sent.WithLabelValues(string(t.kind), "failed")
		}
	}
	return errors.Join(errs...)
}

func newTarget(k kind, text string) (*target, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("the URL of a target (%s) is none: it begins with https:// or http:// and a host", k)
	}
	if k == alertmanager {
		u = u.JoinPath("api/v2/alerts")
	}
	sum := sha256.Sum256([]byte(u.String()))
	return &target{kind: k, name: string(k) + " " + u.Host, id: string(k) + ":" + hex.EncodeToString(sum[:8]), url: u.String()}, nil
}

// Run delivers until ctx ends, and returns nil then.
func (n *Notifier) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, t := range n.targets {
		all.Go(func() { n.serve(ctx, t) })
	}
	all.Wait()
	return nil
}

// serve delivers to one target. While that is away, pauses grow.
func (n *Notifier) serve(ctx context.Context, t *target) {
	pause := &backoff.ExponentialBackOff{InitialInterval: firstPause, RandomizationFactor: 0.5, Multiplier: 2, MaxInterval: maxPause}
	pause.Reset()
	failing := false
	lastTold := map[string]time.Time{} // alerts that fire, by ID
	for {
		wait := every
		switch err := n.deliver(ctx, t, lastTold); {
		case ctx.Err() != nil:
			return
		case err != nil:
			wait = max(pause.NextBackOff(), min(retryAfter(err), maxAsked))
			if !failing {
				n.log.Warn("alerts are not delivered; it is tried again", "target", t.name, "err", err)
			}
			failing = true
		case failing:
			pause.Reset()
			n.log.Info("alerts are delivered again", "target", t.name)
			failing = false
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// deliver sends what is due. A target that is away, or has had enough, is left alone; one that refuses an alert gets the others.
func (n *Notifier) deliver(ctx context.Context, t *target, lastTold map[string]time.Time) error {
	due, err := n.due(ctx, t, lastTold)
	if err != nil {
		return err
	}
	var errs []error
	for _, batch := range t.batches(due) {
		err := n.send(ctx, t, batch)
		if err == nil {
			err = n.note(ctx, t, batch, lastTold)
		}
		if err == nil {
			continue
		}
		errs = append(errs, err)
		if refused := (*statusError)(nil); !errors.As(err, &refused) || refused.away() {
			break
		}
	}
	return errors.Join(errs...)
}

// due are the alerts of which the target has something to hear, the oldest first.
func (n *Notifier) due(ctx context.Context, t *target, lastTold map[string]time.Time) ([]alert.Alert, error) {
	now := n.now()
	list, err := n.store.Alerts(ctx, alert.Query{ResolvedAfter: now.Add(-endsFor), Limit: most})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	silences, err := n.store.Silences(ctx, "")
	if err != nil {
		return nil, err
	}
	silenced := func(a *alert.Alert) bool {
		return slices.ContainsFunc(silences, func(s rollout.Silence) bool {
			return s.Domain == a.Domain && s.Rule == a.Rule && now.Before(s.Until)
		})
	}
	var due []alert.Alert
	for _, a := range slices.Backward(list) {
		told := a.Told(t.id, alert.Firing)
		switch {
		case !a.Resolved.IsZero() && (!told || a.Told(t.id, alert.Resolved)):
		case a.Resolved.IsZero() && !told && silenced(&a):
		case a.Resolved.IsZero() && told && (t.kind != alertmanager || now.Sub(lastTold[a.ID]) < resend):
		default:
			due = append(due, a)
		}
	}
	return due, nil
}

// batches are what is sent in one call: all to an Alertmanager, one by one to others.
func (t *target) batches(due []alert.Alert) [][]alert.Alert {
	size := 1
	if t.kind == alertmanager {
		size = 100
	}
	return slices.Collect(slices.Chunk(due, size))
}

// note notes what was delivered.
func (n *Notifier) note(ctx context.Context, t *target, batch []alert.Alert, lastTold map[string]time.Time) error {
	var list []alert.Delivery
	for i := range batch {
		a := &batch[i]
		status := statusOf(a)
		if status == alert.Resolved {
			delete(lastTold, a.ID)
		} else if t.kind == alertmanager {
			lastTold[a.ID] = n.now()
		}
		if !a.Told(t.id, status) {
			list = append(list, alert.Delivery{Alert: a.ID, Target: t.id, Status: status})
		}
	}
	if len(list) == 0 {
		return nil
	}
	return n.store.MarkDelivered(ctx, list)
}

func statusOf(a *alert.Alert) alert.Status {
	if a.Resolved.IsZero() {
		return alert.Firing
	}
	return alert.Resolved
}

// Targets are where alerts are sent: kind and host of each, in order.
func (n *Notifier) Targets() []string {
	names := make([]string, len(n.targets))
	for i, t := range n.targets {
		names[i] = t.name
	}
	slices.Sort(names)
	return names
}

// Answer is what a target said to a test.
type Answer struct {
	Target string // kind and host
	Err    error  // nil: it took it
}

// Test sends an alert that says it is a test to every target, once, and returns what each said.
func (n *Notifier) Test(ctx context.Context, by string) []Answer {
	answers := make([]Answer, len(n.targets))
	var all sync.WaitGroup
	for i, t := range n.targets {
		all.Go(func() { answers[i] = Answer{t.name, n.post(ctx, t, n.testMessage(by))} })
	}
	all.Wait()
	slices.SortStableFunc(answers, func(a, b Answer) int { return cmp.Compare(a.Target, b.Target) })
	return answers
}
