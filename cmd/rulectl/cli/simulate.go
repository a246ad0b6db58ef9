package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"net/textproto"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate/headgate/cmd/rulectl/replay"
	"github.com/headgate/headgate/enforce"
	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rulefile"
)

type simulateFlags struct {
	request, ip    string
	headers, attrs []string
	hits           int64
	repeat         int
	every          time.Duration
}

// maxSimulated bounds the requests of a simulation: each is a row that somebody reads.
const maxSimulated = 10_000

func (a *app) simulateCommand() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate -f FILE|DIR --request 'METHOD PATH'",
		Short: "Show what rule files make of a request over time, without a server",
		Long: "simulate decides one request again and again on a virtual clock, with all rules of the files enforced, and shows\n" +
			"each decision, and for each rule whether it applies and why not.",
		Example: "  rulectl simulate -f rules/ --request 'POST /v1/login' --ip 192.0.2.1 --repeat 20 --every 1s\n" +
			"  rulectl simulate -f rules/ --request 'GET /v1/items?page=2' -H 'x-api-key: k1' --attr tenant=acme",
		GroupID: groupAuthor,
		Args:    onlyFiles,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.simulate(ctx, f) }),
	}
	a.filesFlag(cmd)
	a.domainFlag(cmd, "the domain that decides, where the files have several")
	cmd.Flags().StringVar(&f.request, "request", "", "method and path, with the query where there is one")
	cmd.Flags().StringArrayVarP(&f.headers, "header", "H", nil, "header as 'NAME: VALUE'; may be repeated")
	cmd.Flags().StringVar(&f.ip, "ip", "", "client address")
	cmd.Flags().StringArrayVar(&f.attrs, "attr", nil, "attribute as NAME=VALUE; may be repeated")
	cmd.Flags().Int64Var(&f.hits, "hits", 1, "how many hits one request counts as; 0 looks without spending")
	cmd.Flags().IntVar(&f.repeat, "repeat", 1, "how many requests")
	cmd.Flags().DurationVar(&f.every, "every", 0, "time between two requests")
	return cmd
}

func (a *app) simulate(ctx context.Context, f simulateFlags) error {
	req, err := f.build()
	if err != nil {
		return err
	}
	sets, err := a.readSets()
	if err != nil {
		return err
	}
	set, err := replay.OneDomain(sets, a.domain)
	if err != nil {
		return usageError{err}
	}
	req.Domain = set.Domain
	s, err := runSimulation(ctx, set, req, f)
	if err != nil {
		return err
	}
	if a.structured() {
		return a.printData(s.item())
	}
	_, err = io.WriteString(a.io.Out, s.text())
	return err
}

