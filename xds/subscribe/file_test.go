package subscribe_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/headgate/headgate/xds/subscribe"
	"github.com/headgate/headgate/xds/xdspb"
	"github.com/headgate/headgate/xds/xdstest"
)

// lastGood is a small file as a client writes it.
func lastGood(t *testing.T) (whole []byte, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "last-good")
	ledger := xdstest.NewLedger()
	ledger.Put(t, "api", "60/min", "a", "b")
	client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), file: subscribe.NewFile(path)})
	ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
	client.stop()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return whole, path
}

func TestFileComesBackAsItWasSaved(t *testing.T) {
	t.Parallel()
	file := diskFile(t)
	if m, err := file.Load(); err != nil || len(m.GetDomains()) != 0 {
		t.Fatalf("no file: got %v, %v", m, err)
	}
	want := &xdspb.LastGood{Domains: []*xdspb.HeldDomain{{Name: "api", Version: "one@1"}, {Name: "other"}}}
	for range 2 { // the second replaces the first
		if err := file.Save(want); err != nil {
			t.Fatal(err)
		}
		got, err := file.Load()
		if err != nil || !proto.Equal(got, want) {
			t.Fatalf("got %v, %v", got, err)
		}
	}
}

func TestFileIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	_, path := lastGood(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v: it holds secrets", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside it: %v, %v", entries, err)
	}
}

func TestDamagedFileIsAnErrorAndStartsEmpty(t *testing.T) {
	t.Parallel()
	whole, path := lastGood(t)
	load := func(what string, b []byte) {
		t.Helper()
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := subscribe.NewFile(path).Load(); err == nil {
			t.Fatalf("%s: loaded %v", what, m)
		}
	}
	for n := range whole {
		load("truncated", whole[:n])
	}
	for i := range whole {
		for bit := range 8 {
			flipped := append([]byte(nil), whole...)
			flipped[i] ^= 1 << bit
			load("bit flip", flipped)
		}
	}
	load("appended", append(append([]byte(nil), whole...), 0))

	client := prepare(t, settings{conn: noControlPlane{}, file: subscribe.NewFile(path)})
	client.Restore()
	if client.sink.applies() != 0 || client.Ready() {
		t.Errorf("%d sets from a damaged file, ready %v", client.sink.applies(), client.Ready())
	}
}

// Written by an older or a newer program: said, and not guessed at. The control plane sends everything, and the file is
// replaced.
func TestFileOfAnotherFormatIsReplaced(t *testing.T) {
	t.Parallel()
	whole, path := lastGood(t)
	for _, format := range []string{"0", "2"} {
		other := bytes.Replace(whole, []byte("format 1"), []byte("format "+format), 1)
		if err := os.WriteFile(path, other, 0o600); err != nil {
			t.Fatal(err)
		}
		file := subscribe.NewFile(path)
		if _, err := file.Load(); err == nil || !strings.Contains(err.Error(), `format "`+format+`"`) {
			t.Fatalf("got %v, want an error that names format %s", err, format)
		}
		ledger := xdstest.NewLedger()
		ledger.Put(t, "api", "60/min", "a")
		var log syncedText
		client := run(t, settings{conn: xdstest.Start(t, ledger, xdstest.Options{}).Conn(t), file: file, log: &log})
		ledger.WaitNode(t, "n1", "api", xdstest.Acked(1))
		client.stop()
		if text := log.String(); !strings.Contains(text, "last good rules cannot be read") {
			t.Errorf("logged %s", text)
		}
		if m, err := file.Load(); err != nil || len(m.GetDomains()) != 1 {
			t.Errorf("afterwards: %v, %v", m, err)
		}
	}
}

// The file of a program from before settings, overrides and last good versions.
func TestFileFromBeforeSettingsIsTaken(t *testing.T) {
	t.Parallel()
	file := diskFile(t)
	if err := file.Save(held(t)); err != nil {
		t.Fatal(err)
	}
	client := prepare(t, settings{conn: noControlPlane{}, file: file})
	client.Restore()
	client.sink.want(t, "api", map[string]string{"a": "60/min"})
}

// A file that is whole and yet says nonsense: written by another program, or by hand.
func TestFileOfAnotherProgram(t *testing.T) {
	t.Parallel()
	whole, path := lastGood(t)
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	spoil := func(change func(*xdspb.HeldDomain)) sidecar {
		t.Helper()
		file := subscribe.NewFile(path)
		m, err := file.Load()
		if err != nil {
			t.Fatal(err)
		}
		change(m.GetDomains()[0])
		other := diskFile(t)
		if err := other.Save(m); err != nil {
			t.Fatal(err)
		}
		client := prepare(t, settings{conn: noControlPlane{}, file: other})
		client.Restore()
		return client
	}
	rule := func(d *xdspb.HeldDomain, name string) *xdspb.Rule {
		for _, r := range d.GetResources() {
			if r.GetName() == name {
				return r.GetResource().GetRule()
			}
		}
		t.Fatalf("no %s in the file", name)
		return nil
	}
	spoil(func(d *xdspb.HeldDomain) {
		rule(d, "api/a").GetStable().Spec = []byte(`{"later":1}`)
	}).sink.want(t, "api", map[string]string{"b": "60/min"})
	spoil(func(d *xdspb.HeldDomain) {
		d.Resources = append(d.Resources, &xdspb.HeldResource{Name: "other/x"})
	}).sink.want(t, "api", map[string]string{"a": "60/min", "b": "60/min"})
	for name, change := range map[string]func(*xdspb.HeldDomain){
		"no domain":  func(d *xdspb.HeldDomain) { d.Resources = d.GetResources()[1:] },
		"bad secret": func(d *xdspb.HeldDomain) { d.GetResources()[0].GetResource().GetDomain().Secret = nil },
		"no content": func(d *xdspb.HeldDomain) { d.GetResources()[0].Resource = nil },
	} {
		if client := spoil(change); client.Ready() {
			t.Errorf("%s: ready with %v", name, client.sink.limits("api"))
		}
	}
}
