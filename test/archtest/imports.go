package archtest

import (
	"fmt"
	"strings"
)

// place is where a package stands in the import table: its layer, and the folder within
// which packages of that layer may import each other.
type place struct {
	layer  int
	folder string
}

// placeOf returns the place of the package in folder dir, from the top of the repository.
// The table is this:
//
//	7  test/…           deploy/…
//	6  cmd/controlplane cmd/sidecar     cmd/rulectl
//	5  cmd/controlplane/app  cmd/sidecar/app  cmd/rulectl/cli
//	4  enforce/…        xds/…           storage/…       web/…       cmd/internal/…
//	3  rules/rulefile   rules/rollout
//	2  rules/tally                      below what promotes on its proof
//	1  rules
func placeOf(dir string) (place, bool) {
	top, rest, nested := strings.Cut(dir, "/")
	second, _, deeper := strings.Cut(rest, "/")
	switch top {
	case "test", "deploy":
		return place{7, top}, true
	case "cmd":
		switch {
		case !nested:
			return place{}, false
		case second == "internal":
			return place{4, "cmd/internal"}, true
		case deeper:
			return place{5, "cmd/" + second}, true
		default:
			return place{6, "cmd/" + second}, true
		}
	case "enforce", "xds", "storage", "web":
		return place{4, top}, true
	case "rules":
		switch {
		case !nested:
			return place{1, top}, true
		case second == "tally":
			return place{2, "rules/" + second}, true
		}
		return place{3, "rules/" + second}, true
	default:
		return place{}, false
	}
}

// CheckLayers reports imports that do not point down.
func CheckLayers(tree Tree) []string {
	var found []string
	for _, p := range tree.own() {
		dir := tree.dir(p.ImportPath)
		from, ok := placeOf(dir)
		if !ok {
			found = append(found, fmt.Sprintf("%s stands in no layer of the import table. "+
				"Every folder has one, so that a reader can tell from its name what it may know: "+
				"put the package into the folder that owns its subject, or change the table in placeOf.", dir))
			continue
		}
		for _, imported := range p.Imports {
			if !tree.owns(imported) {
				continue
			}
			target := tree.dir(imported)
			to, ok := placeOf(target)
			if !ok {
				continue // reported once, above
			}
			switch {
			case to.layer < from.layer || to == from:
			case to.layer == from.layer:
				found = append(found, fmt.Sprintf("%s imports %s, its neighbour on layer %d. "+
					"Neighbours do not know each other, so that each can be read, tested and replaced alone: "+
					"declare the interface you need, and let cmd/*/app put the two together.", dir, target, from.layer))
			default:
				found = append(found, fmt.Sprintf("%s (layer %d) imports %s (layer %d). "+
					"Imports point down, so that what a rule means never depends on how it is stored, sent or shown: "+
					"move what both need down, or pass it in from above.", dir, from.layer, target, to.layer))
			}
		}
	}
	return found
}

// CheckRulesArePure reports imports of package rules beyond the standard library and CEL,
// and those through which the world comes in.
func CheckRulesArePure(tree Tree) []string {
	const why = "Package rules says what a rule means, the same on every machine and in every test: "
	var found []string
	for _, imported := range tree.Packages[tree.Module+"/rules"].Imports {
		switch {
		case tree.owns(imported):
			// CheckLayers reports it.
		case imported == "cel.dev/cel-go" || strings.HasPrefix(imported, "cel.dev/cel-go/"):
		case strings.Contains(strings.SplitN(imported, "/", 2)[0], "."):
			found = append(found, fmt.Sprintf("rules imports %s. %s"+
				"it uses the standard library and CEL, nothing else.", imported, why))
		case doesIO(imported):
			found = append(found, fmt.Sprintf("rules imports %s. %s"+
				"it reads no file, network, database or log. Pass in what you need.", imported, why))
		}
	}
	return found
}

// doesIO reports whether a package of the standard library reaches outside the process.
// net/netip and net/url only deal with text and numbers. net/textproto imports net.
func doesIO(path string) bool {
	switch path {
	case "net/netip", "net/url":
		return false
	case "io/fs", "io/ioutil", "path/filepath", "plugin":
		return true
	}
	for _, family := range []string{"os", "net", "syscall", "log", "database/sql", "crypto/tls", "expvar"} {
		if path == family || strings.HasPrefix(path, family+"/") {
			return true
		}
	}
	return false
}

// CheckExportersAreInCommands reports packages beside the commands that make or send traces by themselves.
func CheckExportersAreInCommands(tree Tree) []string {
	var found []string
	for _, p := range tree.own() {
		if strings.HasPrefix(tree.dir(p.ImportPath), "cmd/") {
			continue
		}
		for _, imported := range p.Imports {
			if strings.HasPrefix(imported, "go.opentelemetry.io/otel/sdk/") || strings.HasPrefix(imported, "go.opentelemetry.io/otel/exporters/") {
				found = append(found, fmt.Sprintf("%s imports %s. Whether there are traces, and where they go, "+
					"is for the program that is put together: take a handler, an interface or a tracer from it.", tree.dir(p.ImportPath), imported))
			}
		}
	}
	return found
}

// CheckSidecarHasNoSQL reports SQL drivers that would be linked into the sidecar, each
// with the chain of imports that brings it in.
func CheckSidecarHasNoSQL(tree Tree) []string {
	var found []string
	sidecar := tree.Module + "/cmd/sidecar"
	importer := map[string]string{sidecar: ""} // who was first seen to import it
	for queue := []string{sidecar}; len(queue) > 0; queue = queue[1:] {
		path := queue[0]
		if isSQLDriver(path) {
			chain := path
			for by := importer[path]; by != ""; by = importer[by] {
				chain = by + " → " + chain
			}
			found = append(found, "The sidecar links a SQL driver: "+chain+". "+
				"A sidecar runs beside every service and gets its rules over xDS alone; "+
				"a database driver would be weight and attack surface for nothing. Cut the chain.")
			continue // what a driver imports is no news
		}
		for _, imported := range tree.Packages[path].Imports {
			if _, seen := importer[imported]; !seen {
				importer[imported] = path
				queue = append(queue, imported)
			}
		}
	}
	return found
}

func isSQLDriver(path string) bool {
	for _, driver := range []string{
		"github.com/jackc/pgx", "github.com/lib/pq", "github.com/mattn/go-sqlite3", "modernc.org/sqlite",
	} {
		if path == driver || strings.HasPrefix(path, driver+"/") {
			return true
		}
	}
	return false
}

// CheckGRPCCodes reports importers of gRPC's codes other than xds/rpcstatus.
func CheckGRPCCodes(tree Tree) []string {
	var found []string
	for _, f := range tree.Files {
		if f.Generated || f.Test() || strings.HasPrefix(f.Path, "xds/rpcstatus/") {
			continue
		}
		for _, imported := range f.Imports {
			if imported == "google.golang.org/grpc/codes" {
				found = append(found, f.Path+" imports google.golang.org/grpc/codes. "+
					"Which error kind is which code is decided in one place, both ways, so that errors.Is works across the wire: "+
					"return an error kind of package rules, and let xds/rpcstatus translate it at the edge.")
			}
		}
	}
	return found
}