// build makes the request that the flags describe.
func (f *simulateFlags) build() (*rules.Request, error) {
	method, target, ok := strings.Cut(f.request, " ")
	switch {
	case f.request == "":
		return nil, usagef("no request is given: use --request 'GET /path'")
	case !ok || method == "" || method != strings.ToUpper(method) || !strings.HasPrefix(target, "/"):
		return nil, usagef("--request %q is not METHOD PATH", f.request)
	case f.repeat < 1 || f.repeat > maxSimulated:
		return nil, usagef("--repeat must be from 1 to %d", maxSimulated)
	case f.every < 0 || f.every > 366*24*time.Hour || f.every%time.Microsecond != 0:
		return nil, usagef("--every must be from 0 to 366 days, in whole microseconds")
	case f.every > 0 && time.Duration(f.repeat) > 50*366*24*time.Hour/f.every:
		return nil, usagef("--repeat and --every go on for more than 50 years")
	}
	r := &rules.Request{Method: method, Hits: f.hits, Header: map[string][]string{}, Attr: map[string]string{}}
	path, query, _ := strings.Cut(target, "?")
	normal, err := rules.NormalizePath(path)
	if err != nil {
		return nil, usagef("--request %q: a sidecar answers 400, and no rule sees it: %w", f.request, err)
	}
	r.Path, r.RawQuery = normal, query
	if f.ip != "" {
		ip, err := netip.ParseAddr(f.ip)
		if err != nil {
			return nil, usagef("--ip %q is not an address", f.ip)
		}
		r.IP = ip.Unmap().WithZone("")
	}
	for _, h := range f.headers {
		name, value, ok := strings.Cut(h, ":")
		if !ok || name == "" {
			return nil, usagef("--header %q is not 'NAME: VALUE'", h)
		}
		if strings.EqualFold(name, "host") {
			r.Host = rules.NormalizeHost(strings.TrimSpace(value))
			continue
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		r.Header[name] = append(r.Header[name], strings.TrimSpace(value))
	}
	for _, attr := range f.attrs {
		name, value, ok := strings.Cut(attr, "=")
		if !ok || name == "" {
			return nil, usagef("--attr %q is not NAME=VALUE", attr)
		}
		r.Attr[name] = value
	}
	return r, nil
}

// simulation is what became of the requests.
type simulation struct {
	domain    string
	request   string
	decisions []simulated
	rules     []ruleReason
}

type simulated struct {
	at time.Duration
	enforce.Decision
}

func runSimulation(ctx context.Context, set *rulefile.RuleSet, req *rules.Request, f simulateFlags) (*simulation, error) {
	p, err := replay.New(replay.Memory) //nolint:contextcheck // its store is open until Close
	if err != nil {
		return nil, err
	}
	defer p.Close(ctx)
	list := replay.NewRules(set, nil)
	p.Put(rules.NewIndex(replay.NewDomain(set), list))
	start := replay.Start(list)
	s := &simulation{domain: set.Domain, request: f.request}
	for n := range f.repeat {
		at := time.Duration(n) * f.every
		d, err := p.Decide(ctx, start+at.Microseconds(), req)
		if err != nil {
			return nil, err
		}
		s.decisions = append(s.decisions, simulated{at, d})
	}
	s.rules = reasonsOf(list, req, &s.decisions[0].Decision)
	return s, nil
}

// text is the simulation for people: the decisions over time, then the rules.
func (s *simulation) text() string {
	refused := 0
	var rows [][]string
	for i := range s.decisions {
		d := &s.decisions[i]
		row := []string{d.at.String(), "✔ allowed", d.Rule, d.Limit, "", "", string(d.Reason)}
		if d.Rule != "" {
			row[4] = fmt.Sprint(d.Left)
		}
		if d.Exempt != "" {
			row[6] = "exempt: " + d.Exempt
		}
		if !d.Allowed {
			refused++
			row[1] = fmt.Sprintf("✖ refused %d", d.Status)
		}
		if wait, ok := replay.RetryAfter(&d.Decision); ok {
			row[5] = fmt.Sprintf("%ds", wait)
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s: %d allowed, %d refused\n\n", oneLine(s.request), s.domain, len(s.decisions)-refused, refused)
	b.WriteString(renderTable([]string{"AT", "DECISION", "RULE", "LIMIT", "LEFT", "RETRY-AFTER", "REASON"}, rows, "LEFT", "RETRY-AFTER"))
	b.WriteString("\n")
	rows = nil
	for _, r := range s.rules {
		applies := "✖ no"
		if r.applies {
			applies = "✔ yes"
		}
		rows = append(rows, []string{r.rule.Name, applies, r.why})
	}
	b.WriteString(renderTable([]string{"RULE", "APPLIES", "WHY"}, rows))
	return b.String()
}

type simulationItem struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Domain     string              `json:"domain"`
	Request    string              `json:"request"`
	Decisions  []simulatedItem     `json:"decisions"`
	Rules      []simulatedRuleItem `json:"rules"`
}

type simulatedItem struct {
	At         string `json:"at"`
	Allowed    bool   `json:"allowed"`
	Exempt     string `json:"exempt,omitempty"`
	Rule       string `json:"rule,omitempty"`
	Limit      string `json:"limit,omitempty"`
	Left       *int64 `json:"left,omitempty"`
	RetryAfter *int64 `json:"retryAfter,omitempty"`
	Status     int    `json:"status,omitempty"`
	Reason     string `json:"reason,omitempty"`
}

type simulatedRuleItem struct {
	Rule    string `json:"rule"`
	Applies bool   `json:"applies"`
	Why     string `json:"why"`
}

func (s *simulation) item() simulationItem {
	item := simulationItem{APIVersion: apiVersion, Kind: "Simulation", Domain: s.domain, Request: s.request, Rules: []simulatedRuleItem{}}
	for i := range s.decisions {
		d := &s.decisions[i]
		row := simulatedItem{
			At: d.at.String(), Allowed: d.Allowed, Exempt: d.Exempt, Rule: d.Rule, Limit: d.Limit, Status: d.Status, Reason: string(d.Reason),
		}
		if d.Rule != "" {
			row.Left = &d.Left
		}
		if wait, ok := replay.RetryAfter(&d.Decision); ok {
			row.RetryAfter = &wait
		}
		item.Decisions = append(item.Decisions, row)
	}
	for _, r := range s.rules {
		item.Rules = append(item.Rules, simulatedRuleItem{r.rule.Name, r.applies, r.why})
	}
	return item
}
