package ui

import "context"

// rolloutTab is how a candidate is being promoted.
type rolloutTab struct{}

// rolloutTab fills the tab of a rule's page; where the rule stands is read beside it.
func (u *UI) rolloutTab(_ context.Context, _ *request, page *rulePage) error {
	page.RolloutTab = &rolloutTab{}
	return nil
}
