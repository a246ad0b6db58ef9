package main

import (
	"testing"

	"github.com/caarlos0/env/v11"

	"github.com/headgate/headgate/cmd/sidecar/app"
	"github.com/headgate/headgate/test/reference"
)

func TestReferencePageIsUpToDate(t *testing.T) {
	t.Parallel()
	fields, err := env.GetFieldParamsWithOptions(&app.Config{}, env.Options{Prefix: "HEADGATE_"})
	if err != nil {
		t.Fatal(err)
	}
	var environment []string
	for _, f := range fields {
		environment = append(environment, f.Key)
	}
	page := reference.Command(t, command(), environment)
	reference.Compare(t, "../../deploy/reference/sidecar.md", "sidecar", "go test ./cmd/sidecar -run Reference", page)
}
