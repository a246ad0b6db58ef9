package deploy_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// guideUntyped are the commands of the guide that no test can type, each with the reason. The proxies and their
// configurations are tested in test/e2e, Envoy's and Kubernetes' files here.
var guideUntyped = map[string]string{
	"`controlplane dev`\n": "it is the name of the demo",
	"make binaries && go build -o bin/ ./deploy/examples/go-service\n":                                                         "the session has the programs",
	"export PATH=$PWD/bin:$PATH EXAMPLES=$PWD/deploy/examples\n":                                                               "the session has the programs",
	"sudo cp $EXAMPLES/nginx.conf /etc/nginx/conf.d/headgate.conf && sudo nginx -t && sudo systemctl reload nginx\n":           "root, and the system's nginx",
	"sudo cp $EXAMPLES/Caddyfile /etc/caddy/Caddyfile && sudo systemctl reload caddy\n":                                        "root, and the system's Caddy",
	"sudo cp $EXAMPLES/haproxy.cfg $EXAMPLES/headgate.lua /etc/haproxy/ && sudo systemctl reload haproxy\n":                    "root, and the system's HAProxy",
	"curl -i http://127.0.0.1:8000/v1/things\n":                                                                                "none of those three is there",
	"envoy -c $EXAMPLES/envoy.yaml\n":                                                                                          "Envoy",
	"curl -i http://127.0.0.1:10000/v1/things\n":                                                                               "Envoy is not there",
	"docker build -f deploy/examples/Dockerfile --target sidecar -t registry.example.com/headgate/sidecar:1.0.0 .\n":           "Docker",
	"docker build -f deploy/examples/Dockerfile --target controlplane -t registry.example.com/headgate/controlplane:1.0.0 .\n": "Docker",
	"kubectl apply -f deploy/examples/kubernetes/controlplane.yaml\n":                                                          "a cluster",
	"kubectl apply -f deploy/examples/kubernetes/service.yaml\n":                                                               "a cluster",
	"`rulectl sidecar adopt LINEAGE`\n":                                                                                        "README.md has it with a database to adopt",
	"`controlplane --auth token --tls-cert … --tls-key …`\n":                                                                   "README.md has it whole, and its test types that",
}

// guideRetyped is what a test types for what the guide says.
var guideRetyped = []retyped{
	{"--last-good last-good &\n", "--last-good last-good & sidecar=$!\n"},
	{"sidecar --domain public-api --store memory --listen off --rls-listen off &\n", instead("sidecar --domain public-api --store memory --listen off --rls-listen off")},
	{"sidecar --domain public-api --store memory --listen off &\n", instead("sidecar --domain public-api --store memory --listen off")},
	{"/var/log/nginx/access.log", "$ACCESS_LOG"},
}

// instead runs a sidecar in the place of the one before.
func instead(command string) string {
	return "kill $sidecar && wait $sidecar\n" + command + " & sidecar=$!\n" + ready("http://127.0.0.1:8082")
}

// Every command of the guide is typed, from the top to the end; but for those that are named above, as it is written. The
// job for pull requests comes after it, where the guide ends.
func TestGuideWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	script := commands(t, "guide.md", guideUntyped, guideRetyped) + strings.Join(jobSteps(t), "")
	wantInOrder(t, newSession(t).run(t, script), "200 200 200 200 200 200 200", "429 Too Many Requests", "200 OK", "per-client")
}

// jobSteps returns what the job for pull requests runs, but for what it installs.
func jobSteps(t *testing.T) (steps []string) {
	t.Helper()
	content, err := os.ReadFile("examples/github-actions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var job struct {
		Jobs map[string]struct {
			Steps []struct{ Name, Run string }
		}
	}
	if err := yaml.Unmarshal(content, &job); err != nil {
		t.Fatal(err)
	}
	for _, s := range job.Jobs["rules"].Steps {
		if s.Name != "" {
			steps = append(steps, regexp.MustCompile(`\$\{\{.*?\}\}`).ReplaceAllString(s.Run, "a1b2c3")+"\n")
		}
	}
	return steps
}

func TestGuideNamesFilesThatAreThere(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("guide.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range regexp.MustCompile(`\]\(([a-z][^)#]*)\)|\$(EXAMPLES/\S+)`).FindAllStringSubmatch(string(content), -1) {
		file := link[1] + strings.Replace(link[2], "EXAMPLES", "examples", 1)
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
