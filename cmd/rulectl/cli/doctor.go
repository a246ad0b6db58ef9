package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/web/api/adminpb"
	"github.com/headgate/headgate/xds/rpcstatus"
)

func (a *app) doctorCommand() *cobra.Command {
	sidecar := ""
	cmd := &cobra.Command{
		Use:   "doctor [--sidecar HOST:PORT]",
		Short: "Check the control plane, the way to it, the fleet and, when it is named, a sidecar with its Redis",
		Long: "Doctor says what is well (✔), what will be trouble (⚠) and what is (✖), each with what to do. Exit 1 when there is\n" +
			"trouble. It changes nothing.",
		Example: "  rulectl doctor\n  rulectl doctor --context prod --sidecar 10.0.0.7:8082",
		GroupID: groupSelf,
		Args:    cobra.NoArgs,
		RunE:    a.run(func(ctx context.Context, _ []string) error { return a.doctor(ctx, sidecar) }),
	}
	cmd.Flags().StringVar(&sidecar, "sidecar", "", "HOST:PORT of a sidecar's operations port, to be checked too")
	return cmd
}

// The results of a check.
const (
	well    = "ok"
	warning = "warning"
	trouble = "failed"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	Status string `json:"status"` // ok, warning or failed
	Text   string `json:"text"`
	ToDo   string `json:"toDo,omitempty"`
}

// diagnosis collects findings.
type diagnosis struct {
	findings []finding
	now      time.Time
}

func (d *diagnosis) add(check, status, text, todo string) {
	d.findings = append(d.findings, finding{oneLine(check), status, oneLine(text), oneLine(todo)})
}

func (d *diagnosis) failed() bool {
	for _, f := range d.findings {
		if f.Status == trouble {
			return true
		}
	}
	return false
}

func (a *app) doctor(ctx context.Context, sidecar string) error {
	d := diagnosis{now: time.Now()}
	a.checkControlPlane(ctx, &d)
	if sidecar != "" {
		a.checkSidecar(ctx, &d, sidecar)
	}
	if a.structured() {
		if err := printList(a, "FindingList", d.findings); err != nil {
			return err
		}
	} else if _, err := fmt.Fprint(a.io.Out, d.text()); err != nil {
		return err
	}
	if d.failed() {
		return explained{exitFailed}
	}
	return nil
}

func (d *diagnosis) text() string {
	mark := map[string]string{well: "✔", warning: "⚠", trouble: "✖"}
	var b strings.Builder
	for _, f := range d.findings {
		fmt.Fprintf(&b, "%s %s: %s\n", mark[f.Status], f.Check, f.Text)
		if f.ToDo != "" {
			fmt.Fprintf(&b, "    %s\n", f.ToDo)
		}
	}
	return b.String()
}

func (a *app) checkControlPlane(ctx context.Context, d *diagnosis) {
	if err := a.settle(); err != nil {
		d.add("configuration", trouble, err.Error(), "mend the file, or name another with RULECTL_CONFIG")
		return
	}
	switch {
	case a.context != nil:
		d.add("configuration", well, fmt.Sprintf("context %s of %s", a.context.Name, a.config.path), "")
	default:
		d.add("configuration", well, "no context is in use; flags and the environment say which control plane", "")
	}
	var from peer.Peer
	begun := time.Now()
	who, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.WhoAmIResponse, error) {
		return client.WhoAmI(ctx, &adminpb.WhoAmIRequest{}, grpc.Peer(&from))
	})
	took := time.Since(begun)
	if err != nil {
		a.checkFailed(d, err)
		return
	}
	d.add("control plane", well, fmt.Sprintf("%s at %s answers in %s", who.GetProgram(), a.server, took.Round(time.Millisecond)), "")
	a.checkTLS(d, &from)
	a.checkToken(d, who)
	d.add("database", well, fmt.Sprintf("answers; revision %d of the history %s", who.GetRevision(), who.GetLineage()), "")
	checkClock(d, who, begun.Add(took/2))
	a.checkFleet(ctx, d)
}

// checkFailed says which of the things that must work for an answer does not.
func (a *app) checkFailed(d *diagnosis, err error) {
	text := err.Error()
	switch {
	case errors.Is(err, rules.ErrUnauthenticated):
		d.add("control plane", well, "answers at "+a.server, "")
		d.add("token", trouble, text, "log in with rulectl login, or name one: --token-file FILE; an admin makes one with: rulectl token create")
	case errors.Is(err, rules.ErrUnavailable) && !rpcstatus.Answered(err):
		what, ways, _ := a.connectionTrouble(text)
		about := "control plane"
		if strings.Contains(text, handshaking) {
			about = "TLS"
		}
		d.add(about, trouble, what, strings.Join(ways[:min(len(ways), 1)], ""))
	case errors.Is(err, context.DeadlineExceeded):
		d.add("control plane", trouble, fmt.Sprintf("no answer from %s within %s", a.server, a.timeout), "look at its log, and at the network between")
	case errors.Is(err, rules.ErrUnavailable):
		d.add("control plane", well, "answers at "+a.server, "")
		d.add("database", trouble, text, "look at the control plane's log: it cannot read its database")
	default:
		d.add("control plane", trouble, text, "")
	}
}

