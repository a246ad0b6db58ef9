package app_test

import (
	"strings"
	"testing"

	"github.com/headgate/headgate/cmd/controlplane/app"
)

func TestDefaultConfigIsValid(t *testing.T) {
	t.Parallel()
	if err := app.DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesEveryBadSetting(t *testing.T) {
	t.Parallel()
	c := app.DefaultConfig()
	c.Database, c.GRPCListen, c.HTTPListen, c.Poll = "mysql://db", ":18000", "0.0.0.0:7070", -1
	err := c.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"--database-url: mysql://", "--grpc-listen: :18000", "--http-listen: 0.0.0.0:7070", "--poll: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	c = app.DefaultConfig()
	c.GRPCListen, c.HTTPListen, c.Insecure = ":18000", "[::1]:7070", true
	if err := c.Validate(); err != nil {
		t.Errorf("with --insecure: %v", err)
	}
}

func TestNobodyTellsOfChanges(t *testing.T) {
	t.Parallel()
	c := app.DefaultConfig()
	c.Poll, c.NoListen = 0, true
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "--poll") {
		t.Errorf("neither notifications nor polling: got %v, want a refusal", err)
	}
}
