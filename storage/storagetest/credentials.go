package storagetest

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/storage"
)

func credential(id string, domains []string) access.Credential {
	return access.Credential{
		ID: id, Kind: access.Token, Hash: access.HashToken(id), Name: "ci of " + id, Role: access.Editor, Domains: domains, Created: at,
	}
}

func addCredential(t *testing.T, s storage.Store, c access.Credential) {
	t.Helper()
	if err := s.AddCredential(t.Context(), c, note(rollout.ActionAddCredential, c.ID)); err != nil {
		t.Fatalf("add credential %s: %v", c.ID, err)
	}
}

func mustCredentials(t *testing.T, s storage.Store) []access.Credential {
	t.Helper()
	list, err := s.Credentials(t.Context())
	if err != nil {
		t.Fatalf("credentials: %v", err)
	}
	return list
}

func credentialsAreKept(t *testing.T, f *fixture) {
	all, none, some := credential("c", nil), credential("b", []string{}), credential("a", []string{"web", "api"})
	all.Kind, all.Role, all.Name = access.Certificate, access.Sidecar, "spiffe://headgate/ü"
	some.Created = at.Add(time.Microsecond) // the smallest step of the clock counts
	some.Expires = at.Add(90 * 24 * time.Hour)
	zoned := some
	zoned.Created, zoned.Expires = some.Created.Add(999).In(time.FixedZone("", 3600)), some.Expires.In(time.FixedZone("", -3600))
	addCredential(t, f.store, zoned)
	addCredential(t, f.store, all)
	addCredential(t, f.store, none)

	// By creation, then by ID. No list of domains is all of them, and an empty one is none.
	want := []access.Credential{none, all, some}
	got := mustCredentials(t, f.another(t))
	wantSame(t, "credentials", got, want)
	for i, c := range got {
		if (c.Domains == nil) != (want[i].Domains == nil) {
			t.Errorf("the domains of %s are %#v, want %#v", c.ID, c.Domains, want[i].Domains)
		}
		if c.Created.Location() != time.UTC || c.Expires.Location() != time.UTC {
			t.Errorf("the times of %s are %v and %v, want UTC", c.ID, c.Created, c.Expires)
		}
		one, err := f.store.Credential(t.Context(), c.Hash)
		if err != nil {
			t.Fatalf("credential by hash: %v", err)
		}
		wantSame(t, "credential by hash", one, want[i])
	}
	if _, err := f.store.Credential(t.Context(), access.HashToken("d")); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a hash of nothing: %v, want not found", err)
	}
	head := mustHead(t, f.store)
	if head.Revision != 0 || head.Records != 3 {
		t.Errorf("head = %+v, want no revision and three records", head)
	}
	wantSame(t, "target", mustAudit(t, f.store, "", 1)[0].Target, "b")
	verify(t, f.store)
}

func credentialsAreAddedOnce(t *testing.T, f *fixture) {
	c := credential("c", nil)
	addCredential(t, f.store, c)
	head := mustHead(t, f.store)
	sameID, sameHash := credential("c", nil), credential("d", nil)
	sameID.Hash, sameHash.Hash = access.HashToken("other"), c.Hash
	for what, twin := range map[string]access.Credential{"ID": sameID, "hash": sameHash} {
		err := f.another(t).AddCredential(t.Context(), twin, note(rollout.ActionAddCredential, twin.ID))
		if !errors.Is(err, rules.ErrConflict) {
			t.Errorf("another credential with the %s: %v, want a conflict", what, err)
		}
	}
	wantSame(t, "credentials", mustCredentials(t, f.store), []access.Credential{c})
	wantSame(t, "head: no record of what did not happen", mustHead(t, f.store), head)
}

func credentialsAreRevoked(t *testing.T, f *fixture) {
	c, stays := credential("c", nil), credential("d", nil)
	addCredential(t, f.store, c)
	addCredential(t, f.store, stays)
	revoke := func(id string, at time.Time) error {
		return f.another(t).RevokeCredential(t.Context(), id, at, note(rollout.ActionRevokeCredential, id))
	}
	head := mustHead(t, f.store)
	if err := revoke("C", at); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("revoke what is not there: %v, want not found", err)
	}
	wantSame(t, "head", mustHead(t, f.store), head)
	for i := range 2 { // the time of the first stays
		if err := revoke("c", at.Add(time.Duration(i+1)*time.Hour+999)); err != nil {
			t.Fatalf("revoke: %v", err)
		}
	}
	c.Revoked = at.Add(time.Hour)
	wantSame(t, "credentials", mustCredentials(t, f.store), []access.Credential{c, stays})
	wantSame(t, "action", mustAudit(t, f.store, "", 1)[0].Action, rollout.ActionRevokeCredential)
	wantSame(t, "revision", mustHead(t, f.store).Revision, int64(0))
	verify(t, f.store)
}