// soon is how long before its end a certificate or a token is warned of.
const soon = 14 * 24 * time.Hour

func (a *app) checkTLS(d *diagnosis, from *peer.Peer) {
	info, ok := from.AuthInfo.(credentials.TLSInfo)
	switch {
	case !ok && isLoopback(a.server):
		d.add("TLS", well, "none; nothing leaves this machine", "")
	case !ok:
		d.add("TLS", warning, "none: whoever is on the way can read and change what is said", "serve with a certificate, and add --tls or --tls-ca FILE")
	case len(info.State.PeerCertificates) > 0:
		ends := info.State.PeerCertificates[0].NotAfter
		if ends.Sub(d.now) < soon {
			d.add("TLS", warning, fmt.Sprintf("the control plane's certificate ends %s, in %s", when(ends), left(ends, d.now)), "renew it; the control plane takes a new file without a restart")
			return
		}
		d.add("TLS", well, "the control plane's certificate is good until "+when(ends), "")
	}
}

func (a *app) checkToken(d *diagnosis, who *adminpb.WhoAmIResponse) {
	name := actorText(who.GetName(), who.GetVerified())
	switch expires := who.GetExpires(); {
	case who.GetRole() == "" && isLoopback(a.server):
		d.add("token", well, fmt.Sprintf("this control plane asks nobody who they are; you are %s", name), "")
	case who.GetRole() == "":
		d.add("token", warning, "this control plane asks nobody who they are: everybody who reaches it may do everything", "give it tokens: controlplane token create")
	case expires != nil && expires.AsTime().Sub(d.now) < soon:
		d.add("token", warning, fmt.Sprintf("%s, %s, ends %s, in %s", name, who.GetRole(), when(expires.AsTime()), left(expires.AsTime(), d.now)),
			"have an admin make another: rulectl token create, and then: rulectl login")
	default:
		d.add("token", well, fmt.Sprintf("%s, %s", name, who.GetRole()), "")
	}
	if info, err := os.Stat(a.proof.tokenFile); err == nil && info.Mode().Perm()&0o077 != 0 {
		d.add("token file", warning, fmt.Sprintf("%s can be read by others on this machine (%s)", a.proof.tokenFile, info.Mode().Perm()), "chmod 600 "+a.proof.tokenFile)
	}
}

// checkClock compares the clocks. An override with --for ends by this machine's, a freeze by each sidecar's.
func checkClock(d *diagnosis, who *adminpb.WhoAmIResponse, here time.Time) {
	const (
		small = 2 * time.Second
		large = time.Minute
	)
	if who.GetTime() == nil {
		d.add("clock", warning, "this control plane does not tell its own", "")
		return
	}
	apart := here.Sub(who.GetTime().AsTime())
	side := "ahead of"
	if apart < 0 {
		side, apart = "behind", -apart
	}
	text := fmt.Sprintf("this machine is %s %s the control plane", apart.Round(time.Millisecond), side)
	switch {
	case apart < small:
		d.add("clock", well, text, "")
	case apart < large:
		d.add("clock", warning, text, "let both follow an NTP server: freezes and overrides end by clocks")
	default:
		d.add("clock", trouble, text, "let both follow an NTP server: freezes and overrides end by clocks")
	}
}

// checkFleet looks at each sidecar, and at what is frozen.
func (a *app) checkFleet(ctx context.Context, d *diagnosis) {
	var domains *adminpb.ListDomainsResponse
	nodes, err := ask(ctx, a, func(ctx context.Context, client adminpb.AdminServiceClient) (*adminpb.ListNodesResponse, error) {
		var err error
		if domains, err = client.ListDomains(ctx, &adminpb.ListDomainsRequest{}); err != nil {
			return nil, err
		}
		return client.ListNodes(ctx, &adminpb.ListNodesRequest{})
	})
	if err != nil {
		d.add("sidecars", trouble, err.Error(), "")
		return
	}
	d.fleet(nodes.GetNodes(), domains.GetDomains())
	for _, domain := range domains.GetDomains() {
		for _, f := range newDomainItem(domain, 0).Freezes {
			what := domain.GetName()
			if f.Rule != "" {
				what += "/" + f.Rule
			}
			d.add("freeze", warning, fmt.Sprintf("%s refuses nobody until %s (%s left)", what, when(f.until), left(f.until, d.now)), "to end it: rulectl unfreeze "+what)
		}
	}
}

