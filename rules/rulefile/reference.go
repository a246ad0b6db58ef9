package rulefile

import "strings"

// An Object is a mapping of the schema with a fixed set of keys. The tree of them, from [Reference], is the one table
// that the decoder's known keys, the canonical order, `rulectl explain`, the JSON schema and the reference page are made
// from: they cannot drift apart.
type Object struct {
	Name    string // what one is called: "rule"
	Meaning string
	Fields  []Field // in canonical order
	// short is the form besides the mapping, for the JSON schema; nil where there is only the mapping.
	short fragment
}

// A Field is one key of an [Object].
type Field struct {
	Name     string
	Type     string // in words: "list of paths"
	Required bool
	Meaning  string
	Example  string  // a line of YAML
	Object   *Object // of a mapping, of the elements of a list, or of the values of a map with free keys

	schema fragment // of the value, for the JSON schema
}

// Reference returns the schema's root: a whole document.
func Reference() *Object { return ruleSetObject }

// Lookup follows a path such as "rules.limit.by" from the root. A path that begins within a rule is found there too.
// The second result is the valid names where the path went wrong; nil when it did not.
func Lookup(path string) (Field, []string) {
	field, valid := follow(ruleSetObject, path)
	if valid == nil {
		return field, nil
	}
	if inRule, wrong := follow(ruleObject, path); wrong == nil {
		return inRule, nil
	}
	return Field{}, valid
}

func follow(o *Object, path string) (Field, []string) {
	var field Field
	for name := range strings.SplitSeq(path, ".") {
		if o == nil {
			return Field{}, []string{} // below a value that has no parts
		}
		var found bool
		if field, found = o.field(name); !found {
			return Field{}, o.names()
		}
		o = field.Object
	}
	return field, nil
}

