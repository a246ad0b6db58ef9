package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// defaultOps is where a sidecar on this machine has its operations port.
const defaultOps = "127.0.0.1:8082"

type inspectFlags struct {
	overrideFlags
	sidecar, ip, plan string
}

func (a *app) inspectCommand() *cobra.Command {
	var f inspectFlags
	cmd := &cobra.Command{
		Use:   "inspect RULE --key V[,V2…] [--sidecar HOST:PORT]",
		Short: "Show what one key has spent and has left, until when, and which version binds for it",
		Long: "Inspect asks the operations port of a sidecar, which reads the counters and changes none. So it says what the sidecar\n" +
			"enforces now, also when the control plane is gone. The values of the key are in no log, and in no output.\n\n" +
			"The values are those of the stable version's key. A rule without a key takes none: which side of a cohort is meant\n" +
			"is then decided by the client address, --ip. Where the limit depends on a plan (limit.by), --plan says which.",
		Example: "  rulectl inspect public-api/login --key 203.0.113.7\n" +
			"  rulectl inspect public-api/api-key-plan --key K3Y --plan pro --sidecar 10.0.0.7:8082",
		GroupID: groupLook,
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(ctx context.Context, args []string) error { return a.inspect(ctx, args[0], &f) }),
	}
	cmd.Flags().StringArrayVar(&f.key, "key", nil, keyUsage)
	cmd.Flags().StringVar(&f.sidecar, "sidecar", defaultOps, "HOST:PORT of a sidecar's operations port")
	cmd.Flags().StringVar(&f.ip, "ip", "", "client address, for a rule without a key")
	cmd.Flags().StringVar(&f.plan, "plan", "", "value of limit.by, such as the customer's plan")
	a.domainFlag(cmd, "domain of the rule")
	return cmd
}

// inspection is a sidecar's answer.
type inspection struct {
	Domain   string             `json:"domain"`
	Rule     string             `json:"rule"`
	Revision int64              `json:"revision"`
	State    string             `json:"state"`
	Percent  float64            `json:"percent"`  // of keys for which the candidate binds
	InCohort *bool              `json:"inCohort"` // null: it depends on the client address, which was not given
	Versions []inspectedVersion `json:"versions"` // the stable first
	Error    string             `json:"error,omitempty"`
}

func (i *inspection) wrong() string { return i.Error }

type inspectedVersion struct {
	Version     int64            `json:"version"`
	Candidate   bool             `json:"candidate"`
	Part        string           `json:"part"` // binds, what-if, frozen or either
	FrozenUntil *time.Time       `json:"frozenUntil,omitempty"`
	Key         []string         `json:"key"`
	Unknown     string           `json:"unknown,omitempty"` // why there are no limits
	Limits      []inspectedLimit `json:"limits"`
}

type inspectedLimit struct {
	Name          string     `json:"name,omitempty"`
	Rate          string     `json:"rate"` // for this key
	By            string     `json:"by,omitempty"`
	OverrideUntil *time.Time `json:"overrideUntil,omitempty"`
	Spent         int64      `json:"spent"`
	Left          int64      `json:"left"`
	Wait          int64      `json:"wait"`  // seconds until a call of cost 1 passes; 0: now; -1: never
	Reset         int64      `json:"reset"` // seconds until all is left; -1: never
}

func (a *app) inspect(ctx context.Context, rule string, f *inspectFlags) error {
	domain, name, err := a.ruleName(rule)
	if err != nil {
		return err
	}
	form := url.Values{"domain": {domain}, "rule": {name}, "plan": {f.plan}}
	if len(f.key) > 0 {
		form["key"] = f.values()
	}
	if f.ip != "" {
		if _, err := netip.ParseAddr(f.ip); err != nil {
			return usagef("--ip is not an address")
		}
		form.Set("ip", f.ip)
	}
	var in inspection
	err = a.askSidecar(ctx, f.sidecar, http.MethodPost, "/inspect", form, &in)
	switch {
	case err != nil && len(f.key) == 0 && strings.Contains(err.Error(), " values for a key of "):
		return fmt.Errorf("%w; name the value of each with --key", err)
	case err != nil:
		return err
	}
	if err := f.refuseNamed(in.sources()); err != nil {
		return err
	}
	if a.structured() {
		return a.printData(struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
			*inspection
		}{apiVersion, "Inspection", &in})
	}
	_, err = fmt.Fprint(a.io.Out, in.text(f.plan, time.Now()))
	return err
}

