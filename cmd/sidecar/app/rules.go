package app

import (
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/enforce/meter"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds/subscribe"
)

// inForce puts each committed set of the stream in force.
type inForce struct {
	engine *enforce.Engine
	meter  *meter.Meter
	ready  func(domain string) // is told of each
}

var _ subscribe.Sink = inForce{}

// Check has nothing to add: a spec that decodes is one that this program enforces.
func (inForce) Check(*rules.Rule) error { return nil }

// Apply swaps the domain's rules. The series of new versions exist before the first request meets them, and those of old
// ones go after the last.
func (f inForce) Apply(u subscribe.Update) {
	index := rules.NewIndex(u.Domain, u.Rules)
	f.meter.Install(index)
	f.engine.Swap(index)
	f.meter.Retire(u.Domain.Name)
	f.ready(u.Domain.Name)
}
