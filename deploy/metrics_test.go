package deploy_test

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	controlplane "github.com/headgate/headgate/cmd/controlplane/app"
	sidecar "github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/test/reference"
	"github.com/headgate/headgate/xds/certs/certstest"
)

// The page has what the two programs register with all that they can have: TLS, Redis, every door.
func TestReferencePageOfMetricsIsUpToDate(t *testing.T) {
	t.Parallel()
	dir, authority := t.TempDir(), certstest.New(t)
	pair := authority.Server(time.Now().Add(time.Hour))
	ca := certstest.Write(t, authority.PEM, dir, "ca")
	cert, key := certstest.Write(t, pair.Cert, dir, "cert"), certstest.Write(t, pair.Key, dir, "key")

	p := controlplane.DefaultConfig()
	p.Database, p.Auth, p.GRPCListen, p.HTTPListen = filepath.Join(dir, "db"), controlplane.AuthToken, "127.0.0.1:0", "127.0.0.1:0"
	p.TLSCert, p.TLSKey, p.TLSClientCA = cert, key, ca
	plane, err := controlplane.New(t.Context(), p, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = plane.Close() }()

	s := sidecar.DefaultConfig()
	s.Domains, s.ProxyListen, s.RLSListen, s.OpsListen = []string{"d"}, "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	s.Trust = sidecar.Trust{CA: ca, Cert: cert, Key: key}
	gate, err := sidecar.New(t.Context(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gate.Close() }()

	page := "Beside these, both programs have the metrics of the Go runtime (`go_`) and of their process (`process_`). Labels are bounded\n" +
		"by rules and configuration, never by keys or clients.\n" +
		"\n## sidecar\n\n" + table(t, gate.Metrics()) + "\n## controlplane\n\n" + table(t, plane.Metrics())
	reference.Compare(t, "reference/metrics.md", "Metrics", "go test ./deploy -run Reference", page)
}

// metric is what a registry says of one.
type metric struct {
	name, kind, help string
	labels           []string
}

// described are parts of a prometheus.Desc, which shows them in no other way.
var described = regexp.MustCompile(`^Desc\{fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// table lists the metrics of a registry, those without a series as well.
func table(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	kinds := map[string]string{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		kinds[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()
	list := map[string]metric{}
	for d := range descs {
		m, ok := parse(d.String())
		if !ok {
			t.Errorf("cannot read %s", d)
			continue
		}
		if strings.HasPrefix(m.name, "go_") || strings.HasPrefix(m.name, "process_") {
			continue
		}
		// A counter's name ends in _total, and no other does; and a vector without a series is a counter or a gauge.
		m.kind = cmp.Or(kinds[m.name], "gauge")
		if strings.HasSuffix(m.name, "_total") {
			m.kind = "counter"
		}
		if seen := kinds[m.name]; seen != "" && seen != m.kind {
			t.Errorf("%s is a %s: the name of a counter ends in _total, and no other does", m.name, seen)
		}
		list[m.name] = m
	}
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n")
	for _, m := range slices.SortedFunc(maps.Values(list), func(x, y metric) int { return cmp.Compare(x.name, y.name) }) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), m.help)
	}
	return b.String()
}

func parse(desc string) (m metric, ok bool) {
	parts := described.FindStringSubmatch(desc)
	if parts == nil {
		return m, false
	}
	m.name, _ = strconv.Unquote(parts[1])
	m.help, _ = strconv.Unquote(parts[2])
	for pair := range strings.SplitSeq(parts[3], ",") {
		if label, _, is := strings.Cut(pair, "="); is {
			m.labels = append(m.labels, "`"+label+"`")
		}
	}
	for label := range strings.SplitSeq(parts[4], ",") {
		if label != "" {
			m.labels = append(m.labels, "`"+label+"`")
		}
	}
	return m, m.name != ""
}
