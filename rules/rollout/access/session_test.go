package access_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout/access"
)

func TestSessionEndsWithItsCredentialOrBefore(t *testing.T) {
	t.Parallel()
	opened := time.Date(2026, 3, 29, 2, 30, 0, 0, time.UTC)
	for _, c := range []struct {
		name  string
		lives time.Duration // of the credential, from when the session is opened; 0: for ever
		ends  time.Duration
	}{
		{"for ever", 0, 12 * time.Hour},
		{"longer", 13 * time.Hour, 12 * time.Hour},
		{"shorter", time.Hour, time.Hour},
	} {
		credential := access.Credential{ID: "c1", Kind: access.Token, Name: "ann", Role: access.Operator, Domains: []string{"api"}}
		if c.lives != 0 {
			credential.Expires = opened.Add(c.lives)
		}
		who, err := credential.Identity(opened)
		if err != nil {
			t.Fatal(err)
		}
		_, s := access.NewSession(who, opened)
		end := opened.Add(c.ends)
		if !s.Expires.Equal(end) || s.Credential != "c1" {
			t.Errorf("%s: the session is %+v, want one of c1 until %v", c.name, s, end)
		}
		who, err = s.Identity(&credential, end.Add(-time.Microsecond))
		if err != nil || who.Name != "ann" || who.Role != access.Operator || !who.Verified || len(who.Domains) != 1 || !who.Expires.Equal(end) {
			t.Errorf("%s: before its end it is of %+v, %v", c.name, who, err)
		}
		if _, err = s.Identity(&credential, end); !errors.Is(err, rules.ErrUnauthenticated) {
			t.Errorf("%s: at its end: %v, want an ErrUnauthenticated", c.name, err)
		}
		credential.Revoked = opened
		if _, err = s.Identity(&credential, opened); !errors.Is(err, rules.ErrUnauthenticated) || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("%s: of a revoked credential: %v, want that it was revoked", c.name, err)
		}
	}
}

func TestSecretOfASessionIsNotKept(t *testing.T) {
	t.Parallel()
	secret, s := access.NewSession(access.Identity{Credential: "c1"}, time.Now())
	other, _ := access.NewSession(access.Identity{Credential: "c1"}, time.Now())
	if len(secret) != 64 || secret == other {
		t.Errorf("secrets are %q and %q, want 256 bits, fresh each time", secret, other)
	}
	if s.Hash == secret || s.Hash != access.HashSession(secret) || s.Hash == access.HashToken(secret) {
		t.Errorf("what is kept is %q, want a hash of its own kind", s.Hash)
	}
}
