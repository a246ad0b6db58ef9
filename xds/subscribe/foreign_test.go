package subscribe_test

import (
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/xds"
)

// What a broken, a huge or a foreign control plane says is refused and counted, and no rule in force changes.
func TestC19ForeignResponseChangesNothing(t *testing.T) {
	t.Parallel()
	own := func(domain, lineage string, revision int64) *discovery.Resource {
		r, err := xds.EncodeDomain(rules.Domain{Name: domain, Revision: revision}, lineage)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	respond := func(resources ...*discovery.Resource) *discovery.DeltaDiscoveryResponse {
		return &discovery.DeltaDiscoveryResponse{TypeUrl: xds.TypeURL, Nonce: "9", Resources: resources}
	}
	type change func(*discovery.DeltaDiscoveryResponse)
	good := func() *discovery.DeltaDiscoveryResponse {
		return respond(rule(t, "a", "99/min", 9), own("api", "one", 9))
	}
	but := func(c change) *discovery.DeltaDiscoveryResponse {
		r := good()
		c(r)
		return r
	}
	tests := map[string]struct {
		response *discovery.DeltaDiscoveryResponse
		metric   string
		label    string
		want     string // of the refusal's text
	}{
		"another type": {
			but(func(r *discovery.DeltaDiscoveryResponse) { r.TypeUrl = "type.googleapis.com/x" }), "headgate_config_foreign_total", "type",
			`response of type "type.googleapis.com/x": only ` + xds.TypeURL + ` was asked for`,
		},
		"replayed": {
			but(func(r *discovery.DeltaDiscoveryResponse) { r.Nonce = "1" }), "headgate_config_foreign_total", "nonce",
			`response with nonce "1" came before on this stream`,
		},
		"without a nonce": {
			but(func(r *discovery.DeltaDiscoveryResponse) { r.Nonce = "" }), "headgate_config_foreign_total", "nonce",
			"response without a nonce: it cannot be answered",
		},
		"another domain": {
			respond(rule(t, "a", "99/min", 9), own("other", "one", 9)), "headgate_config_foreign_total", "domain", "other: not subscribed to",
		},
		"two lineages": {
			but(func(r *discovery.DeltaDiscoveryResponse) { r.SystemVersionInfo = "two@9" }), "headgate_config_rejected_total", "api",
			"api: invalid: a revision of the history one in a response of the history two",
		},
		"an older revision": {
			respond(rule(t, "a", "99/min", 2), own("api", "one", 2)), "headgate_config_rejected_total", "api",
			"api: older than the revision in force: 2, in force is 3",
		},
		"an older rule": {
			respond(rule(t, "a", "99/min", 1), own("api", "one", 3)), "headgate_config_rejected_total", "api",
			"api/a: older than the revision in force: 1, in force is 3",
		},
		"a rule of tomorrow": {
			respond(rule(t, "a", "99/min", 9), own("api", "one", 3)), "headgate_config_rejected_total", "api",
			"api/a: invalid: it is of revision 9, in a step to revision 3",
		},
		"garbage": {
			respond(rule(t, "a", "99/min", 9), &discovery.Resource{Name: "api"}), "headgate_config_rejected_total", "api",
			`api: invalid: resource of type "": only ` + xds.TypeURL + ` is known`,
		},
		"a part only": {respond(rule(t, "a", "99/min", 9)), "headgate_config_rejected_total", "", ""},
		"a removal":   {&discovery.DeltaDiscoveryResponse{TypeUrl: xds.TypeURL, Nonce: "9", RemovedResources: []string{"api", "api/a", "api/*"}}, "headgate_config_removal_ignored_total", "api", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, conn := startScript(t)
			client := run(t, settings{conn: conn})
			s.request()
			wantRefusals(t, s.exchange("1", rule(t, "a", "60/min", 3), own("api", "one", 3)), nil)
			answer := s.exchangeAll(test.response)
			if got := answer.GetErrorDetail().GetMessage(); got != test.want {
				t.Errorf("answered %q, want %q", got, test.want)
			}
			if answer.GetTypeUrl() != test.response.GetTypeUrl() {
				t.Errorf("the answer speaks of type %q", answer.GetTypeUrl())
			}
			client.sink.want(t, "api", map[string]string{"a": "60/min"})
			if test.label != "" && client.metric(t, test.metric, test.label) != 1 {
				t.Errorf("%s{%s} is %v", test.metric, test.label, client.metric(t, test.metric, test.label))
			}
		})
	}
}

// A whole set takes the place of what is held, at its commit and not before, and may come in parts.
func TestWholeSetOfTheSameHistory(t *testing.T) {
	t.Parallel()
	s, conn := startScript(t)
	client := run(t, settings{conn: conn, sink: newSink("13/min")})
	s.request()
	s.exchange("1", rule(t, "a", "60/min", 1), rule(t, "b", "60/min", 1), rule(t, "c", "60/min", 1), domain(t, "one", 1))
	part := &discovery.DeltaDiscoveryResponse{
		TypeUrl: xds.TypeURL, Nonce: "2", RemovedResources: []string{"api/" + xds.Everything}, Resources: []*discovery.Resource{rule(t, "a", "60/min", 1)},
	}
	wantRefusals(t, s.exchangeAll(part), nil)
	client.sink.want(t, "api", map[string]string{"a": "60/min", "b": "60/min", "c": "60/min"})
	refused := s.exchange("3", rule(t, "c", "13/min", 3), domain(t, "one", 3))
	wantRefusals(t, refused, map[string]string{"api/c": "forbidden limit"})
	client.sink.want(t, "api", map[string]string{"a": "60/min", "c": "60/min"})
}
