package storage

import (
	"encoding/json"
	"time"

	"github.com/headgate/headgate/rules/rollout/alert"
)

// EncodeFacts returns an alert or detectors as the JSON that a column holds.
func EncodeFacts(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "{}" // texts, finite numbers and times of our era always encode
	}
	return Text(string(b))
}

// Alert reads an alert as it is stored, with what was delivered of it as a JSON list of [target, status].
func Alert(facts, delivered string) (a alert.Alert, err error) {
	if err := json.Unmarshal([]byte(facts), &a); err != nil {
		return a, unreadable("an alert", err)
	}
	pairs, err := DecodeList[[2]string](delivered)
	for _, p := range pairs {
		a.Delivered = append(a.Delivered, alert.Delivery{Alert: a.ID, Target: p[0], Status: alert.Status(p[1])})
	}
	return a, err
}

// Watch reads the detectors of a version as they are stored.
func Watch(id alert.VersionID, state string) (alert.Watch, error) {
	w := alert.Watch{VersionID: id}
	if err := json.Unmarshal([]byte(state), &w.Detectors); err != nil {
		return w, unreadable("the detectors of a rule version", err)
	}
	return w, nil
}

// EndOfKeeping is when alerts must have been resolved for a round to remove them.
func EndOfKeeping(r *alert.Round) time.Time { return r.At.Add(-alert.Keep) }