func (o *Object) field(name string) (Field, bool) {
	for _, f := range o.Fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

// names are the known keys, in order.
func (o *Object) names() []string {
	names := make([]string, len(o.Fields))
	for i, f := range o.Fields {
		names[i] = f.Name
	}
	return names
}

var ruleSetObject = &Object{
	Name:    "rule set",
	Meaning: "The rules of one domain. A file may have several documents, and a domain several files; stage, percentage and version are not in a file but on the server.",
	Fields: []Field{
		{Name: "apiVersion", Type: "word", Required: true, Meaning: "The version of this schema: headgate/v1.", Example: "apiVersion: headgate/v1", schema: constant(APIVersion)},
		{Name: "kind", Type: "word", Required: true, Meaning: "What the document is: RuleSet.", Example: "kind: RuleSet", schema: constant(Kind)},
		{Name: "domain", Type: "name", Required: true, Meaning: "The namespace of the rules; the same as the domain of Envoy's rate limit service.", Example: "domain: public-api", schema: nameSchema},
		{Name: "owner", Type: "text", Meaning: "Who answers for the rules that name no owner of their own.", Example: "owner: team-edge", schema: textSchema},
		{Name: "shard", Type: "source", Meaning: "Keeps the counters of rules keyed on this source to one Redis slot for each of its values. Changing it starts the domain's counters anew.", Example: "shard: header:x-api-key", schema: sourceSchema},
		{Name: "exempt", Type: "list of exemptions", Meaning: "Requests that meet no rule at all. It takes effect at once, without a shadow.", Example: "exempt: [{name: health, match: {path: [/livez, /readyz]}}]", Object: exemptionObject, schema: listOf(exemptionObject)},
		{Name: "rules", Type: "list of rules", Required: true, Meaning: "The rules. All that match a request apply to it.", Example: "rules: [{name: per-ip, key: [ip], limit: 60/min}]", Object: ruleObject, schema: listOf(ruleObject)},
	},
}

var exemptionObject = &Object{
	Name:    "exemption",
	Meaning: "Requests that meet no rule at all.",
	Fields: []Field{
		{Name: "name", Type: "name", Required: true, Meaning: "Names the exemption; unique in the domain.", Example: "name: health", schema: nameSchema},
		{Name: "match", Type: "match", Required: true, Meaning: "Which requests; it must ask for something.", Example: "match: {path: /livez}", Object: matchObject, schema: nonEmpty(matchObject)},
	},
}

var ruleObject = &Object{
	Name:    "rule",
	Meaning: "One limit, or a few that belong together, and the requests they are for.",
	Fields: []Field{
		{Name: "name", Type: "name", Required: true, Meaning: "Names the rule in the domain; it appears in headers and metrics.", Example: "name: api-key-plan", schema: nameSchema},
		{Name: "description", Type: "text", Meaning: "A sentence that a support person can read aloud.", Example: "description: Calls per API key, by plan", schema: textSchema},
		{Name: "owner", Type: "text", Meaning: "Who answers for the rule; by default the owner of the rule set.", Example: "owner: team-payments", schema: textSchema},
		{Name: "labels", Type: "map of text", Meaning: "Notes for people and programs, at most 64. No verdict depends on them.", Example: "labels: {ticket: PAY-812}", schema: labelsSchema},
		{Name: "match", Type: "match", Meaning: "Which requests the rule is for; all, when it is left out.", Example: "match: {method: POST, path: /v1/login}", Object: matchObject, schema: refTo(matchObject)},
		{Name: "when", Type: "CEL expression", Meaning: "A condition besides match, over method, path, host, ip, header(x), query(x) and attr(x), which give \"\" for what is absent. Where it fails at run time, the rule applies.", Example: `when: '!path.startsWith("/v1/public/")'`, schema: whenSchema},
		{Name: "exact", Type: "true or false", Meaning: "A descriptor matches only when it has no entries but those that the rule names.", Example: "exact: true", schema: boolSchema},
		{Name: "key", Type: "list of key parts", Required: true, Meaning: "One counter for each combination of these values; [] is one counter for all. A part is a source, ip, ip/N, method, host, path, path.NAME, header:NAME, query:NAME, cookie:NAME or attr:NAME, or a mapping.", Example: "key: [ip/64, {from: header:x-login-name, as: account, lower: true}]", Object: keyPartObject, schema: keySchema},
		{Name: "missingKey", Type: "shared, skip or refuse", Meaning: "What a request without a value of the key gets: one common counter, no limit by this rule, or a refusal. By default shared for HTTP requests and skip for descriptors.", Example: "missingKey: refuse", schema: words("shared", "skip", "refuse")},
		{Name: "algorithm", Type: "token-bucket or sliding-window", Meaning: "How the limits count, unless one names its own: token-bucket (the default) saves up a burst; sliding-window admits about the amount in any window.", Example: "algorithm: sliding-window", schema: algorithmSchema},
		{Name: "limit", Type: "limit", Meaning: "AMOUNT/WINDOW [burst AMOUNT], unlimited, or one limit for each value of a source, such as a plan. A window is an optional number and s, min, h or d. 0/s always refuses. A rule has either limit or limits.", Example: "limit: 600/min burst 1_200", Object: planObject, schema: limitSchema},
		{Name: "limits", Type: "list of named limits", Meaning: "Up to four limits, all of which must allow.", Example: "limits: [{name: burst, limit: 20/s}, {name: daily, limit: 50_000/d, algorithm: sliding-window}]", Object: namedLimitObject, schema: limitsSchema},
		{Name: "cost", Type: "number, or list of costs", Meaning: "What a request costs: 1 by default, 0 looks without spending. Of a list, the first entry that matches; 1 where none does.", Example: "cost: [{match: {path: /v1/export}, cost: 100}, {cost: 1}]", Object: costObject, schema: costSchema},
		{Name: "failure", Type: "open, closed or local AMOUNT/WINDOW", Meaning: "What the rule does while the store cannot answer: allow (the default), refuse, or count in each sidecar with this number.", Example: "failure: local 200/s", schema: failureSchema},
		{Name: "response", Type: "response", Meaning: "How a refusal looks.", Example: "response: {status: 503, title: Busy}", Object: responseObject, schema: refTo(responseObject)},
	},
}

// matchObject is recursive by its "not", which is set below.
var matchObject = &Object{
	Name:    "match",
	Meaning: "Conditions on a request: keys are ANDed, the values of a list ORed.",
	Fields: []Field{
		{Name: "method", Type: "method, or list", Meaning: "HTTP methods.", Example: "method: [POST, PUT]", schema: oneOrMore(methodSchema)},
		{Name: "host", Type: "host, or list", Meaning: "Hosts without port and trailing dot; case does not matter.", Example: "host: api.example.com", schema: oneOrMore(hostSchema)},
		{Name: "path", Type: "path, or list", Meaning: "Paths without the query string: exact, a prefix with a trailing /*, or with {name} for one segment. /api/* matches /api/x, not /api nor /apix.", Example: `path: [/v1/login, /v1/search/*, "/v1/hooks/{id}/send"]`, schema: oneOrMore(pathSchema)},
		{Name: "header", Type: "map of conditions", Meaning: "Conditions on headers; one given twice counts as its first value.", Example: "header: {x-plan: [free, pro], x-debug: {present: false}}", Object: conditionObject, schema: mapOf(headerNameSchema, conditionObject)},
		{Name: "query", Type: "map of conditions", Meaning: "Conditions on query parameters.", Example: "query: {version: {prefix: v2}}", Object: conditionObject, schema: mapOf(keyNameSchema, conditionObject)},
		{Name: "clientIP", Type: "CIDR, or list", Meaning: "Networks that the client's address is in.", Example: "clientIP: [10.0.0.0/8, 2001:db8::/32]", schema: oneOrMore(cidrSchema)},
		{Name: "grpc", Type: "gRPC method, or list", Meaning: "gRPC calls: package.Service/Method or package.Service/*.", Example: "grpc: shop.v1.Cart/Add", schema: oneOrMore(grpcSchema)},
		{Name: "attr", Type: "map of conditions", Meaning: "Conditions on attributes: the entries of a descriptor, or what a gateway adds.", Example: "attr: {tenant: acme}", Object: conditionObject, schema: mapOf(keyNameSchema, conditionObject)},
	},
}

func init() {
	matchObject.Fields = append(matchObject.Fields, Field{
		Name: "not", Type: "match", Meaning: "A match that the request must not meet.", Example: "not: {method: GET}",
		Object: matchObject, schema: notSchema,
	})
}

var conditionObject = &Object{
	Name:    "condition",
	Meaning: "A condition on one value: a text, a list of texts of which it is one, or exactly one of these keys.",
	Fields: []Field{
		{Name: "present", Type: "true or false", Meaning: "The value is there, or is not.", Example: "{present: false}", schema: boolSchema},
		{Name: "prefix", Type: "text", Meaning: "The value begins with this.", Example: "{prefix: v2}", schema: nonEmptyTextSchema},
		{Name: "regex", Type: "regular expression", Meaning: "The value matches this expression of RE2, anywhere unless it is anchored.", Example: `{regex: "^v[0-9]+$"}`, schema: nonEmptyTextSchema},
	},
	short: oneOrMore(textSchema),
}

var keyPartObject = &Object{
	Name:    "key part",
	Meaning: "A source, and what is done to its values.",
	Fields: []Field{
		{Name: "from", Type: "source", Required: true, Meaning: "Where the value comes from.", Example: "from: header:x-login-name", schema: sourceSchema},
		{Name: "as", Type: "name", Meaning: "The name it is shown by.", Example: "as: account", schema: nameSchema},
		{Name: "lower", Type: "true or false", Meaning: "Upper and lower case are the same key.", Example: "lower: true", schema: boolSchema},
		{Name: "trim", Type: "true or false", Meaning: "White space at the ends does not count.", Example: "trim: true", schema: boolSchema},
		{Name: "hash", Type: "true or false", Meaning: "Values are shown as a keyed hash only; always so for credentials: header:authorization, header:x-api-key and cookies.", Example: "hash: true", schema: boolSchema},
	},
	short: sourceSchema,
}

var planObject = &Object{
	Name:    "limit by a source",
	Meaning: "One limit for each value of a source. All share algorithm and window, and the source is not part of the counter: changing plan gives no new budget.",
	Fields: []Field{
		{Name: "by", Type: "source", Required: true, Meaning: "What chooses the limit.", Example: "by: header:x-plan", schema: sourceSchema},
		{Name: "values", Type: "map of limits", Required: true, Meaning: "The limit for each value, at most 1000.", Example: "values: {free: 60/min, pro: 600/min burst 1_200, internal: unlimited}", schema: valuesSchema},
		{Name: "default", Type: "limit", Required: true, Meaning: "The limit for every other value, and for none.", Example: "default: 60/min", schema: rateSchema},
	},
	short: rateSchema,
}

var namedLimitObject = &Object{
	Name:    "named limit",
	Meaning: "One of several limits of a rule.",
	Fields: []Field{
		{Name: "name", Type: "name", Required: true, Meaning: "Names the limit in the rule.", Example: "name: burst", schema: nameSchema},
		{Name: "limit", Type: "limit", Required: true, Meaning: "As the limit of a rule.", Example: "limit: 20/s", Object: planObject, schema: limitSchema},
		{Name: "algorithm", Type: "token-bucket or sliding-window", Meaning: "How this limit counts; by default as the rule says.", Example: "algorithm: sliding-window", schema: algorithmSchema},
	},
}

var costObject = &Object{
	Name:    "cost",
	Meaning: "What a request costs that matches.",
	Fields: []Field{
		{Name: "match", Type: "match", Meaning: "Which requests; all, when it is left out.", Example: "match: {path: /v1/export}", Object: matchObject, schema: refTo(matchObject)},
		{Name: "cost", Type: "number", Required: true, Meaning: "From 0, which looks without spending, to 1_000_000_000_000.", Example: "cost: 100", schema: numberSchema},
	},
	short: numberSchema,
}

var responseObject = &Object{
	Name:    "response",
	Meaning: "How a refusal looks.",
	Fields: []Field{
		{Name: "status", Type: "number", Meaning: "The status, from 400 to 599; 429 by default. Through Envoy's rate limit service it is Envoy's rate_limited_status instead.", Example: "status: 503", schema: statusSchema},
		{Name: "title", Type: "text", Meaning: "The title of the problem document; one line.", Example: "title: Busy", schema: titleSchema},
		{Name: "headers", Type: "standard, legacy, both or none", Meaning: "Which headers tell about the limit: RateLimit and RateLimit-Policy (standard, the default), X-RateLimit-* (legacy), both, or nothing, not even Retry-After.", Example: "headers: none", schema: words("standard", "legacy", "both", "none")},
	},
}
