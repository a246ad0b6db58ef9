package subscribe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/headgate/headgate/xds"
	"github.com/headgate/headgate/xds/xdspb"
)

// session is one stream, from its first request to its end. What was collected and not committed ends with it: the next
// stream offers the committed revision, and the rest comes again.
type session struct {
	client *Client
	steps  map[string]*step // by domain, since its last commit
	nonces []string         // of the last responses, at most keptNonces

	opened    time.Time // zero until the stream is open
	exchanged bool      // at least one response was answered

	sending sync.Mutex // held to send: goodbye and break-glass reports come from other goroutines
}

// keptNonces is how many responses are remembered, so that one that comes again is known.
const keptNonces = 100

// good reports whether the stream was worth opening the next one soon.
func (s *session) good() bool {
	if s.opened.IsZero() {
		return false
	}
	lasted := time.Since(s.opened)
	return s.exchanged && lasted >= xds.SteadyAfter || lasted >= quietAfter
}

// goodbyeWithin is how long the control plane has to take a goodbye.
const goodbyeWithin = time.Second

// run opens the stream and answers on it until it ends. When ctx ends, it says goodbye first.
func (s *session) run(ctx context.Context) error {
	open, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel() // releases the stream when it is left because of an error of our own
	stopConnecting := context.AfterFunc(ctx, cancel)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(s.client.o.Conn).DeltaAggregatedResources(open)
	if err != nil {
		return fmt.Errorf("open the stream: %w", err)
	}
	if err := stream.Send(s.first()); err != nil {
		return ended("subscribe", streamError(stream, err))
	}
	if stopConnecting() {
		said := make(chan struct{})
		stop := context.AfterFunc(ctx, func() { s.goodbye(stream, cancel); close(said) })
		defer func() {
			if !stop() {
				<-said
			}
		}()
	}
	s.opened = time.Now()
	s.client.setConnected(true)
	defer s.client.setConnected(false)
	s.client.log.Debug("stream to the control plane opened")
	defer time.AfterFunc(xds.SteadyAfter, s.client.stands).Stop() // a client that is up to date is sent nothing
	defer s.reporting(open, stream)()
	for {
		response, err := stream.Recv()
		if err != nil {
			return ended("receive", err)
		}
		answer, fatal := s.answer(response)
		err = s.send(stream, answer)
		s.client.saveSoon()
		switch {
		case fatal != nil:
			return fatal
		case err != nil:
			return ended("answer", streamError(stream, err))
		}
		s.exchanged = true
	}
}

// errEnded is how a stream ends that the control plane closes, as it does when it stops.
var errEnded = errors.New("the control plane ended the stream")

// ended says in which step the stream was found to have ended, and why.
func ended(step string, err error) error {
	if errors.Is(err, io.EOF) {
		return errEnded
	}
	return fmt.Errorf("%s: %w", step, err)
}

type adsStream = discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

func (s *session) send(stream adsStream, request *discovery.DeltaDiscoveryRequest) error {
	s.sending.Lock()
	defer s.sending.Unlock()
	return stream.Send(request)
}

// reporting sends the break-glass reports when they have changed, until the function that it returns has returned.
func (s *session) reporting(ctx context.Context, stream adsStream) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var reporter sync.WaitGroup
	reporter.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-s.client.brokenGlass:
			}
			node := &core.Node{Id: s.client.o.Node, Metadata: s.client.metadata(false)}
			if s.send(stream, &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, Node: node}) != nil {
				return // the next stream begins with them
			}
		}
	})
	return func() { cancel(); reporter.Wait() }
}

// goodbye unsubscribes, so that nobody waits for this node any more, and ends the stream once the control plane has taken
// that, or too much time has passed.
func (s *session) goodbye(stream adsStream, end context.CancelFunc) {
	time.AfterFunc(goodbyeWithin, end)
	s.sending.Lock()
	defer s.sending.Unlock()
	request := &discovery.DeltaDiscoveryRequest{TypeUrl: xds.TypeURL, ResourceNamesUnsubscribe: s.client.o.Domains}
	if stream.Send(request) != nil || stream.CloseSend() != nil {
		end()
	}
}

