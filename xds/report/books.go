package report

import (
	"context"
	"time"

	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/tally"
)

// lookAgain is how often the database is asked the same.
const lookAgain = time.Second

// maxBirths bounds what is remembered of rules.
const maxBirths = 100_000

// ruleBook remembers the rules and their versions, which never change but for new ones.
type ruleBook struct {
	store Store
	mine  chan struct{} // holds a token; who has it may use what follows
	known map[string]knownRule
}

type knownRule struct {
	tally.Birth
	asked time.Time
}

func newRuleBook(store Store) *ruleBook {
	b := &ruleBook{store: store, mine: make(chan struct{}, 1), known: map[string]knownRule{}}
	b.mine <- struct{}{}
	return b
}

// births returns what is known of the rules, whose newest version of interest is given by uid. It asks for those that are
// not known as far, at most once a second for each. Who asks at the same time waits and is then answered from memory.
func (b *ruleBook) births(ctx context.Context, newest map[string]int64) (map[string]tally.Birth, error) {
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-b.mine:
	}
	defer func() { b.mine <- struct{}{} }()
	var ask []string
	for uid, version := range newest {
		r, ok := b.known[uid]
		if !ok || version > int64(len(r.Revisions)) && time.Since(r.asked) >= lookAgain {
			ask = append(ask, uid)
		}
	}
	if len(ask) > 0 {
		if err := b.ask(ctx, ask); err != nil {
			return nil, err
		}
	}
	births := make(map[string]tally.Birth, len(newest))
	for uid := range newest {
		if r := b.known[uid]; r.Domain != "" {
			births[uid] = r.Birth
		}
	}
	return births, nil
}

func (b *ruleBook) ask(ctx context.Context, uids []string) error {
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	found, err := b.store.Births(ctx, uids)
	if err != nil {
		return err
	}
	if len(b.known)+len(uids) > maxBirths {
		clear(b.known)
	}
	for _, uid := range uids {
		b.known[uid] = knownRule{Birth: found[uid], asked: time.Now()}
	}
	return nil
}

// nodeBook knows the nodes: those whose stream of rules is open here from memory, the others as any replica wrote them
// down.
type nodeBook struct {
	fleet Fleet
	nodes Nodes
	mine  chan struct{} // holds a token; who has it may use what follows
	read  map[string]readNodes
}

type readNodes struct {
	nodes map[string]rollout.Node
	at    time.Time
}

func newNodeBook(fleet Fleet, nodes Nodes) *nodeBook {
	b := &nodeBook{fleet: fleet, nodes: nodes, mine: make(chan struct{}, 1), read: map[string]readNodes{}}
	b.mine <- struct{}{}
	return b
}

// node returns the node in the domain. What cannot be read is not known.
func (b *nodeBook) node(ctx context.Context, id, domain string) (node rollout.Node, ok bool) {
	if node, ok = b.fleet.Node(id, domain); ok {
		return node, true
	}
	select {
	case <-ctx.Done():
		return rollout.Node{}, false
	case <-b.mine:
	}
	defer func() { b.mine <- struct{}{} }()
	read, known := b.read[domain]
	if !known || time.Since(read.at) >= lookAgain {
		read = b.ask(ctx, domain)
	}
	node, ok = read.nodes[id]
	return node, ok
}

func (b *nodeBook) ask(ctx context.Context, domain string) readNodes {
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	list, err := b.nodes.Nodes(ctx, domain)
	if err != nil {
		return readNodes{}
	}
	read := readNodes{nodes: make(map[string]rollout.Node, len(list)), at: time.Now()}
	for _, n := range list {
		read.nodes[n.ID] = n
	}
	for other, old := range b.read {
		if time.Since(old.at) >= lookAgain {
			delete(b.read, other) // any domain can be asked for: only the fresh are kept
		}
	}
	b.read[domain] = read
	return read
}
