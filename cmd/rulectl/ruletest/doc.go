// Package ruletest runs tests of rule files: requests at instants, and what is expected of each.
//
//	kind: RuleTest
//	ruleset: {apiVersion: headgate/v1, kind: RuleSet, domain: d, rules: [{name: per-ip, key: [ip], limit: 3/min}]}
//	# or rules: [public-api.yaml], relative to the test
//	shadow: [per-ip]              # what-if only; all other rules are enforced
//	steps:
//	  - at: 0s                    # since the start, which is aligned to every window in use
//	    request: {method: POST, path: "/v1/login?x=1", host: h, ip: 192.0.2.1, header: {x-api-key: k1}, attr: {tenant: a}, hits: 1}
//	    repeat: 4
//	    every: 100ms
//	    expect: [allowed, allowed, {decision: allowed, remaining: 0}, {decision: refused, rule: per-ip, retryAfter: 20}]
//	    wouldRefuse: []           # of the last request of the step
//
// A request has a method (GET), a path (/), and what else it is given; or it has descriptors alone, as a caller of
// Envoy's rate limit service does. Where the rules are of several domains, it names one. A request whose path a sidecar
// answers with 400 is refused with status 400 and reason malformed, by no rule.
//
// Expected is one word or mapping for all repeats, a list with one for each, or {count: {allowed: N, refused: N}}. Fields
// that are left out are not checked; "none" means that there is no such value. Without "at" a step goes on at the instant
// of the request before it; an earlier instant, by up to an hour, is what a clock that was set back looks like.
//
// A file may hold several tests, as YAML documents. Each has counters of its own, which are deleted at its end. The same
// test gives the same result on every store.
package ruletest