// streamError returns why a send failed: gRPC tells it to the receiver only.
func streamError(stream adsStream, sent error) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return sent
}

// first names the node, all domains, and what is held of them.
func (s *session) first() *discovery.DeltaDiscoveryRequest {
	o := s.client.o
	s.client.streams = max(s.client.streams+1, time.Now().UnixMicro())
	versions := map[string]string{}
	for _, h := range s.client.held {
		h.offer(versions)
	}
	return &discovery.DeltaDiscoveryRequest{
		Node: &core.Node{
			Id: o.Node, UserAgentName: o.Program,
			UserAgentVersionType: &core.Node_UserAgentVersion{UserAgentVersion: o.Version},
			Metadata:             s.client.metadata(true),
		},
		TypeUrl:                 xds.TypeURL,
		ResourceNamesSubscribe:  o.Domains,
		InitialResourceVersions: versions,
	}
}

// codeInvalid is google.rpc.Code INVALID_ARGUMENT. The number is written here because only package rpcstatus turns
// failures into gRPC's codes, and this one is no failure of a call.
const codeInvalid = 3

// answer takes the response and returns the acknowledgement, or the refusal with a detail for each resource refused. An
// error ends the stream.
func (s *session) answer(response *discovery.DeltaDiscoveryResponse) (*discovery.DeltaDiscoveryRequest, error) {
	// The type is the response's, also where it is not ours: the refusal speaks of it.
	request := &discovery.DeltaDiscoveryRequest{TypeUrl: response.GetTypeUrl(), ResponseNonce: response.GetNonce()}
	if reason, text := s.foreign(response); reason != "" {
		s.client.log.Error("response refused", "reason", reason, "err", text)
		s.client.metrics.foreign.WithLabelValues(reason).Inc()
		request.ErrorDetail = &status.Status{Code: codeInvalid, Message: text}
		return request, nil
	}
	rejections, err := s.take(response)
	if err != nil {
		s.client.metrics.foreign.WithLabelValues(foreignHuge).Inc()
		request.ErrorDetail = &status.Status{Code: codeInvalid, Message: err.Error()}
		return request, err
	}
	if len(rejections) == 0 {
		return request, nil
	}
	for _, r := range rejections {
		s.client.log.Error("refused", "resource", r.GetRule(), "reason", r.GetReason())
		domain, _ := xds.SplitName(r.GetRule())
		if s.client.serves(domain) { // labels only from our own list
			s.client.metrics.rejected.WithLabelValues(domain).Inc()
		} else {
			s.client.metrics.foreign.WithLabelValues(foreignDomain).Inc()
		}
	}
	request.ErrorDetail = refusal(rejections)
	return request, nil
}

// foreign says why nothing in a response is looked at; reason is "" for one that is meant for this stream, now.
func (s *session) foreign(response *discovery.DeltaDiscoveryResponse) (reason, text string) {
	nonce := response.GetNonce()
	switch {
	case response.GetTypeUrl() != xds.TypeURL:
		return foreignType, fmt.Sprintf("response of type %q: only %s was asked for", response.GetTypeUrl(), xds.TypeURL)
	case nonce == "":
		return foreignNonce, "response without a nonce: it cannot be answered"
	case slices.Contains(s.nonces, nonce):
		return foreignNonce, fmt.Sprintf("response with nonce %q came before on this stream", nonce)
	}
	if len(s.nonces) == keptNonces {
		s.nonces = s.nonces[1:]
	}
	s.nonces = append(s.nonces, nonce)
	return "", ""
}

// maxDetails bounds a refusal, so that it fits a message however much is refused.
const maxDetails = 1000

