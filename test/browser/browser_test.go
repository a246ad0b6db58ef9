package browser

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// serve returns the address of a server whose only page has the body, and as strict a policy as the dashboard's.
func serve(t *testing.T, body string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; script-src 'self' 'nonce-n'; style-src 'self' 'nonce-n'; img-src *")
		_, _ = io.WriteString(w, `<!doctype html><html lang="en"><meta name="viewport" content="width=device-width">
			<title>Page</title><body><main><h1>Page</h1>`+body+`</main>`)
	})
	mux.HandleFunc("GET /favicon.ico", func(http.ResponseWriter, *http.Request) {})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

const script = `<script nonce="n">`

func TestTabNotesWhatGoesWrong(t *testing.T) {
	t.Parallel()
	closed := "http://" + harness.FreeAddr(t) + "/"
	for _, test := range []struct{ name, body, want string }{
		{"an error in the console", script + `console.error("it broke", {a: 1})</script>`, `console: "it broke" Object`},
		{"an assertion", script + `console.assert(false, "odd")</script>`, `console: "odd"`},
		{"an exception", script + `throw new Error("nobody cares")</script>`, "exception: Uncaught Error: nobody cares"},
		{"a promise", script + `Promise.reject(new Error("nobody waits"))</script>`, "exception: Uncaught (in promise) Error: nobody waits"},
		{"a script in the page", `<script>alert(1)</script>`, "policy: kInlineViolation  violates script-src-elem"},
		{"an event handler in the page", `<img src="/favicon.ico" onload="alert(1)" alt="">`, "policy: kInlineViolation  violates script-src-attr"},
		{"a style in the page", `<p style="color: red">red</p>`, "policy: kInlineViolation  violates style-src-attr"},
		{"a script of another host", `<script src="` + closed + `"></script>`, "policy: kURLViolation " + closed + " violates script-src-elem"},
		{"eval", script + `try { eval("1") } catch {}</script>`, "policy: kEvalViolation  violates script-src"},
		{"a missing file", script + `fetch("/missing")</script>`, "404 GET http://127.0.0.1:"},
		{"a change that is refused", script + `fetch("/", {method: "POST"})</script>`, "405 POST http://127.0.0.1:"},
		{"a request to another host", `<img src="` + closed + `" alt="">`, "foreign: GET " + closed},
		{"a request that fails", `<img src="` + closed + `" alt="">`, "failed: GET " + closed + ": net::ERR_CONNECTION_REFUSED"},
		{"a dialog", script + `setTimeout(() => alert("stop"))</script>`, "dialog: stop"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tab := New(t, serve(t, test.body))
			tab.Open("/")
			harness.Eventually(t, patience, func() error {
				seen := tab.unexpected()
				if !slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, test.want) }) {
					return fmt.Errorf("noted were %q", seen)
				}
				return nil
			})
			tab.forget()
		})
	}
}

// forget has the test pass in spite of what went wrong.
func (t *troubles) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen = nil
}

func TestTabWantsWhatTheTestExpectsAndNothingElse(t *testing.T) {
	t.Parallel()
	tab := New(t, serve(t, script+`console.error("one"); console.error("two"); console.error("two")</script>`))
	tab.Expect("two")
	tab.Expect("three")
	tab.Open("/")
	want := []string{`console: "one"`, `nothing happened with "three" in it, which the test expected`}
	if got := tab.unexpected(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	tab.forget()
	tab.expected = nil
}

func TestTabsDoWhatAPersonDoes(t *testing.T) {
	t.Parallel()
	tab := New(t, serve(t, `
		<form><label>Name <input id="name" value="old"></label><button id="go" type="button">Go</button></form>
		<p id="said"></p><p id="key"></p><p hidden id="none">nothing</p><ul><li>a<li>b</ul>`+script+`
		const said = document.querySelector("#said")
		document.querySelector("#go").onclick = e => setTimeout(() => {
			said.textContent = (e.isTrusted ? "a person" : "a script") + " says <" + document.querySelector("#name").value + ">"
			e.target.remove()
		}, 50)
		document.onkeydown = e => document.querySelector("#key").textContent += e.key + " "
	</script>`))
	tab.Open("/?a=1")
	if got := tab.Path(); got != "/?a=1" {
		t.Errorf("the path is %q", got)
	}
	tab.Type("#name", "näw")
	tab.Click("#go")
	tab.WaitText("#said", "a person says <näw>")
	tab.WaitGone("#go")
	tab.WaitGone("#none")
	tab.Press(kb.Escape, "x")
	tab.WaitText("#key", "Escape x")
	if got := tab.Texts("li"); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the items are %q", got)
	}
	tab.Reload()
	if got := tab.Text("#said"); got != "" {
		t.Errorf("after a reload it says %q", got)
	}
}

