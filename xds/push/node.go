package push

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/xds"
)

// Bounds of what a node may make this process keep.
const (
	maxText    = 512 // bytes of its id, its program, the reason of a refusal
	maxDomains = 1000
	maxLevel   = 1_000_000
	maxLineage = 64
)

// nodeInfo is what a node says of itself in the first request of a stream.
type nodeInfo struct {
	node string
	// instance tells one run of the node's program from another; "" where it does not say.
	instance string
	program  string
	level    int
	number   int64 // of the stream; 0 where it does not say
}

func parseNode(n *core.Node) (nodeInfo, error) {
	id := n.GetId()
	if id == "" || len(id) > maxText || id != printable(id) {
		return nodeInfo{}, fmt.Errorf("%w: the first request must name the node, with a printable id of at most %d bytes", rules.ErrInvalid, maxText)
	}
	field := func(name string) string { return n.GetMetadata().GetFields()[name].GetStringValue() }
	info := nodeInfo{
		node: id, instance: printable(field(xds.InstanceField)),
		program: printable(strings.TrimSpace(n.GetUserAgentName() + " " + n.GetUserAgentVersion())),
	}
	var err error
	if info.level, err = strconv.Atoi(cmp.Or(field(xds.LevelField), "1")); err != nil || info.level < 1 || info.level > maxLevel {
		return nodeInfo{}, fmt.Errorf("%w: node %q: %s is a number from 1 to %d", rules.ErrInvalid, id, xds.LevelField, maxLevel)
	}
	if info.number, err = strconv.ParseInt(cmp.Or(field(xds.StreamField), "0"), 10, 64); err != nil || info.number < 0 {
		return nodeInfo{}, fmt.Errorf("%w: node %q: %s is a number from 1", rules.ErrInvalid, id, xds.StreamField)
	}
	return info, nil
}

// checkOffers refuses what no client holds: a node whose state cannot be read must not pass for one that has nothing, and
// be sent everything.
func checkOffers(versions map[string]string) error {
	for name, version := range versions {
		domain, rule := xds.SplitName(name)
		problem := rules.CheckName(domain)
		if problem == "" && rule != "" && rule != xds.Settings {
			problem = rules.CheckName(rule)
		}
		if rule == "" && problem == "" {
			lineage, _, ok := xds.ParseDomainVersion(version)
			if !ok || len(lineage) > maxLineage || strings.Trim(lineage, lineageLetters) != "" {
				problem = fmt.Sprintf("%q is no revision of a history", printable(version))
			}
		}
		if len(version) > maxText {
			problem = "its version is too long"
		}
		if problem != "" {
			return fmt.Errorf("%w: offer of %q: %s", rules.ErrInvalid, printable(name), problem)
		}
	}
	return nil
}

// lineageLetters are those of a lineage: it is shown as part of a command.
const lineageLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// parseBreakGlass reads a node's reports. Those that say what cannot be are left out, and bad says of one why.
func parseBreakGlass(text string) (list []rollout.BreakGlass, bad error) {
	if len(text) > xds.MaxBreakGlassBytes {
		return nil, fmt.Errorf("%w: break-glass reports of %d bytes: at most %d are read", rules.ErrInvalid, len(text), xds.MaxBreakGlassBytes)
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%w: break-glass reports: %w", rules.ErrInvalid, err)
	}
	if len(list) > xds.MaxBreakGlass {
		list, bad = list[:xds.MaxBreakGlass], fmt.Errorf("%w: %d break-glass reports: the first %d are read", rules.ErrInvalid, len(list), xds.MaxBreakGlass)
	}
	sound := list[:0]
	for _, b := range list {
		if problem := checkBreakGlass(&b); problem != "" {
			bad = fmt.Errorf("%w: break-glass report %q: %s", rules.ErrInvalid, printable(b.ID), problem)
			continue
		}
		b.At, b.Freeze.Until = b.At.UTC().Truncate(time.Microsecond), b.Freeze.Until.UTC().Truncate(time.Microsecond)
		sound = append(sound, b)
	}
	return sound, bad
}

func checkBreakGlass(b *rollout.BreakGlass) (problem string) {
	const maxID = 64
	switch {
	case b.ID == "" || len(b.ID) > maxID || b.ID != printable(b.ID):
		return fmt.Sprintf("its id is not a printable text of at most %d bytes", maxID)
	case len(b.Actor) > maxText || b.Actor != printable(b.Actor):
		return fmt.Sprintf("the actor is not a printable text of at most %d bytes", maxText)
	case b.At.IsZero():
		return "the time is missing"
	case b.Freeze.Until.After(b.At.Add(rules.MaxFreeze)):
		return fmt.Sprintf("it lasts longer than %v", rules.MaxFreeze)
	case b.Freeze.Rule != "":
		return rules.CheckName(b.Freeze.Rule)
	}
	return ""
}

// printable makes a node's text safe to store and to show: bounded, and without control characters, among them the NUL
// that Postgres refuses and with it the whole batch.
func printable(text string) string {
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}