func (d *diagnosis) fleet(nodes []*adminpb.Node, domains []*adminpb.Domain) {
	synced, gone := 0, 0
	for _, n := range nodes {
		name := fmt.Sprintf("%s of %s", n.GetId(), n.GetDomain())
		silent := left(d.now, n.GetSeen().AsTime())
		switch n.GetState() {
		case stateSynced:
			if !unruled(n) {
				synced++
			} else {
				d.add("sidecar", warning, fmt.Sprintf("%s limits nothing: there is no domain %s%s", name, n.GetDomain(), orDidYouMean(n.GetDomain(), domains)),
					"mend its --domain, or make the domain's first rule: rulectl apply -f FILE")
			}
		case stateGone:
			gone++
		case statePending:
			d.add("sidecar", warning, fmt.Sprintf("%s has not answered revision %d yet; it runs %s", name, n.GetWanted(), number(n.GetAcked())), "")
		case stateAway:
			d.add("sidecar", warning, fmt.Sprintf("%s is not connected; last heard of %s ago", name, silent), "it goes on with the rules it has; look at its log")
		case stateNacked:
			d.add("sidecar", trouble, fmt.Sprintf("%s refuses revision %d: %s", name, n.GetNacked(), n.GetNackReason()), "see: rulectl sidecar diff "+n.GetId())
		default: // foreign or ahead
			d.add("sidecar", trouble, name+": "+strings.Join(nodeNotes(n), "; "), "see: rulectl sidecar describe "+n.GetId())
		}
		for _, freeze := range n.GetBreakGlass() {
			d.add("break-glass", warning, fmt.Sprintf("%s: %s", n.GetId(), freeze), "to end it: rulectl unfreeze … --sidecar HOST:PORT")
		}
	}
	text := fmt.Sprintf("%d of %s synced", synced, count(len(nodes)-gone, "sidecar"))
	switch {
	case len(nodes) == gone:
		d.add("sidecars", warning, "none is connected: nothing is enforced", "start one: sidecar --domain DOMAIN --controlplane "+"HOST:PORT")
	case synced == len(nodes)-gone:
		d.add("sidecars", well, text, "")
	default:
		d.add("sidecars", warning, text, "see: rulectl sidecar list")
	}
}

// checkSidecar asks a sidecar's operations port whether it is ready, and whether its store answers.
func (a *app) checkSidecar(ctx context.Context, d *diagnosis, address string) {
	status, body, err := a.callSidecar(ctx, address, http.MethodGet, "/readyz", nil)
	switch {
	case err != nil:
		d.add("sidecar "+address, trouble, err.Error(), "name its operations port, HOST:PORT (its --ops-listen)")
		return
	case status != http.StatusOK:
		d.add("sidecar "+address, trouble, fmt.Sprintf("is not ready: %s", body), "it needs rules: from the control plane, or its --last-good file")
	case len(body) > 0: // it says what is not well
		d.add("sidecar "+address, warning, fmt.Sprintf("is ready, but %s", body), "look at its --controlplane, at its token and at its log: new rules do not reach it")
	default:
		d.add("sidecar "+address, well, "is ready: it has its rules, and a stream to the control plane", "")
	}
	status, body, err = a.callSidecar(ctx, address, http.MethodGet, "/metrics", nil)
	if err != nil || status != http.StatusOK {
		d.add("store", trouble, fmt.Sprintf("%s does not tell its metrics", address), "is it a sidecar's operations port?")
		return
	}
	d.unruled(string(body))
	d.store(string(body))
}

// unruled warns of domains that a sidecar serves and has no rules of.
func (d *diagnosis) unruled(metrics string) {
	for _, m := range noRevision.FindAllStringSubmatch(metrics, -1) {
		d.add("domain", warning, fmt.Sprintf("the sidecar has no rules of %s, and limits nothing there", m[1]), "is the name right? see: rulectl get domains")
	}
}

// noRevision is how a sidecar's metrics say that a domain has no rules.
var noRevision = regexp.MustCompile(`(?m)^headgate_config_revision\{domain="([^"]*)"\} 0$`)

// store reads what a sidecar's metrics say of the store of its counters. Only Redis has a breaker.
func (d *diagnosis) store(metrics string) {
	up, redis := "", false
	for line := range strings.Lines(metrics) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		redis = redis || strings.HasPrefix(name, "headgate_store_breaker_state{")
		if name == "headgate_store_up" {
			up = value
		}
	}
	switch {
	case up == "0":
		d.add("store", trouble, "it does not answer: the failure modes of the rules decide", "look at Redis, and at the sidecar's --store")
	case up != "1":
		d.add("store", warning, "the sidecar does not tell whether it answers", "is it a sidecar's operations port?")
	case redis:
		d.add("store", well, "Redis answers; with another maxmemory-policy than noeviction the sidecar's log has a warning", "")
	default:
		d.add("store", well, "counters are in the sidecar's own memory", "")
	}
}
