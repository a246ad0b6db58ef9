package cli_test

import (
	"bytes"
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/headgate/headgate/cmd/rulectl/cli"
)

var update = flag.Bool("update", false, "write the golden files and the reference pages")

// volatile are the fields that differ from run to run, or from machine to machine.
var volatile = regexp.MustCompile(`("(?:uid|time|from|to|start|seen|until|frozenUntil|created|expires|revoked|seal|id|token|actor|server|lineage|head|go|` +
	`platform|startedBy|key|before|after|text|name|overrideUntil|file|version)": ?)"(?:[^"\\]|\\.)*"`)

// inTexts are such values within texts.
var inTexts = regexp.MustCompile(`20\d\d-\d\d-\d\d[ T][0-9:]+Z|127\.0\.0\.1:\d+|/\S*/|override [0-9a-f]{8}\b`)

var elapsed = regexp.MustCompile(`"elapsed": \d+`)

// steady keeps those of them that a kind has with another meaning.
var steady = map[string][]string{
	"RuleList": {"key", "name"}, "WatchEvent": {"key", "name", "id"}, "Rule": {"key", "name"}, "RuleDescription": {"name"}, "ChangeList": {"before", "after"}, "Revision": {"before", "after"},
	"DiffList": {"before", "after", "name"}, "DomainList": {"name"}, "DomainDescription": {"name"}, "Inspection": {"name"}, "ContextList": {"name"}, "Config": {"name"},
	"CredentialList": {"name"}, "Credential": {"name"}, "RuleTestList": {"name"},
}

// A golden is a command whose JSON is kept.
type golden struct {
	kind string
	code int
	args []string
}