func refusal(rejections []*xdspb.Rejection) *status.Status {
	first := rejections[0]
	out := &status.Status{Code: codeInvalid, Message: first.GetRule() + ": " + first.GetReason()}
	if more := len(rejections) - 1; more > 0 {
		out.Message += fmt.Sprintf("; and %d more", more)
	}
	if more := len(rejections) - maxDetails; more > 0 {
		// Those not named must not pass for taken: the domain stands for them.
		domain, _ := xds.SplitName(first.GetRule())
		rest := &xdspb.Rejection{Rule: domain, Reason: fmt.Sprintf("%d more rules", more)}
		rejections = append(slices.Clone(rejections[:maxDetails]), rest)
	}
	for _, r := range rejections {
		detail, err := anypb.New(r)
		if err != nil {
			continue // the message still says it
		}
		out.Details = append(out.Details, detail)
	}
	return out
}

// take collects the resources, and commits the domains whose own resource is among them.
func (s *session) take(response *discovery.DeltaDiscoveryResponse) (rejections []*xdspb.Rejection, err error) {
	lineage, _, _ := xds.ParseDomainVersion(response.GetSystemVersionInfo())
	stranger := func(name string) {
		rejections = append(rejections, reject(name, "", errors.New("not subscribed to"), false))
	}
	for _, name := range response.GetRemovedResources() {
		domain, rule := xds.SplitName(name)
		switch {
		case !s.client.serves(domain):
			stranger(name)
		case rule == "":
			s.client.unknown(domain)
		default:
			s.step(domain, lineage).remove(name)
		}
	}
	var commits []*discovery.Resource
	for _, r := range response.GetResources() {
		domain, rule := xds.SplitName(r.GetName())
		switch {
		case !s.client.serves(domain):
			stranger(r.GetName())
		case rule == "":
			commits = append(commits, r)
		default:
			s.step(domain, lineage).add(r)
		}
	}
	for domain, collected := range s.steps {
		if collected.size > maxCollected {
			return nil, errTooMuch(domain)
		}
	}
	for _, own := range commits {
		rejections = append(rejections, s.commit(own, lineage)...)
	}
	return rejections, nil
}

// step returns what was collected for the domain. What came of another history is forgotten: it is no part of this set.
func (s *session) step(domain, lineage string) *step {
	if at := s.steps[domain]; at == nil || at.lineage != lineage {
		s.steps[domain] = newStep(lineage)
	}
	return s.steps[domain]
}

// commit ends the domain's step: rules and domain take effect together.
func (s *session) commit(own *discovery.Resource, lineage string) []*xdspb.Rejection {
	c, name := s.client, own.GetName()
	collected := s.step(name, lineage)
	delete(s.steps, name)
	next, rejections, err := c.held[name].after(collected, own, c.o.Sink.Check)
	if err != nil {
		if !errors.Is(err, errOlder) {
			// The next step begins where this one ended, so what it brought is needed then.
			s.steps[name] = collected
		}
		return []*xdspb.Rejection{reject(name, own.GetVersion(), err, c.held[name] != nil)}
	}
	if was := c.held[name]; was != nil && was.lineage != "" && was.lineage != next.lineage {
		c.log.Warn("the control plane has another history: its rules take the place of those held",
			"domain", name, "revision_before", was.info.Revision, "rules_before", len(was.rules), "rules", len(next.rules))
	}
	c.commit(next)
	c.log.Info("rules in force", "domain", name, "revision", next.info.Revision, "changed", len(collected.rules), "rules", len(next.rules))
	return rejections
}

func (c *Client) serves(domain string) bool {
	return slices.Contains(c.o.Domains, domain)
}

// unknown handles "no such domain". A client that holds nothing has an empty set now, and is ready. One that holds rules
// keeps them: a control plane that lost its database must not open every gate.
func (c *Client) unknown(domain string) {
	h := c.held[domain]
	switch {
	case h == nil:
		c.commit(&held{name: domain})
		c.log.Warn("the control plane knows no such domain: nothing is limited until it has a rule; is the name right?", "domain", domain)
	case h.info.Revision > 0:
		c.metrics.removalIgnored.WithLabelValues(domain).Inc()
		c.log.Warn("the control plane does not know the domain: the rules stay in force", "domain", domain, "revision", h.info.Revision)
	}
}
