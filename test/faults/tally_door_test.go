package faults_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/test/harness"
)

// door is a sidecar program in proxy mode, before a service that answers everything.
type door struct {
	t       *testing.T
	node    string
	proxy   string // address
	ops     string
	args    []string
	process *harness.Process
}

func newDoor(t *testing.T, node, plane, redis string) *door {
	t.Helper()
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(service.Close)
	d := &door{t: t, node: node, proxy: harness.FreeAddr(t), ops: harness.FreeAddr(t)}
	// The budget is long so that Redis makes every decision, also on a busy machine.
	d.args = []string{
		"--node-id", node, "--domain", domain, "--controlplane", plane, "--store", "redis://" + redis, "--store-budget", "30s",
		"--upstream", service.URL, "--listen", d.proxy, "--rls-listen", "off", "--ops-listen", d.ops, "--refusal-log-rate", "0",
		// Without it, calls that come before the rules would meet none.
		"--last-good", filepath.Join(t.TempDir(), "last-good"),
	}
	return d
}

// start returns when the rules are in force.
func (d *door) start() {
	d.t.Helper()
	d.process = harness.Start(d.t, d.node, harness.Build(d.t, "./cmd/sidecar"), d.args...)
	harness.Eventually(d.t, patience, func() error {
		response, err := http.Get("http://" + d.ops + "/readyz") //nolint:noctx // of a test's own server
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is not ready: %s", d.node, response.Status)
		}
		return nil
	})
}

// restart ends the program as a deployment does, and starts it again.
func (d *door) restart() {
	d.t.Helper()
	d.stop()
	d.start()
}

func (d *door) stop() {
	d.t.Helper()
	if err := d.process.Interrupt(); err != nil {
		d.t.Errorf("%s: %v", d.node, err)
	}
}

// metric returns the value of a series without labels.
func (d *door) metric(name string) (float64, error) {
	response, err := http.Get("http://" + d.ops + "/metrics") //nolint:noctx // of a test's own server
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s has no series %s", d.node, name)
}

func (d *door) mustMetric(name string) float64 {
	d.t.Helper()
	value, err := d.metric(name)
	if err != nil {
		d.t.Fatal(err)
	}
	return value
}

// call asks for a path as a client, and returns the status of the answer.
func (d *door) call(client *http.Client, path, key string) (int, error) {
	request, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://"+d.proxy+path, nil)
	if err != nil {
		return 0, err
	}
	request.Header.Set("X-Client", key)
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}
