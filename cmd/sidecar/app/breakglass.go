package app

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/renameio/v2"

	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
)

// maxReports is how many records of freezes are kept for the control plane.
const maxReports = 100

// breakGlass makes and ends freezes of this sidecar alone, for when the control plane is gone, and remembers them until it
// is back and over a restart. A freeze always gets through: where it cannot be written to disk, it is in force all the same.
type breakGlass struct {
	engine  *enforce.Engine
	path    string // of the file; "" keeps none
	log     *slog.Logger
	changed func() // there is something else to report; it must not block

	mu      sync.Mutex
	records []rollout.BreakGlass // the newest first: maxReports of them, and older ones that are in force
}

// breakGlassFile is beside the file of the last good rules, without which there is none.
func breakGlassFile(lastGood string) string {
	if lastGood == "" {
		return ""
	}
	return lastGood + ".freezes"
}

// newBreakGlass puts the freezes of the file that have not ended in force again. A file that cannot be read is logged.
func newBreakGlass(engine *enforce.Engine, path string, log *slog.Logger) *breakGlass {
	g := &breakGlass{engine: engine, path: path, log: log, changed: func() {}}
	if err := g.load(); err != nil {
		log.Error("freezes made here before the start are lost", "err", err)
	}
	for i, holds := range standing(g.records, time.Now()) {
		b := &g.records[i]
		if !holds {
			continue
		}
		if err := engine.Freeze(b.Domain, b.Freeze); err != nil {
			log.Error("a freeze made here before the start is lost", "domain", b.Domain, "rule", b.Freeze.Rule, "err", err)
			continue
		}
		log.Warn("still frozen, on this sidecar alone", "domain", b.Domain, "rule", b.Freeze.Rule, "until", b.Freeze.Until, "actor", b.Actor)
	}
	return g
}

// Reports returns the records that the control plane is told of, the newest first.
func (g *breakGlass) Reports() []rollout.BreakGlass {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.records[:min(len(g.records), maxReports)])
}

// freeze freezes a domain, or a rule of it, from now on. The warning says what could not be done beside that.
func (g *breakGlass) freeze(domain string, f rules.Freeze, length time.Duration, actor string) (warning string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := time.Now().UTC().Truncate(time.Microsecond)
	f.Until = at.Add(length)
	if err := g.engine.Freeze(domain, f); err != nil {
		return "", err
	}
	g.log.Warn("frozen, on this sidecar alone", "domain", domain, "rule", f.Rule, "until", f.Until, "including_closed", f.IncludingClosed, "actor", actor)
	return g.record(rollout.BreakGlass{At: at, Actor: actor, Domain: domain, Freeze: f}), nil
}

// unfreeze ends a freeze that was made here.
func (g *breakGlass) unfreeze(domain, rule, actor string) (warning string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.engine.Unfreeze(domain, rule) {
		return "", fmt.Errorf("%w: no freeze of %s was made at this sidecar; one that came with the domain is ended at the control plane",
			rules.ErrNotFound, target(domain, rule))
	}
	g.log.Warn("no longer frozen by this sidecar itself", "domain", domain, "rule", rule, "actor", actor)
	at := time.Now().UTC().Truncate(time.Microsecond)
	return g.record(rollout.BreakGlass{At: at, Actor: actor, Domain: domain, Freeze: rules.Freeze{Rule: rule, Until: at}}), nil
}

// actors returns who made the freezes that are in force here, by what they are of.
func (g *breakGlass) actors() map[string]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	by := map[string]string{}
	for i, holds := range standing(g.records, time.Now()) {
		if holds {
			by[target(g.records[i].Domain, g.records[i].Freeze.Rule)] = g.records[i].Actor
		}
	}
	return by
}

// record keeps a record. The caller holds mu.
func (g *breakGlass) record(b rollout.BreakGlass) (warning string) {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails since Go 1.24
	b.ID = hex.EncodeToString(id[:])
	g.records = append([]rollout.BreakGlass{b}, g.records...)
	if len(g.records) > maxReports {
		old := &g.records[maxReports]
		g.log.Warn("a freeze made here is not reported any more: there are too many newer ones",
			"id", old.ID, "at", old.At, "domain", old.Domain, "rule", old.Freeze.Rule, "until", old.Freeze.Until, "actor", old.Actor)
	}
	kept := g.records[:0:0]
	for i, holds := range standing(g.records, b.At) {
		if holds || i < maxReports {
			kept = append(kept, g.records[i])
		}
	}
	g.records = kept
	g.changed()
	if g.path == "" {
		return "a restart of this sidecar will forget it: there is no --last-good file, beside which it would be kept"
	}
	if err := g.save(); err != nil {
		g.log.Error("freezes made here will not survive a restart", "err", err)
		return "a restart of this sidecar will forget it: " + err.Error()
	}
	return ""
}

// standing reports which of the records, the newest first, are of freezes that hold at the time. The newest one about a
// domain or rule says all about it.
func standing(records []rollout.BreakGlass, now time.Time) []bool {
	holds := make([]bool, len(records))
	told := map[string]bool{}
	for i := range records {
		of := target(records[i].Domain, records[i].Freeze.Rule)
		holds[i] = !told[of] && now.Before(records[i].Freeze.Until)
		told[of] = true
	}
	return holds
}

// target is "domain" or "domain/rule".
func target(domain, rule string) string {
	if rule == "" {
		return domain
	}
	return domain + "/" + rule
}

func (g *breakGlass) load() error {
	if g.path == "" {
		return nil
	}
	b, err := os.ReadFile(g.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var records []rollout.BreakGlass
	if err := json.Unmarshal(b, &records); err != nil {
		return fmt.Errorf("%s is damaged: %w", g.path, err)
	}
	g.records = records
	return nil
}

// save replaces the file in one step: after a crash at any moment there is the old one or the new one.
func (g *breakGlass) save() error {
	b, err := json.Marshal(g.records)
	if err != nil {
		return err
	}
	// The temporary file must be on the same file system as its target, so not in the system's folder for such files.
	return renameio.WriteFile(g.path, b, 0o600, renameio.WithTempDir(filepath.Dir(g.path)), renameio.WithStaticPermissions(0o600))
}
