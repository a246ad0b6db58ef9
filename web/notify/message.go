package notify

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/headgate/headgate/rules/rollout/alert"
)

// message is an alert as all targets know it.
type message struct {
	status      alert.Status
	labels      model.LabelSet
	annotations model.LabelSet
	starts      time.Time
	ends        time.Time // of what fires: until when that is known
}

// names of alerts, as the rules for Prometheus have them: an Alertmanager that hears of both takes them for one.
var names = map[alert.Kind]model.LabelValue{alert.Refused: "HeadgateRefusalSpike", alert.WouldRefuse: "HeadgateShadowSpike"}

// groupBy are the labels by which notifications are grouped, in the order of Alertmanager's groupKey.
var groupBy = []model.LabelName{model.AlertNameLabel, "domain", "rule"}

func (n *Notifier) message(a *alert.Alert) message {
	m := message{
		status: statusOf(a),
		labels: model.LabelSet{
			model.AlertNameLabel: names[a.Kind], "domain": model.LabelValue(a.Domain), "rule": model.LabelValue(a.Rule),
			"version": model.LabelValue(strconv.FormatInt(a.Version, 10)), "severity": model.LabelValue(a.Severity),
		},
		annotations: model.LabelSet{"summary": model.LabelValue(a.Summary()), "description": model.LabelValue(a.Description())},
		starts:      a.Since, ends: a.Resolved,
	}
	if len(a.Offers) > 0 && a.Resolved.IsZero() {
		m.annotations["rollback"] = model.LabelValue(a.Offers[0].Command)
	}
	if m.status == alert.Firing {
		m.ends = n.now().UTC().Add(forgetTime)
	}
	return m
}

func (n *Notifier) testMessage(by string) message {
	now := n.now().UTC()
	return message{
		status: alert.Firing,
		labels: model.LabelSet{model.AlertNameLabel: "HeadgateTest", "severity": model.LabelValue(alert.Info)},
		annotations: model.LabelSet{
			"summary":     "A test: nothing is wrong",
			"description": model.LabelValue("Sent by rulectl alert test, which " + by + " ran, to find out whether alerts arrive."),
		},
		starts: now, ends: now.Add(time.Minute),
	}
}

// postable is an alert of Alertmanager's v2 API.
type postable struct {
	Labels       model.LabelSet `json:"labels"`
	Annotations  model.LabelSet `json:"annotations"`
	StartsAt     time.Time      `json:"startsAt"`
	EndsAt       time.Time      `json:"endsAt"`
	GeneratorURL string         `json:"generatorURL,omitempty"`
}

func (n *Notifier) postable(m *message) postable {
	return postable{m.labels, m.annotations, m.starts, m.ends, n.externalURL}
}

// hook is the body of Alertmanager's webhooks, version 4.
type hook struct {
	Receiver          string         `json:"receiver"`
	Status            alert.Status   `json:"status"`
	Alerts            []hookAlert    `json:"alerts"`
	GroupLabels       model.LabelSet `json:"groupLabels"`
	CommonLabels      model.LabelSet `json:"commonLabels"`
	CommonAnnotations model.LabelSet `json:"commonAnnotations"`
	ExternalURL       string         `json:"externalURL"`
	Version           string         `json:"version"`
	GroupKey          string         `json:"groupKey"`
	TruncatedAlerts   uint64         `json:"truncatedAlerts"`
}

type hookAlert struct {
	Status       alert.Status   `json:"status"`
	Labels       model.LabelSet `json:"labels"`
	Annotations  model.LabelSet `json:"annotations"`
	StartsAt     time.Time      `json:"startsAt"`
	EndsAt       time.Time      `json:"endsAt"` // zero while it fires
	GeneratorURL string         `json:"generatorURL"`
	Fingerprint  string         `json:"fingerprint"`
}

// receiver is what the body calls whoever gets it.
const receiver = "headgate"

func (n *Notifier) hook(m *message) hook {
	group := model.LabelSet{}
	for _, name := range groupBy {
		if value, is := m.labels[name]; is {
			group[name] = value
		}
	}
	one := hookAlert{
		Status: m.status, Labels: m.labels, Annotations: m.annotations, StartsAt: m.starts, GeneratorURL: n.externalURL,
		Fingerprint: m.labels.Fingerprint().String(),
	}
	if m.status == alert.Resolved {
		one.EndsAt = m.ends
	}
	return hook{
		Receiver: receiver, Status: m.status, Alerts: []hookAlert{one}, GroupLabels: group, CommonLabels: m.labels,
		CommonAnnotations: m.annotations, ExternalURL: n.externalURL, Version: "4", GroupKey: "{}:" + group.String(),
	}
}

// slackBody is what an incoming webhook of Slack takes.
type slackBody struct {
	Text string `json:"text"`
}

// slackText keeps what callers chose from being markup, and so from calling everybody.
var slackText = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func (m *message) slack() slackBody {
	state := "FIRING"
	if m.status == alert.Resolved {
		state = "RESOLVED"
	} else if severity := m.labels["severity"]; severity != "" {
		state += " (" + string(severity) + ")"
	}
	return slackBody{slackText.Replace("*" + state + "* " + string(m.annotations["summary"]) + "\n" + string(m.annotations["description"]))}
}

// body is what a target is sent.
func (n *Notifier) body(t *target, list ...message) []byte {
	var v any
	switch t.kind {
	case alertmanager:
		all := make([]postable, len(list))
		for i := range list {
			all[i] = n.postable(&list[i])
		}
		v = all
	case webhook:
		v = n.hook(&list[0])
	case slack:
		v = list[0].slack()
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil // texts and times of our era always encode
	}
	return b
}
