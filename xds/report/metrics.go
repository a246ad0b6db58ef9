package report

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func register(r prometheus.Registerer, list ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	for _, c := range list {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func gauge(name, help string, value func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

type clientMetrics struct {
	sent, stored, merged, keysDropped prometheus.Counter
	connected                         prometheus.Gauge
	waiting, age                      prometheus.GaugeFunc
}

// newClientMetrics asks state for how many windows are not known to be stored, and how old the oldest is.
func newClientMetrics(state func() (int, time.Duration)) *clientMetrics {
	return &clientMetrics{
		sent:        counter("headgate_report_windows_sent_total", "Windows of counts sent to the control plane, those repeated included."),
		stored:      counter("headgate_report_windows_stored_total", "Windows of counts that the control plane has stored."),
		merged:      counter("headgate_report_windows_merged_total", "Windows of counts that joined the one before, since they could not be sent for long."),
		keysDropped: counter("headgate_report_keys_dropped_total", "Windows whose most affected keys were given up, since they could not be sent for long. Their counts are kept."),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_report_connected", Help: "1 while the stream of counts to the control plane is open.",
		}),
		waiting: gauge("headgate_report_windows_waiting", "Windows of counts that are not known to be stored.", func() float64 {
			n, _ := state()
			return float64(n)
		}),
		age: gauge("headgate_report_oldest_window_age_seconds", "Age of the oldest window of counts that is not known to be stored; 0 without one.", func() float64 {
			_, age := state()
			return age.Seconds()
		}),
	}
}

func (m *clientMetrics) register(r prometheus.Registerer) error {
	return register(r, m.sent, m.stored, m.merged, m.keysDropped, m.connected, m.waiting, m.age)
}

// Why something that a node said was refused: the values of a label. Those of the first group end the stream.
const (
	refusedSource    = "source"    // it does not say well who it is, or sends what is no window
	refusedNode      = "node"      // nobody knows it: it has no stream of rules
	refusedForbidden = "forbidden" // another identity's node, a domain it may not count for, or its credential has expired
	refusedFlood     = "flood"     // opens streams too often
	refusedHistory   = "history"   // its rules are of another history

	refusedMalformed = "malformed" // out of bounds, or not printable
	refusedTime      = "time"      // of the future, or too old
	refusedRate      = "rate"      // more than a node can count
	refusedDomain    = "domain"    // of a domain that is not the node's or not the rule's
	refusedUnknown   = "unknown"   // of a rule or version that never was
	refusedUnsent    = "unsent"    // of a version that the node was not sent
	refusedRejected  = "rejected"  // of a version that the node did not take
)

type serverMetrics struct {
	refused          *prometheus.CounterVec
	stored, failed   prometheus.Counter
	streams, waiting prometheus.Gauge
}

// newServerMetrics names each reason at once: a counter that is absent until it first counts hides its first event from
// rate().
func newServerMetrics() *serverMetrics {
	m := &serverMetrics{
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_tally_refused_total", Help: "What nodes reported and was not believed, by reason: streams, or parts of windows.",
		}, []string{"reason"}),
		stored:  counter("headgate_tally_windows_stored_total", "Windows of nodes' counts that were stored."),
		failed:  counter("headgate_tally_save_failed_total", "Times nodes' counts could not be stored; they are tried again."),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{Name: "headgate_tally_streams", Help: "Nodes that report here."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "headgate_tally_windows_waiting", Help: "Windows of nodes' counts that wait to be stored."}),
	}
	for _, reason := range []string{
		refusedSource, refusedNode, refusedForbidden, refusedFlood, refusedHistory,
		refusedMalformed, refusedTime, refusedRate, refusedDomain, refusedUnknown, refusedUnsent, refusedRejected,
	} {
		m.refused.WithLabelValues(reason)
	}
	return m
}

func (m *serverMetrics) register(r prometheus.Registerer) error {
	return register(r, m.refused, m.stored, m.failed, m.streams, m.waiting)
}
