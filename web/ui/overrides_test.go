package ui_test

import (
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/web/api/adminpb"
)

func TestOverridesSayUntilWhenByWhomAndWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wants(t, w.page("/overrides"), "No key has another rate", "rulectl override set", "There are no rules yet")
	w.apply("api", "{name: a, key: [ip], limit: 60/min}")
	w.apply("web", "{name: b, key: [ip], limit: 60/min}")
	_, err := w.api.SetOverride(w.as(), &adminpb.SetOverrideRequest{
		Domain: "api", Rule: "a", Key: []string{"203.0.113.7"}, Rate: "120/min", Until: timestamppb.New(time.Now().Add(time.Hour)), Why: &adminpb.Why{Message: markup},
	})
	if err != nil {
		t.Fatal(err)
	}
	page := w.page("/overrides")
	wants(t, page, "120/min", "ann", "&lt;script&gt;", "/d/api/r/a/do/override-delete?id=", "/d/web/r/b/do/override")
	lacks(t, page, markup, "203.0.113.7")
	wants(t, w.page("/overrides?domain=web"), "None of the 1 overrides is so")
	w.refuses("/overrides?page=0", http.StatusBadRequest, "whole number")
	w.who = access.Identity{Name: "op", Role: access.Operator, Domains: []string{"web"}, Verified: true}
	page = w.page("/overrides")
	wants(t, page, "Only the overrides of your domains are shown: web", "/d/web/r/b/do/override")
	lacks(t, page, "120/min", "/d/api/")
}
