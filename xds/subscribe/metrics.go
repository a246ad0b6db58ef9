package subscribe

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	revision       *prometheus.GaugeVec
	rejected       *prometheus.CounterVec
	removalIgnored *prometheus.CounterVec
	connected      prometheus.Gauge
	saveFailed     prometheus.Counter
	foreign        *prometheus.CounterVec
}

// Why a response, or a resource in one, is not for this stream: the values of a label.
const (
	foreignType   = "type"   // of another type than was asked for
	foreignNonce  = "nonce"  // it came before, or cannot be answered
	foreignDomain = "domain" // not subscribed to
	foreignHuge   = "huge"   // more than is collected without a commit
)

// newMetrics registers the metrics, and names each domain at once: a counter that is absent until it first counts hides
// its first event from rate().
func newMetrics(r prometheus.Registerer, domains []string) (*metrics, error) {
	m := &metrics{
		revision: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "headgate_config_revision", Help: "Revision of the domain that is in force; 0 when none is.",
		}, []string{"domain"}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_config_rejected_total", Help: "Resources from the control plane that could not be taken.",
		}, []string{"domain"}),
		removalIgnored: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_config_removal_ignored_total", Help: "Times the control plane knew nothing of a domain that is in force here.",
		}, []string{"domain"}),
		connected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "headgate_config_connected", Help: "1 while the stream to the control plane is open.",
		}),
		saveFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headgate_config_save_failed_total", Help: "Times the last good rules could not be written to disk.",
		}),
		foreign: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headgate_config_foreign_total", Help: "Responses of the control plane, or resources in them, that were not for this sidecar, by reason.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{foreignType, foreignNonce, foreignDomain, foreignHuge} {
		m.foreign.WithLabelValues(reason)
	}
	for _, d := range domains {
		m.revision.WithLabelValues(d)
		m.rejected.WithLabelValues(d)
		m.removalIgnored.WithLabelValues(d)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.revision, m.rejected, m.removalIgnored, m.connected, m.saveFailed, m.foreign} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