// goldenRun runs a command and returns what it prints on standard output.
func goldenRun(t *testing.T, env map[string]string, want int, args ...string) string {
	t.Helper()
	var out, err bytes.Buffer
	code := cli.Run(t.Context(), args, cli.IO{
		In: strings.NewReader(""), Out: &out, Err: &err, Getenv: func(key string) string { return env[key] },
	})
	if code != want {
		t.Fatalf("rulectl %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, &out, &err)
	}
	return out.String()
}

const (
	goldenRules = `apiVersion: headgate/v1
kind: RuleSet
domain: a
owner: team-edge
rules:
  - {name: login, description: Guards the login, match: {path: /login}, key: [ip], limit: 5/min}
  - {name: plan, key: [header:x-api-key], limit: {by: header:x-plan, values: {pro: 60/min}, default: 6/min}}
`
	goldenNext = `apiVersion: headgate/v1
kind: RuleSet
domain: a
exempt: [{name: health, match: {path: /livez}}]
rules:
  - {name: login, match: {path: /login}, key: [ip], limit: 9/min burst 12}
`
	goldenTest = `kind: RuleTest
rules: [rules.yaml]
steps:
  - request: {method: GET, path: /login, ip: 192.0.2.1}
    expect: allowed
`
)

// The JSON of every kind is a contract: fields are added, never renamed or removed.
func TestJSONIsWhatItWas(t *testing.T) {
	t.Parallel()
	plane := setup(t)
	sidecar := httptest.NewServer(&opsPort{})
	defer sidecar.Close()
	ops := strings.TrimPrefix(sidecar.URL, "http://")
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{
		"rules.yaml": goldenRules, "next.yaml": goldenNext, "bad.yaml": strings.Replace(goldenNext, "9/min", "9/m", 1), "x.test.yaml": goldenTest,
	} {
		if err := os.WriteFile(path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"RULECTL_SERVER": plane.addr, "RULECTL_CONFIG": path("config.yaml")}
	goldenRun(t, env, 0, "config", "set-context", "prod", "--server", "controlplane.example:18000", "--tls", "--protected", "--domain", "a")
	delete(env, "RULECTL_CONFIG") // which is of another server
	seen := map[string]bool{}
	check := func(list ...golden) {
		t.Helper()
		for _, g := range list {
			seen[g.kind] = true
			checkGolden(t, g.kind, goldenRun(t, env, g.code, append(g.args, "-o", "json")...))
		}
	}
	check(golden{"ChangeList", 0, []string{"apply", "-f", path("rules.yaml"), "-m", "first"}})
	goldenRun(t, env, 0, "promote", "a/login", "--to", "100%")
	goldenRun(t, env, 0, "override", "set", "a/login", "--key", "192.0.2.1", "--limit", "7/min", "--for", "2h")
	plane.mustSave(t, "n1", "acked=1", "sent=3", "nacked=3", "reason=HG0107 no", "refused=a/login", "glass=login")
	plane.mustSave(t, "n2", "acked=1", "lineage=OLDER")
	for _, over := range []bool{true, false} {
		if err := plane.saveAlert(t.Context(), "a", "login", over); err != nil {
			t.Fatal(err)
		}
	}
	check(
		golden{"DiffList", 1, []string{"diff", "-f", path("next.yaml")}},
		golden{"RuleList", 0, []string{"get", "rules"}},
		golden{"Rule", 0, []string{"get", "rule", "a/login"}},
		golden{"RuleDescription", 0, []string{"describe", "a/login"}},
		golden{"DomainList", 0, []string{"get", "domains"}},
		golden{"DomainDescription", 0, []string{"describe", "domain", "a"}},
		golden{"HistoryList", 0, []string{"history", "a/login"}},
		golden{"AuditList", 0, []string{"audit", "list"}},
		golden{"AuditVerification", 0, []string{"audit", "verify"}},
		golden{"OverrideList", 0, []string{"override", "list", "a/login"}},
		golden{"SidecarList", 0, []string{"sidecar", "list"}},
		golden{"Sidecar", 0, []string{"sidecar", "describe", "n1"}},
		golden{"LackList", 1, []string{"sidecar", "diff", "n1"}},
		golden{"Silence", 0, []string{"alert", "silence", "a/login", "--for", "1h"}},
		golden{"AlertList", 0, []string{"alert", "list", "--all"}},
		golden{"AlertTestList", 1, []string{"alert", "test"}},
		golden{"Adoption", 0, []string{"sidecar", "adopt", "OLDER", "--yes"}},
		golden{"FreezeList", 0, []string{"sidecar", "freezes", ops}},
		golden{"Inspection", 0, []string{"inspect", "a/login", "--key", "192.0.2.1", "--sidecar", ops}},
		golden{"FindingList", 1, []string{"doctor", "--sidecar", ops}},
		golden{"Identity", 0, []string{"whoami"}},
		golden{"Version", 0, []string{"version"}},
		golden{"Credential", 0, []string{"token", "create", "--name", "ci", "--role", "editor", "-d", "a"}},
		golden{"CredentialList", 0, []string{"token", "list"}},
		golden{"ProblemList", 1, []string{"validate", "-f", path("bad.yaml")}},
		golden{"SummaryList", 0, []string{"explain", "-f", path("rules.yaml")}},
		golden{"RuleTestList", 0, []string{"test", path("x.test.yaml")}},
		golden{"Simulation", 0, []string{"simulate", "-f", path("rules.yaml"), "--request", "GET /login", "--ip", "192.0.2.1"}},
	)
	check(golden{"Revocation", 0, []string{"token", "revoke", strings.TrimSpace(goldenRun(t, env, 0, "token", "list", "-o", "name"))}})
	if err := plane.pushed(t.Context()); err != nil {
		t.Fatal(err)
	}
	check(golden{"Revision", 0, []string{"watch", "a", "--once", "--node", "w"}})
	check(golden{"WatchEvent", 0, []string{"get", "rules", "a/login", "-w", "--timeout", "1s"}})
	plane.tallies.judged.Store(1000)
	plane.mustSave(t, "n1", "acked=4")
	goldenRun(t, env, 0, "apply", "-f", path("next.yaml"), "--yes")
	goldenRun(t, env, 0, "promote", "a/login", "--plan", "1% 1h, 100%", "--gate", "maxWouldRefuse 2%")
	check(golden{"RolloutStatus", 0, []string{"rollout", "status", "a/login"}})
	for i, facts := range [][]string{
		{"allowed=90", "refused_1=10", "key=192.0.2.1:10", "reference=REFONE", "missing"}, {"would_allow_allowed=95", "would_refuse_allowed_other=5", "would=192.0.2.1:5"},
	} {
		if err := plane.window(t.Context(), "a/login", int64(i)+1, facts...); err != nil {
			t.Fatal(err)
		}
	}
	check(
		golden{"Stats", 0, []string{"stats", "a/login"}},
		golden{"TopKeys", 0, []string{"top", "a/login"}},
		golden{"Lookup", 0, []string{"lookup", "a/login", "--key", "192.0.2.1"}},
	)
	env["RULECTL_CONFIG"] = path("config.yaml")
	check(golden{"ContextList", 0, []string{"config", "get-contexts"}}, golden{"Config", 0, []string{"config", "view"}})
	for _, kind := range kinds(t) {
		if !seen[kind] {
			t.Errorf("the kind %s has no golden file", kind)
		}
	}
}

// kinds are those that the package prints.
func kinds(t *testing.T) (list []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	printed := regexp.MustCompile(`(?:printList\(a, |apiVersion, |Kind: *|kind: +)"([A-Z][A-Za-z]+)"`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range printed.FindAllStringSubmatch(string(text), -1) {
			if !strings.HasSuffix(name, "_test.go") && !slices.Contains(list, found[1]) {
				list = append(list, found[1])
			}
		}
	}
	if len(list) < 25 {
		t.Fatalf("only %d kinds found: %v", len(list), list)
	}
	return list
}

func checkGolden(t *testing.T, kind, got string) {
	t.Helper()
	got = volatile.ReplaceAllStringFunc(got, func(field string) string {
		name, _, _ := strings.Cut(strings.TrimPrefix(field, `"`), `"`)
		if slices.Contains(steady[kind], name) {
			return field
		}
		return `"` + name + `": "…"`
	})
	got = elapsed.ReplaceAllString(got, `"elapsed": "…"`)
	got = inTexts.ReplaceAllStringFunc(got, func(text string) string {
		if strings.HasPrefix(text, "/") && !strings.HasPrefix(text, os.TempDir()) {
			return text
		}
		return "…"
	})
	if !strings.Contains(got, `"kind": "`+kind+`"`) && !strings.Contains(got, `"kind":"`+kind+`"`) {
		t.Errorf("kind %s: got %s", kind, got)
	}
	compareFile(t, filepath.Join("testdata", "golden", kind+".json"), got)
}

// compareFile compares with a file, or writes it with -update.
func compareFile(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it with: go test ./cmd/rulectl/cli -update", err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got); write it with go test ./cmd/rulectl/cli -update:\n%s", path, diff)
	}
}