func TestTabShowsThePageAsPeopleSeeIt(t *testing.T) {
	t.Parallel()
	tab := New(t, serve(t, `<noscript>no script</noscript><p id="zone"></p>`+script+`
		document.querySelector("#zone").textContent = new Date(0).getHours() + (matchMedia("(prefers-color-scheme: dark)").matches ? " dark" : " light")
	</script>`))
	tab.Zone("Asia/Tokyo")
	tab.Dark()
	tab.Narrow()
	tab.Open("/")
	tab.WaitText("#zone", "9 dark")
	if got := Eval[int](tab, `Promise.resolve(innerWidth)`); got != 390 {
		t.Errorf("the window is %d px wide", got)
	}
	file := filepath.Join(t.TempDir(), "page.png")
	tab.Screenshot(file)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if image, err := png.DecodeConfig(bytes.NewReader(content)); err != nil || image.Width != 390 {
		t.Errorf("the picture is %+v: %v", image, err)
	}

	tab.Light()
	tab.NoScript()
	tab.Open("/")
	tab.WaitText("main", "no script")
	if got := tab.Text("#zone"); got != "" {
		t.Errorf("a script has run: %q", got)
	}
}

func TestTabsShareNothing(t *testing.T) {
	t.Parallel()
	address := serve(t, script+`if (location.search) document.cookie = "a=1"</script>`)
	one, two := New(t, address), New(t, address)
	one.Open("/?set")
	two.Open("/")
	if got := Eval[string](one, `document.cookie`) + "; " + Eval[string](two, `document.cookie`); got != "a=1; " {
		t.Errorf("the cookies are %q", got)
	}
}

func TestAxeFindsWhatIsSeriousAlone(t *testing.T) {
	t.Parallel()
	tab := New(t, serve(t, `<style nonce="n">#pale { color: #ccc; background: #fff }</style><p id="pale">hardly seen</p><input id="bare"><h4>skips a step</h4>`))
	tab.Open("/")
	got := strings.Join(tab.violations(), "\n")
	for _, want := range []string{"color-contrast (serious): ", "[#pale]", "label (critical): ", "[#bare]", "https://dequeuniversity.com/"} {
		if !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant it to say %q", got, want)
		}
	}
	if strings.Contains(got, "heading-order") { // moderate
		t.Errorf("got\n%s", got)
	}

	tab = New(t, serve(t, `<p>well seen</p>`))
	tab.Open("/")
	tab.Accessible()
}

// The files of axe-core are those of the version that SHA256SUMS names.
func TestAxeIsWhatItSaysItIs(t *testing.T) {
	t.Parallel()
	list, err := os.Open("testdata/axe/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = list.Close() })
	lines := bufio.NewScanner(list)
	if !lines.Scan() {
		t.Fatal("SHA256SUMS is empty")
	}
	var version string
	if _, err := fmt.Sscanf(lines.Text(), "# axe-core %s", &version); err != nil {
		t.Errorf("the first line is %q: %v", lines.Text(), err)
	}
	if want := "/*! axe v" + strings.TrimSuffix(version, ",") + "\n"; !strings.HasPrefix(axe, want) {
		t.Errorf("axe.min.js does not begin with %q", want)
	}
	known := []string{"SHA256SUMS"}
	for lines.Scan() {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		content, err := os.ReadFile(filepath.Join("testdata/axe", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s has the sum %x, not %s", name, got, sum)
		}
		known = append(known, name)
	}
	files, err := os.ReadDir("testdata/axe")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.Contains(known, file.Name()) {
			t.Errorf("SHA256SUMS does not know %s", file.Name())
		}
	}
}

// TestTroublesFailTheTest runs a test in whose page something goes wrong.
func TestTroublesFailTheTest(t *testing.T) {
	t.Parallel()
	p := helper(t, t.TempDir(), "trouble")
	if err := p.Wait(); err == nil {
		t.Error("a test with an error in its page passed")
	}
	p.WaitLog(`in the browser: console: "it broke"`)
	p.WaitLog("at its end the tab shows Page")
}

// TestBrowserDiesWithTheTestProcess kills a test process that uses a browser.
func TestBrowserDiesWithTheTestProcess(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	p := helper(t, tmp, "hold")
	p.WaitLog("the page is open")
	if len(processes(t, tmp)) == 0 {
		t.Error("no browser runs")
	}
	p.Kill()
	harness.Eventually(t, patience, func() error {
		if left := processes(t, tmp); len(left) > 0 {
			return fmt.Errorf("still running: %q", left)
		}
		return nil
	})
}

// helper runs TestHelperInAnotherProcess, whose browser keeps its files in tmp.
func helper(t *testing.T, tmp, what string) *harness.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperInAnotherProcess$", "-test.v")
	cmd.Env = append(os.Environ(), "BROWSER_HELPER="+what, "TMPDIR="+tmp)
	return harness.StartCmd(t, "test process", cmd)
}

func TestHelperInAnotherProcess(t *testing.T) {
	switch os.Getenv("BROWSER_HELPER") {
	case "trouble":
		New(t, serve(t, script+`console.error("it broke")</script>`)).Open("/")
	case "hold":
		New(t, serve(t, "")).Open("/")
		fmt.Println("the page is open")
		<-t.Context().Done() // held until killed
	}
}

// processes returns the command lines of processes that have the path in them, as /proc has them.
func processes(t *testing.T, path string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if line, err := os.ReadFile(file); err == nil && bytes.Contains(line, []byte(path)) {
			found = append(found, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}
