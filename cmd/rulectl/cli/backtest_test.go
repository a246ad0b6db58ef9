package cli_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/rulectl/cli"
	"github.com/headgate/headgate/test/harness"
)

func TestOfflineScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, "backtest", "test", "simulate", "init")
}

// rulectl runs a command in this process.
func rulectl(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, complaints bytes.Buffer
	code = cli.Run(t.Context(), args, cli.IO{
		In: strings.NewReader(""), Out: &out, Err: &complaints, Getenv: func(string) string { return "" },
	})
	return code, out.String(), complaints.String()
}

const webRules = "apiVersion: headgate/v1\nkind: RuleSet\ndomain: web\nrules: [{name: r, key: [ip], limit: 20/min burst 10}]\n"

func publicLog(t *testing.T) (path string, content []byte) {
	t.Helper()
	path = filepath.Join("..", "backtest", "testdata", "access-public.log")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBacktestOfARealLogGivesTheKnownNumbersFromRedisToo(t *testing.T) {
	t.Parallel()
	log, content := publicLog(t)
	rulesFile := write(t, "web.yaml", []byte(webRules))
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(content)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var outputs []string
	for _, args := range [][]string{
		{"--log", log},
		{"--log", log, "--store", "redis://" + harness.Redis(t).Addr},
		{"--log", write(t, "access.log.gz", packed.Bytes())},
	} {
		code, out, complaints := rulectl(t, append([]string{"backtest", "-f", rulesFile, "-o", "json"}, args...)...)
		if code != 0 || complaints != "" {
			t.Fatalf("%v: exit code %d: %s", args, code, complaints)
		}
		outputs = append(outputs, out)
	}
	var got struct {
		Lines int
		Rules []struct {
			Rule        string
			Refused     int
			RefusedKeys int `json:"refused_keys"`
			Top         []struct {
				Key     string
				Refused int
			}
		}
	}
	if err := json.Unmarshal([]byte(outputs[0]), &got); err != nil {
		t.Fatal(err)
	}
	r := got.Rules[0]
	if got.Lines != 5000 || r.Refused != 270 || r.RefusedKeys != 15 || len(r.Top) != 10 || r.Top[0].Key != "198.18.0.97" || r.Top[0].Refused != 149 {
		t.Errorf("got %+v, want 270 refused of 15 keys, the worst 198.18.0.97 with 149", got)
	}
	for i, out := range outputs {
		if out != outputs[0] {
			t.Errorf("output %d differs from the one from memory:\n%s", i, out)
		}
	}
}
