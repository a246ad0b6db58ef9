package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3/lock"
	"golang.org/x/sync/errgroup"

	"github.com/headgate/headgate/rules"
	"github.com/headgate/headgate/rules/rollout"
	"github.com/headgate/headgate/storage"
	"github.com/headgate/headgate/storage/storagetest"
	"github.com/headgate/headgate/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func open(t *testing.T, database string, options Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), database, options)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// connect returns a connection beside the stores'.
func connect(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func exec(t *testing.T, conn *pgx.Conn, statement string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// The program is not the owner of its tables here, so that each of its statements is one it may make.
func TestStoreConforms(t *testing.T) {
	t.Parallel()
	roles := newRoles(t, 2)
	owner, program := roles[0], roles[1]
	storagetest.Run(t, func(t *testing.T) storagetest.Database {
		database := harness.Postgres(t)
		owned(t, database, owner)
		if err := Migrate(t.Context(), as(t, database, owner), program.name); err != nil {
			t.Fatalf("migrate: %v", err)
		}
		return storagetest.Database{
			Open:   func(t *testing.T) storage.Store { return open(t, as(t, database, program), Options{}) },
			Shared: true,
			BreakWatches: func(t *testing.T) {
				const listeners = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = '` + listenName + `'`
				terminate(t, database, listeners)
			},
			KillLeader: func(t *testing.T) {
				terminate(t, database, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
			},
		}
	})
}

// terminate ends the sessions that a query finds, of which there must be some.
func terminate(t *testing.T, database, query string) {
	t.Helper()
	var n int
	if err := connect(t, database).QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM (`+query+`) s`).Scan(&n); err != nil || n == 0 {
		t.Fatalf("terminated %d sessions, %v", n, err)
	}
}

func TestMigrationsGoUpAndDown(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	s, conn := open(t, database, Options{}), connect(t, database)
	tables := func() (n int) {
		t.Helper()
		const count = `SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'goose_db_version'`
		if err := conn.QueryRow(t.Context(), count).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	all := tables()
	storagetest.Fill(t, s)
	p, err := migrator(s.pool)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	if _, err := p.DownTo(t.Context(), 0); err != nil {
		t.Fatalf("down: %v", err)
	}
	if n := tables(); n != 0 {
		t.Fatalf("%d tables are left", n)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatalf("up again: %v", err)
	}
	if n := tables(); n != all {
		t.Fatalf("%d tables, want %d", n, all)
	}
	storagetest.Fill(t, s)
}

func TestProgramsThatStartTogetherMigrateOnce(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	lineages := make([]string, 3)
	var g errgroup.Group
	for i := range lineages {
		g.Go(func() error {
			s, err := Open(t.Context(), database, Options{})
			if err != nil {
				return err
			}
			c, err := s.Changes(t.Context(), 0)
			lineages[i] = c.Lineage
			return errors.Join(err, s.Close())
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("open: %v", err)
	}
	if lineages[0] == "" || lineages[1] != lineages[0] || lineages[2] != lineages[0] {
		t.Fatalf("lineages %q, want one", lineages)
	}
}

func TestMigrationWaitsForTheOneThatRuns(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	conn := connect(t, database)
	exec(t, conn, fmt.Sprintf(`SELECT pg_advisory_lock(%d)`, lock.DefaultLockID)) // as a program that migrates
	var g errgroup.Group
	g.Go(func() error {
		s, err := Open(t.Context(), database, Options{})
		if err != nil {
			return err
		}
		return s.Close()
	})
	harness.Eventually(t, connectTimeout, func() error {
		const waiting = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_try_advisory_lock%' AND pid <> pg_backend_pid()`
		var n int
		err := conn.QueryRow(t.Context(), waiting).Scan(&n)
		if err == nil && n == 0 {
			err = errors.New("no program waits")
		}
		return err
	})
	var early bool
	if err := conn.QueryRow(t.Context(), `SELECT to_regclass('head') IS NOT NULL`).Scan(&early); err != nil || early {
		t.Errorf("migrated beside another that had the lock: %v, %v", early, err)
	}
	exec(t, conn, fmt.Sprintf(`SELECT pg_advisory_unlock(%d)`, lock.DefaultLockID))
	if err := g.Wait(); err != nil {
		t.Fatalf("open: %v", err)
	}
	open(t, database, Options{})
}

func TestOpenRefusesNewerSchema(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	open(t, database, Options{})
	exec(t, connect(t, database), `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)`)
	_, err := Open(t.Context(), database, Options{})
	if err == nil || !strings.Contains(err.Error(), "schema 9999") {
		t.Fatalf("open: %v, want that schema 9999 is refused", err)
	}
}

func TestUnreachableDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if _, err := Open(t.Context(), "postgres://x@"+closed.Addr().String()+"/x?sslmode=disable", Options{}); !errors.Is(err, rules.ErrUnavailable) {
		t.Errorf("nobody listens: %v, want unavailable", err)
	}
	if _, err := Open(t.Context(), elsewhere(t, database, "no_such_database"), Options{}); !errors.Is(err, rules.ErrUnavailable) {
		t.Errorf("no such database: %v, want unavailable", err)
	}
	if _, err := Open(t.Context(), "postgres://host:port/", Options{}); err == nil || errors.Is(err, rules.ErrUnavailable) {
		t.Errorf("not a URL: %v, want an error that trying again does not mend", err)
	}

	s := open(t, database, Options{})
	storagetest.Fill(t, s)
	admin := connect(t, elsewhere(t, database, "postgres"))
	name := s.pool.Config().ConnConfig.Database
	outage := func(allowed string) {
		exec(t, admin, `ALTER DATABASE `+name+` ALLOW_CONNECTIONS `+allowed)
		exec(t, admin, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '`+name+`'`)
	}
	outage("false")
	for range 5 { // first on the pool's broken connections, then on new ones
		if _, err := s.Changes(t.Context(), 0); !errors.Is(err, rules.ErrUnavailable) {
			t.Errorf("changes without a server: %v, want unavailable", err)
		}
		if err := s.SaveNodes(t.Context(), []rollout.Node{{ID: "n1"}}); !errors.Is(err, rules.ErrUnavailable) {
			t.Errorf("save nodes without a server: %v, want unavailable", err)
		}
		_, err := s.Commit(t.Context(), "api", func(rollout.Tx) (*rollout.Change, error) { return nil, nil })
		if !errors.Is(err, rules.ErrUnavailable) {
			t.Errorf("commit without a server: %v, want unavailable", err)
		}
	}
	exec(t, admin, `ALTER DATABASE `+name+` ALLOW_CONNECTIONS true`)
	if c, err := s.Changes(t.Context(), 0); err != nil || c.Head != 3 {
		t.Fatalf("after the outage: head %d, %v, want 3", c.Head, err)
	}
}

// elsewhere names another database of the same server.
func elsewhere(t *testing.T, database, name string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// A program that stalls with the head locked would hold up all others.
func TestServerEndsAStalledChange(t *testing.T) {
	t.Parallel()
	s := open(t, harness.Postgres(t), Options{})
	_, err := s.Commit(t.Context(), "api", func(tx rollout.Tx) (*rollout.Change, error) {
		own, ok := tx.(*ledgerTx)
		if !ok {
			return nil, errors.New("not a transaction of this package")
		}
		inside := own.tx
		var limit string
		if err := inside.QueryRow(t.Context(), `SHOW idle_in_transaction_session_timeout`).Scan(&limit); err != nil || limit != "30s" {
			t.Errorf("a change may stall for %q, %v, want 30s", limit, err)
		}
		// The same end, sooner.
		if _, err := inside.Exec(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 1`); err != nil {
			t.Errorf("set the limit: %v", err)
		}
		harness.Eventually(t, connectTimeout, func() error {
			var left int
			err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'`).Scan(&left)
			if err == nil && left > 0 {
				err = errors.New("the stalled session is still there")
			}
			return err
		})
		return &rollout.Change{Record: rollout.Record{Domain: "api"}}, nil
	})
	if !errors.Is(err, rules.ErrUnavailable) {
		t.Errorf("commit after a stall: %v, want unavailable", err)
	}
	storagetest.Fill(t, s)
}

// A trigger that fires at the end of the transaction makes the COMMIT itself fail, in the two ways there are.
func TestFailedCommitSaysWhetherTheOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		unknown    bool
	}{
		{"the server refuses", `RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'`, false},
		{"the connection breaks", `PERFORM pg_terminate_backend(pg_backend_pid())`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			database := harness.Postgres(t)
			s, conn := open(t, database, Options{}), connect(t, database)
			exec(t, conn, `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+c.body+`; RETURN NULL; END $$`)
			exec(t, conn, `CREATE CONSTRAINT TRIGGER fail AFTER INSERT ON audit DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fail()`)
			revision, err := s.Commit(t.Context(), "api", func(rollout.Tx) (*rollout.Change, error) {
				return &rollout.Change{Record: rollout.Record{Domain: "api"}}, nil
			})
			if err == nil || revision != 0 {
				t.Fatalf("commit = %d, %v, want an error", revision, err)
			}
			if unknown := strings.Contains(err.Error(), "outcome is unknown"); unknown != c.unknown || errors.Is(err, rules.ErrUnavailable) != c.unknown {
				t.Errorf("commit: %v; says unknown: %v, want %v", err, unknown, c.unknown)
			}
			exec(t, conn, `DROP TRIGGER fail ON audit`)
			// Here it is known to the test: both rolled back. No number is burnt, and the lock is free.
			storagetest.Fill(t, s)
			if changes, err := s.Changes(t.Context(), 0); err != nil || changes.Head != 3 {
				t.Fatalf("head %d, %v, want 3", changes.Head, err)
			}
		})
	}
}

func TestConnectionThatBreaksBeforeCommitStoresNothing(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	s, conn := open(t, database, Options{}), connect(t, database)
	_, err := s.Commit(t.Context(), "api", func(tx rollout.Tx) (*rollout.Change, error) {
		exec(t, conn, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		return &rollout.Change{Record: rollout.Record{Domain: "api"}}, nil
	})
	if !errors.Is(err, rules.ErrUnavailable) || strings.Contains(err.Error(), "unknown") {
		t.Fatalf("commit: %v, want unavailable with a known outcome", err)
	}
	if c, err := s.Changes(t.Context(), 0); err != nil || c.Head != 0 {
		t.Fatalf("head %d, %v, want 0", c.Head, err)
	}
}

func TestNoListenHoldsNoConnectionAndSignalsNothing(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	deaf, other := open(t, database, Options{NoListen: true}), open(t, database, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	silent, signals := deaf.Watch(ctx), other.Watch(ctx)
	<-signals // the connection is made
	storagetest.Fill(t, other)
	<-signals // and heard of the change
	const listeners = `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`
	var n int
	if err := connect(t, database).QueryRow(t.Context(), listeners, listenName).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d connections listen, %v, want the other store's alone", n, err)
	}
	select {
	case <-silent:
		t.Error("a signal came")
	default:
	}
	if c, err := deaf.Changes(t.Context(), 0); err != nil || c.Head != 3 {
		t.Errorf("a poll finds head %d, %v, want 3", c.Head, err)
	}
	cancel()
	if _, ok := <-silent; ok {
		t.Error("a signal came")
	}
}

// A connection that was silent is asked for a sign of life, and goes on listening.
func TestIdleListenerIsCheckedAndKept(t *testing.T) {
	t.Parallel()
	database := harness.Postgres(t)
	s, conn := open(t, database, Options{}), connect(t, database)
	s.checkEvery = 1 // ns: the check runs all the time
	signals := s.Watch(t.Context())
	<-signals
	listener := func() (pid int, checked bool) {
		t.Helper()
		const find = `SELECT pid, query <> 'LISTEN headgate' FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`
		if err := conn.QueryRow(t.Context(), find, listenName).Scan(&pid, &checked); err != nil {
			t.Fatal(err)
		}
		return pid, checked
	}
	first, _ := listener()
	harness.Eventually(t, connectTimeout, func() error {
		if _, checked := listener(); !checked {
			return errors.New("the idle connection was not checked")
		}
		return nil
	})
	exec(t, conn, `NOTIFY headgate`)
	<-signals
	if pid, _ := listener(); pid != first {
		t.Fatalf("the listener's backend went from %d to %d: the check broke the connection", first, pid)
	}
}

func TestCodesHaveKinds(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]error{
		"08006": rules.ErrUnavailable, "53300": rules.ErrUnavailable, "57P01": rules.ErrUnavailable, "58030": rules.ErrUnavailable,
		"25006": rules.ErrUnavailable, "25P03": rules.ErrUnavailable, "40P01": rules.ErrUnavailable, "55P03": rules.ErrUnavailable,
		"22021": rules.ErrInvalid, "23505": rules.ErrConflict, "23503": nil, "42P01": nil, "42501": nil, "XX000": nil, "": nil,
	} {
		if got := kindOfCode(code); !errors.Is(got, want) {
			t.Errorf("code %q is %v, want %v", code, got, want)
		}
	}
}
