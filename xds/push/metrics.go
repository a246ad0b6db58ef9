package push

import "github.com/prometheus/client_golang/prometheus"

// Why something that a client said was refused: the values of a label.
const (
	refusedType       = "type"        // another resource type
	refusedNode       = "node"        // it does not say well who it is
	refusedConflict   = "conflict"    // another program, or an earlier stream, of a node that is connected in the domain
	refusedDomains    = "domains"     // subscribes to what is no domain, or to too many
	refusedForbidden  = "forbidden"   // subscribes to what it may not, or its credential has expired
	refusedOffer      = "offer"       // holds what no client holds
	refusedNonce      = "nonce"       // answers what was not sent, or was answered
	refusedBreakGlass = "break_glass" // reports that cannot be; these alone do not end the stream
)

// newRefused names each reason at once: a counter that is absent until it first counts hides its first event from rate().
func newRefused() *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "headgate_xds_refused_total", Help: "What sidecars said on their streams and was refused, by reason.",
	}, []string{"reason"})
	for _, reason := range []string{
		refusedType, refusedNode, refusedConflict, refusedDomains, refusedForbidden, refusedOffer, refusedNonce, refusedBreakGlass,
	} {
		c.WithLabelValues(reason)
	}
	return c
}

// refuse counts the refusal and returns err, which says it.
func (f *Fleet) refuse(reason string, err error) error {
	f.refused.WithLabelValues(reason).Inc()
	return err
}
