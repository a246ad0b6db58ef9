package deploy_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/test/harness"
	"github.com/headgate/headgate/xds/certs/certstest"
)

// readmeUntyped are the commands of README.md that no test can type, each with the reason.
var readmeUntyped = map[string]string{
	"make test\n": "it is what runs this test",
	"make binaries && export PATH=$PWD/bin:$PATH\n": "the session has the programs",
	"`make binaries`\n":                             "the session has the programs",
	"`controlplane dev`\n":                          "it is what the first command has started",
	"sudo -u postgres createuser headgate && sudo -u postgres createdb -O headgate headgate\n": "root, and users of the system's own Postgres",
	"`kubectl port-forward`\n":                           "there is no cluster",
	"`go test ./test/load -run '^$' -bench Dashboard`\n": "it takes a minute, and its figures are those of the machine",
	"`controlplane migrate --program-role ROLE`\n":       "users of Postgres are of all its databases, not of the test's own",
}

const (
	stop  = "kill $plane && wait $plane\n"
	plane = "controlplane --database-url \"$DB\" --auth token --tls-cert server.pem --tls-key server-key.pem & plane=$!\n"
)

// readmeRetyped is what a test types for what README.md says: other names and places, --yes where a person would be asked,
// and in the background what a person leaves running in another terminal.
var readmeRetyped = []retyped{
	{"go run ./cmd/controlplane dev\n", "controlplane dev --grpc-listen 127.0.0.1:18000 --http-listen 127.0.0.1:7070 --listen 127.0.0.1:8080" +
		" --ops-listen 127.0.0.1:8082 --rls-listen off 2>dev.log & plane=$!\n" + ready("http://127.0.0.1:8082")},
	{"/tmp/", "$HOME/"},
	{"DOMAIN/RULE", "demo/search"},
	{"-d DOMAIN", "-d demo"},
	{"freeze DOMAIN", "freeze demo"},
	{"stats DOMAIN", "stats demo"},
	{"--to-revision N", "--to-revision 2"},
	{"--key VALUE --limit 300/min", "--key k8 --limit 300/min --yes"},
	{"--key VALUE", "--key k8"},
	{"diff NODE", "diff dev"},
	{"HOST:8082", "127.0.0.1:8082"},
	{"access.log", "$ACCESS_LOG"},

	{
		"controlplane --database-url postgres://headgate@127.0.0.1/headgate\n",
		stop + "controlplane --database-url \"$DB\" & plane=$!\n" + ready("http://127.0.0.1:7070"),
	},
	{"/var/lib/", "$HOME/"},
	{"redis://127.0.0.1:6379", "redis://$REDIS"},
	{"/last-good\n", "/last-good & sidecar=$!\n" + ready("http://127.0.0.1:8082")},

	{"controlplane token create --database-url postgres://…", "kill $sidecar && wait $sidecar\n" + stop + "cp $PKI/* .\ncontrolplane token create --database-url \"$DB\""},
	{"controlplane --database-url postgres://… --auth token --grpc-listen 0.0.0.0:18000 \\\n" +
		"             --tls-cert server.pem --tls-key server-key.pem\n", plane + ready("https://127.0.0.1:7070")},
	{"controlplane.example.com:18000", "127.0.0.1:18000"},
	{"sidecar …", "sidecar --node-id cart-1 --domain public-api --store memory --last-good $HOME/headgate/last-good"},
	{"-token-file cart.token\n", "-token-file cart.token &\n" + ready("http://127.0.0.1:8082")},
	{"`controlplane renew-lineage --yes`\n", "rulectl apply -f rules/ -m README --wait\n" + stop +
		"controlplane renew-lineage --database-url \"$DB\" --yes\n" + plane + ready("https://127.0.0.1:7070")},
	{"rulectl sidecar adopt LINEAGE", "until adopt=$(rulectl sidecar list | tee sidecars | grep -o 'rulectl sidecar adopt .*'); do sleep 0.1; done\ncat sidecars\n$adopt --yes"},
}

// Every command of README.md is typed, from the top to the end; but for those that are named above, as it is written.
func TestReadmeWorksAsItIsWritten(t *testing.T) {
	t.Parallel()
	script := commands(t, "../README.md", readmeUntyped, readmeRetyped)
	s := newSession(t)
	pki, authority := t.TempDir(), certstest.New(t)
	server := authority.Server(time.Now().Add(time.Hour))
	certstest.Write(t, authority.PEM, pki, "ca.pem")
	certstest.Write(t, server.Cert, pki, "server.pem")
	certstest.Write(t, server.Key, pki, "server-key.pem")
	s.environment = append(s.environment, "PKI="+pki, "DB="+harness.Postgres(t), "REDIS="+harness.RedisAddr(t))
	wantInOrder(t, s.run(t, script), "200 200 200 200 200 200", `outcome="would_refuse",rule="search",version="1"} 2`,
		"200 200 200 200 429 429", "in shadow with no stable version", "5 allowed, 3 refused", "Role:     admin", "Foreign", "every record is what was written")
}
