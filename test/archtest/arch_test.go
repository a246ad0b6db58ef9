package archtest

import (
	"path/filepath"
	"strings"
	"testing"
)

var checks = map[string]func(Tree) []string{
	"layers":            CheckLayers,
	"rules are pure":    CheckRulesArePure,
	"no SQL in sidecar": CheckSidecarHasNoSQL,
	"exporters":         CheckExportersAreInCommands,
	"gRPC codes":        CheckGRPCCodes,
	"package comments":  CheckPackageComments,
	"no skips":          CheckNoSkips,
	"no sleeps":         CheckNoSleeps,
}

func TestCodeKeepsItsArchitecture(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	// Without these the checks would look at nothing and pass.
	for _, dir := range []string{"rules", "cmd/sidecar", "xds/rpcstatus"} {
		if _, ok := tree.Packages[tree.Module+"/"+dir]; !ok {
			t.Errorf("there is no package %s, which the checks are about: if it was moved, move the checks with it", dir)
		}
	}
	for name, check := range checks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, violation := range check(tree) {
				t.Error(violation)
			}
		})
	}
}

// The seeded code: what each check has to catch, beside what it must let pass.

const module = "example.com/m"

// pkg describes a package of the seeded module by its folder. In imports, "~" stands for
// the module.
func pkg(dir string, imports ...string) Package {
	p := Package{ImportPath: module + "/" + dir, Name: filepath.Base(dir)}
	p.Doc = "Package " + p.Name + " is here for a test."
	if strings.HasPrefix(dir, "cmd/") && strings.Count(dir, "/") == 1 {
		p.Name, p.Doc = "main", "Command "+p.Name+" is here for a test."
	}
	for _, imported := range imports {
		if own, ok := strings.CutPrefix(imported, "~"); ok {
			imported = module + own
		}
		p.Imports = append(p.Imports, imported)
	}
	return p
}

func seeded(packages ...Package) Tree {
	tree := Tree{Module: module, Packages: map[string]Package{}}
	for _, p := range packages {
		tree.Packages[p.ImportPath] = p
		if tree.owns(p.ImportPath) {
			tree.Files = append(tree.Files, File{Path: tree.dir(p.ImportPath) + "/x.go", Imports: p.Imports})
		}
	}
	return tree
}

func TestChecksOnImportsCatchWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	external := func(path string, imports ...string) Package {
		return Package{ImportPath: path, Imports: imports}
	}
	for _, test := range []struct {
		name  string
		check string
		tree  Tree
		want  string // part of the one violation; "" for none
	}{
		{"down", "layers", seeded(pkg("storage/sqlite", "~/rules", "~/rules/rollout")), ""},
		{"down from main", "layers", seeded(pkg("cmd/controlplane", "~/cmd/controlplane/app", "~/cmd/sidecar/app")), ""},
		{"down from an app", "layers", seeded(pkg("cmd/sidecar/app", "~/enforce", "~/xds/subscribe", "~/rules")), ""},
		{"what commands share", "layers", seeded(pkg("cmd/sidecar/app", "~/cmd/internal/traces")), ""},
		{"what commands share upwards", "layers", seeded(pkg("cmd/internal/traces", "~/cmd/sidecar/app")), "(layer 4) imports cmd/sidecar/app (layer 5)"},
		{"within a folder", "layers", seeded(pkg("xds/push", "~/xds", "~/xds/xdspb"), pkg("test/e2e", "~/test/harness")), ""},
		{"beneath a folder of layer 3", "layers", seeded(pkg("rules/rulefile", "~/rules/rulefile/position")), ""},
		{"others' code", "layers", seeded(pkg("rules/rollout", "example.org/enforce")), ""},
		{"rules upwards", "layers", seeded(pkg("rules", "~/rules/rulefile")), "rules (layer 1) imports rules/rulefile (layer 3)"},
		{"tally by rollout", "layers", seeded(pkg("rules/rollout", "~/rules/tally")), ""},
		{"rollout by tally", "layers", seeded(pkg("rules/tally", "~/rules/rollout")), "rules/tally (layer 2) imports rules/rollout (layer 3)"},
		{"rollout upwards", "layers", seeded(pkg("rules/rollout", "~/storage")), "rules/rollout (layer 3) imports storage (layer 4)"},
		{"enforce upwards", "layers", seeded(pkg("enforce", "~/cmd/sidecar/app")), "enforce (layer 4) imports cmd/sidecar/app (layer 5)"},
		{"app upwards", "layers", seeded(pkg("cmd/sidecar/app", "~/cmd/sidecar")), "(layer 5) imports cmd/sidecar (layer 6)"},
		{"main upwards", "layers", seeded(pkg("cmd/sidecar", "~/test/harness")), "(layer 6) imports test/harness (layer 7)"},
		{"neighbours on layer 3", "layers", seeded(pkg("rules/rollout", "~/rules/rulefile")), "its neighbour on layer 3"},
		{"neighbours on layer 4", "layers", seeded(pkg("web/api", "~/xds/rpcstatus")), "its neighbour on layer 4"},
		{"neighbours on layer 5", "layers", seeded(pkg("cmd/controlplane/app", "~/cmd/sidecar/app")), "its neighbour on layer 5"},
		{"neighbours on layer 6", "layers", seeded(pkg("cmd/rulectl", "~/cmd/sidecar")), "its neighbour on layer 6"},
		{"neighbours on layer 7", "layers", seeded(pkg("deploy", "~/test/harness")), "its neighbour on layer 7"},
		{"unknown folder", "layers", seeded(pkg("internal/misc")), "internal/misc stands in no layer"},
		{"command without a name", "layers", seeded(pkg("cmd")), "cmd stands in no layer"},

		{"pure", "rules are pure", seeded(pkg("rules", "fmt", "net/netip", "net/url", "cel.dev/cel-go/cel", "time")), ""},
		{"others may", "rules are pure", seeded(pkg("rules/rulefile", "os", "go.yaml.in/yaml/v3")), ""},
		{"a library", "rules are pure", seeded(pkg("rules", "go.yaml.in/yaml/v3")), "rules imports go.yaml.in/yaml/v3"},
		{"a namesake of CEL", "rules are pure", seeded(pkg("rules", "cel.dev/cel-gold")), "rules imports cel.dev/cel-gold"},
		{"files", "rules are pure", seeded(pkg("rules", "os")), "rules imports os"},
		{"file systems", "rules are pure", seeded(pkg("rules", "io/fs")), "rules imports io/fs"},
		{"network", "rules are pure", seeded(pkg("rules", "net")), "rules imports net."},
		{"network by the back door", "rules are pure", seeded(pkg("rules", "net/textproto")), "rules imports net/textproto"},
		{"database", "rules are pure", seeded(pkg("rules", "database/sql/driver")), "rules imports database/sql/driver"},
		{"log", "rules are pure", seeded(pkg("rules", "log/slog")), "rules imports log/slog"},

		{
			"no driver", "no SQL in sidecar",
			seeded(pkg("cmd/sidecar", "~/enforce"), pkg("enforce"), pkg("storage/postgres", "github.com/jackc/pgx/v5")), "",
		},
		{
			"a driver two steps away", "no SQL in sidecar",
			seeded(pkg("cmd/sidecar", "~/cmd/sidecar/app"), pkg("cmd/sidecar/app", "github.com/jackc/pgx/v5")),
			"example.com/m/cmd/sidecar → example.com/m/cmd/sidecar/app → github.com/jackc/pgx/v5",
		},
		{
			"a driver in a library", "no SQL in sidecar",
			seeded(pkg("cmd/sidecar", "example.org/lib"), external("example.org/lib", "github.com/jackc/pgx/v5")),
			"example.org/lib → github.com/jackc/pgx/v5",
		},
		{
			"SQLite", "no SQL in sidecar",
			seeded(pkg("cmd/sidecar", "modernc.org/sqlite"), external("modernc.org/sqlite", "database/sql")),
			"cmd/sidecar → modernc.org/sqlite",
		},

		{"in a command", "exporters", seeded(pkg("cmd/internal/traces", "go.opentelemetry.io/otel/sdk/trace")), ""},
		{"the API", "exporters", seeded(pkg("enforce", "go.opentelemetry.io/otel/trace")), ""},
		{"the SDK", "exporters", seeded(pkg("enforce", "go.opentelemetry.io/otel/sdk/trace")), "enforce imports go.opentelemetry.io/otel/sdk/trace"},
		{"an exporter", "exporters", seeded(pkg("xds", "go.opentelemetry.io/otel/exporters/stdout")), "xds imports"},

		{"the one place", "gRPC codes", seeded(pkg("xds/rpcstatus", "google.golang.org/grpc/codes")), ""},
		{"any other", "gRPC codes", seeded(pkg("web/api", "google.golang.org/grpc/codes")), "web/api/x.go imports"},

		{"with comments", "package comments", seeded(pkg("rules"), pkg("cmd/rulectl")), ""},
		{"none", "package comments", seeded(Package{ImportPath: module + "/web", Name: "web"}), `web has no package comment that begins "Package web"`},
		{
			"of another package", "package comments",
			seeded(Package{ImportPath: module + "/rules", Name: "rules", Doc: "Package rulesets is something else."}), "rules has no package comment",
		},
		{
			"of a command as of a package", "package comments",
			seeded(Package{ImportPath: module + "/cmd/rulectl", Name: "main", Doc: "Package main is rulectl."}), `begins "Command rulectl"`,
		},
	} {
		t.Run(test.check+": "+test.name, func(t *testing.T) {
			t.Parallel()
			wantViolation(t, checks[test.check](test.tree), test.want)
		})
	}
}

func TestChecksOnFilesCatchWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		check  string
		path   string
		source string
		want   string // part of the one violation; "" for none
	}{
		{"skip", "no skips", "rules/a_test.go", "package a\nfunc F(t T) {\n\tt.Skip(1)\n}", "rules/a_test.go:3 calls t.Skip"},
		{"skip with a format", "no skips", "rules/a_test.go", "package a\nfunc F(tb T) { tb.Skipf(1) }", "tb.Skipf"},
		{"skip now", "no skips", "rules/a_test.go", "package a\nfunc F(s T) { s.T().SkipNow() }", "a method SkipNow"},
		{"short", "no skips", "rules/a_test.go", "package a\nfunc F() bool { return testing.Short() }", "testing.Short"},
		{"skip in a suite", "no skips", "storage/storagetest/a.go", "package a\nimport \"testing\"\nfunc F(t *testing.T) { t.Skip() }", "t.Skip"},
		{"skip of something else", "no skips", "rules/a.go", "package a\nfunc F(d *json.Decoder) { d.Skip() }", ""},
		{"a word in a comment", "no skips", "rules/a_test.go", "package a\n// t.Skip() is not used.\n", ""},

		{"sleep", "no sleeps", "rules/a_test.go", "package a\nfunc F() { time.Sleep(1) }", "rules/a_test.go:2 calls time.Sleep"},
		{"sleep in a suite", "no sleeps", "enforce/limittest/a.go", "package a\nimport \"testing\"\nfunc F() { time.Sleep(1) }", "time.Sleep"},
		{"sleep in a bubble", "no sleeps", "rules/a_test.go", "package a\nfunc F(t T) { synctest.Test(t, func(t T) { time.Sleep(1) }) }", ""},
		{"sleep after a bubble", "no sleeps", "rules/a_test.go", "package a\nfunc F(t T) {\n\tsynctest.Test(t, g)\n\ttime.Sleep(1)\n}", "a_test.go:4"},
		{"sleep in the product", "no sleeps", "rules/a.go", "package a\nfunc F() { time.Sleep(1) }", ""},

		{"codes in generated code", "gRPC codes", "web/a.go", "// Code generated by x. DO NOT EDIT.\n\npackage a\nimport _ \"google.golang.org/grpc/codes\"", ""},
		{"codes in a test", "gRPC codes", "web/a_test.go", "package a\nimport _ \"google.golang.org/grpc/codes\"", ""},
		{"codes under another name", "gRPC codes", "web/a.go", "package a\nimport c \"google.golang.org/grpc/codes\"", "web/a.go imports"},
	} {
		t.Run(test.check+": "+test.name, func(t *testing.T) {
			t.Parallel()
			file, err := parseFile(test.path, []byte(test.source))
			if err != nil {
				t.Fatal(err)
			}
			wantViolation(t, checks[test.check](Tree{Module: module, Files: []File{file}}), test.want)
		})
	}
}

func wantViolation(t *testing.T, got []string, want string) {
	t.Helper()
	if want == "" && len(got) > 0 {
		t.Errorf("got %q, want no violation", got)
	}
	if want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
		t.Errorf("got %q, want one violation with %q in it", got, want)
	}
}