// sources are those of the keys of all versions.
func (i *inspection) sources() (list []string) {
	for _, v := range i.Versions {
		list = append(list, v.Key...)
	}
	return list
}

func (i *inspection) text(plan string, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Rule:    %s/%s, %s (revision %d)\nCohort:  %s\n\n", oneLine(i.Domain), oneLine(i.Rule), oneLine(i.State), i.Revision, i.cohort())
	var rows [][]string
	var notes [][]string
	for _, v := range i.Versions {
		version, part := fmt.Sprintf("v%d", v.Version), v.words(now)
		if v.Unknown != "" {
			rows = append(rows, []string{version, part})
			notes = append(notes, []string{"counts by " + strings.Join(v.Key, ",") + ": " + v.Unknown + ", so nothing is known of it"})
		}
		for _, l := range v.Limits {
			row := []string{version, part, l.Name, l.Rate, "-", "-", "at any time", "-"}
			if l.Rate != "unlimited" {
				row = []string{version, part, l.Name, l.Rate, fmt.Sprint(l.Spent), fmt.Sprint(l.Left), untilText(l.Wait, "now", now), untilText(l.Reset, "now", now)}
			}
			rows, notes = append(rows, row), append(notes, l.notes(plan, now))
		}
	}
	header := []string{"VERSION", "PART", "LIMIT", "RATE", "SPENT", "LEFT", "A CALL PASSES", "ALL IS LEFT"}
	for n := range rows {
		rows[n] = append(rows[n], make([]string, len(header)-len(rows[n]))...)
	}
	t := table{header: header, right: []string{"SPENT", "LEFT"}}
	b.WriteString(t.render(rows, func(row int) []string { return notes[row] }))
	return b.String()
}

func (i *inspection) cohort() string {
	switch {
	case i.InCohort == nil:
		return fmt.Sprintf("by the client address, %g%% of them: name it with --ip", i.Percent)
	case *i.InCohort:
		return fmt.Sprintf("in it (%g%% of keys): the candidate binds", i.Percent)
	case i.Percent > 0:
		return fmt.Sprintf("not in it (%g%% of keys): the candidate does not bind", i.Percent)
	}
	return "none: no candidate binds for a part of the keys"
}

func (v *inspectedVersion) words(now time.Time) string {
	switch {
	case v.Part == "frozen" && v.FrozenUntil != nil:
		return "❄ frozen for " + left(*v.FrozenUntil, now)
	case v.Part == "binds":
		return "✔ binds"
	case v.Part == "either":
		return "◌ by address"
	}
	return "◌ what-if"
}

func (l *inspectedLimit) notes(plan string, now time.Time) (list []string) {
	if l.OverrideUntil != nil {
		list = append(list, fmt.Sprintf("⚠ an override, until %s (%s left)", when(*l.OverrideUntil), left(*l.OverrideUntil, now)))
	} else if l.By != "" && plan == "" {
		list = append(list, fmt.Sprintf("the rate depends on %s: name its value with --plan", l.By))
	}
	return list
}

// untilText is when something comes that is so many seconds away.
func untilText(seconds int64, none string, now time.Time) string {
	const longest = 100 * 366 * 24 * 3600 // what is further away comes never
	switch {
	case seconds < 0 || seconds > longest:
		return "never"
	case seconds == 0:
		return none
	}
	d := time.Duration(seconds) * time.Second
	return fmt.Sprintf("in %s, %s", age(d), when(now.Add(d)))
}
