package meter

import "github.com/headgate/headgate/rules"

// HoldKeys takes the lock of a version's keys, as a request does that is counting, and returns what gives it back.
func (m *Meter) HoldKeys(v *rules.Version) (release func()) {
	k := &m.handle(v).version.keys
	k.mu.Lock()
	return k.mu.Unlock
}

// MaxWaiting is how many keys wait at most.
const MaxWaiting = maxWaiting

// MaxMinuteKeys is how many keys the samples of a minute have.
const MaxMinuteKeys = maxMinuteKeys
