package storagetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/rules/rollout/access"
	"github.com/headgate/headgate/storage"
)

// session is one of a credential, for an hour.
func session(credential, name string, created time.Time) access.Session {
	return access.Session{Hash: access.HashSession(name), Credential: credential, Created: created, Expires: created.Add(time.Hour)}
}

func addSession(t *testing.T, s storage.Store, one access.Session) {
	t.Helper()
	if err := s.AddSession(t.Context(), one); err != nil {
		t.Fatalf("add a session of %s: %v", one.Credential, err)
	}
}

// wantSessions checks which of the sessions are there.
func wantSessions(t *testing.T, s storage.Store, when string, all []access.Session, there func(i int) bool) {
	t.Helper()
	for i, one := range all {
		_, _, err := s.Session(t.Context(), one.Hash)
		if err != nil && !errors.Is(err, rules.ErrNotFound) {
			t.Fatalf("look up a session: %v", err)
		}
		if (err == nil) != there(i) {
			t.Fatalf("%s: session %d of %s is there: %v, want %v", when, i, one.Credential, err == nil, there(i))
		}
	}
}

func sessionsAreKeptWithTheirCredentials(t *testing.T, f *fixture) {
	c, other := credential("c", []string{"web", "api"}), credential("d", nil)
	c.Expires = at.Add(2 * time.Hour)
	addCredential(t, f.store, c)
	addCredential(t, f.store, other)
	want := session("c", "s", at.Add(time.Microsecond))
	zoned := want
	zoned.Created, zoned.Expires = want.Created.Add(999).In(time.FixedZone("", 3600)), want.Expires.In(time.FixedZone("", -3600))
	addSession(t, f.store, zoned)
	addSession(t, f.store, session("d", "t", at))
	look := func() {
		t.Helper()
		got, of, err := f.another(t).Session(t.Context(), want.Hash)
		if err != nil {
			t.Fatalf("session: %v", err)
		}
		wantSame(t, "session", got, want)
		wantSame(t, "its credential", of, c)
		if got.Created.Location() != time.UTC || got.Expires.Location() != time.UTC {
			t.Errorf("the times are %v and %v, want UTC", got.Created, got.Expires)
		}
	}
	look()
	c.Revoked = at.Add(time.Minute)
	if err := f.store.RevokeCredential(t.Context(), "c", c.Revoked, note(rollout.ActionRevokeCredential, "c")); err != nil {
		t.Fatalf("revoke: %v", err)
	}
	look()
	if _, _, err := f.store.Session(t.Context(), access.HashSession("u")); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a hash of nothing: %v, want not found", err)
	}
	if err := f.store.AddSession(t.Context(), session("e", "v", at)); !errors.Is(err, rules.ErrNotFound) {
		t.Errorf("a session of no credential: %v, want not found", err)
	}
	if err := f.store.AddSession(t.Context(), session("d", "s", at)); !errors.Is(err, rules.ErrConflict) {
		t.Errorf("a second session with the hash: %v, want a conflict", err)
	}
	look()
}

func sessionsEnd(t *testing.T, f *fixture) {
	addCredential(t, f.store, credential("c", nil))
	addCredential(t, f.store, credential("d", nil))
	all := []access.Session{session("c", "0", at), session("c", "1", at), session("c", "2", at), session("d", "3", at)}
	for _, one := range all {
		addSession(t, f.store, one)
	}
	for range 2 { // the second time there is none
		if err := f.another(t).EndSession(t.Context(), all[1].Hash); err != nil {
			t.Fatalf("end a session: %v", err)
		}
		wantSessions(t, f.store, "after one ended", all, func(i int) bool { return i != 1 })
	}
	for range 2 {
		if err := f.another(t).EndSessions(t.Context(), "c"); err != nil {
			t.Fatalf("end the sessions of a credential: %v", err)
		}
		wantSessions(t, f.store, "after those of c ended", all, func(i int) bool { return i == 3 })
	}
	if err := f.store.Prune(t.Context(), all[3].Expires); err != nil {
		t.Fatalf("prune: %v", err)
	}
	wantSessions(t, f.store, "pruned at the end", all, func(i int) bool { return i == 3 })
	if err := f.store.Prune(t.Context(), all[3].Expires.Add(time.Microsecond)); err != nil {
		t.Fatalf("prune: %v", err)
	}
	wantSessions(t, f.store, "pruned after the end", all, func(int) bool { return false })
}

// sessionsAreBounded opens more than are kept, a few of them at the same time.
func sessionsAreBounded(t *testing.T, f *fixture) {
	addCredential(t, f.store, credential("c", nil))
	addCredential(t, f.store, credential("d", nil))
	other := session("d", "other", at.Add(-time.Hour))
	addSession(t, f.store, other)
	const extra = 8
	all := make([]access.Session, access.MaxSessions+extra)
	for i := range all {
		all[i] = session("c", fmt.Sprint(i), at.Add(time.Duration(i)*time.Second))
	}
	for _, one := range all[:access.MaxSessions] {
		addSession(t, f.store, one)
	}
	wantSessions(t, f.store, "as many as are kept", all, func(i int) bool { return i < access.MaxSessions })
	another := f.another(t)
	var callers sync.WaitGroup
	for i, one := range all[access.MaxSessions:] {
		callers.Go(func() {
			if err := []storage.Store{f.store, another}[i%2].AddSession(t.Context(), one); err != nil {
				t.Errorf("add a session: %v", err)
			}
		})
	}
	callers.Wait()
	wantSessions(t, f.store, "more than are kept", all, func(i int) bool { return i >= extra })
	wantSessions(t, f.store, "of another credential", []access.Session{other}, func(int) bool { return true })
}
