package subscribe

import "github.com/headgate/headgate/rules"

// Update is one domain's complete new set.
type Update struct {
	// Domain has revision 0 when the control plane knows no such domain: the set is then empty, and committed. Its shard
	// and exemptions are the last that could be taken, its freezes always the newest; some of them may have ended.
	Domain rules.Domain
	Rules  []*rules.Rule // by name; nobody changes them any more
}

// Sink puts rules in force. Its methods are called one after the other, from [Client.Restore] and [Client.Run].
type Sink interface {
	// Check says why a rule, well-formed as it is, cannot be put in force here; nil when it can.
	Check(rule *rules.Rule) error
	// Apply puts the set in force, in place of the domain's set before, when it returns. Every rule in it has passed Check.
	// The acknowledgement is sent afterwards.
	Apply(update Update)
}
