//go:build root

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

const rolePassword = "correct horse battery staple"

// serveBase starts a real server of PostgreSQL, db.test, whose role app_ro the
// vault has, and a platform that trusts and reaches it.
func serveBase(t *testing.T) (*egresstest.Postgres, *testenv.Env) {
	t.Helper()
	far := egresstest.NewFar(t)
	cert := far.Certificate(t, "db.test", time.Now().Add(time.Hour))
	server := egresstest.NewPostgres(t, &cert, "hostssl all all 127.0.0.1/32 scram-sha-256")
	server.SQL("create role app_ro login password '" + rolePassword + "'; create database orders; create database secret;")
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, far.PEM, 0o644); err != nil {
		t.Fatal(err)
	}
	ns := testenv.Names(t, map[string]string{"db.test.": "127.0.0.1"})
	e := testenv.Start(t, testenv.Config{
		DNS: ns.Addr, Flags: []string{"--roots", roots},
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: db.test, ports: [%d]}\n", server.Port),
	})
	cmd := e.Command("credential", "add", "db", "--kind", "postgres", "--set", "user=app_ro", "--set", "database=orders",
		"--host", "db.test", "--port", strconv.Itoa(int(server.Port)), "--env", "DATABASE_URL")
	cmd.Stdin = strings.NewReader(rolePassword + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
	return server, e
}

func baseTask(t *testing.T, e *testenv.Env, server *egresstest.Postgres, script string) api.TaskRequest {
	t.Helper()
	return api.TaskRequest{
		Repo: bundle(t, e, small(t)), Agent: sh(script),
		Policy: fmt.Sprintf("version: 1\nagent:\n  network:\n    allow:\n      - {host: db.test, ports: [%d], protocol: postgres, credential: db}\n", server.Port),
	}
}

// A program inside logs in as the leased role by what its environment says, with
// libpq's verify-full, and never has the password.
func TestAgentLogsInToPostgres(t *testing.T) {
	server, e := serveBase(t)
	got := run(t, e, baseTask(t, e, server, `
env | grep -c '^PG.*placeholder'; echo "$PGSSLMODE $PGUSER $PGDATABASE"
psql -XAtc "select 'in as ' || current_user || ' ' || (select ssl from pg_stat_ssl where pid = pg_backend_pid())"
psql "$DATABASE_URL" -XAtc "select 'by URI as ' || current_user"
psql -XAtc "copy (select repeat('x', 999) from generate_series(1, 100000)) to stdout" | wc -c
psql -XAtc 'select pg_sleep(600)' > sleeping 2>&1 & p=$!
until [ "$(psql -XAtc "select count(*) from pg_stat_activity where state = 'active' and query = 'select pg_sleep(600)'")" = 1 ]; do :; done
kill -INT $p; wait $p; cat sleeping
psql -XU postgres -c 'select 1'
psql -XAt secret -c 'select 1'
PGPASSWORD=wrongwrong psql -Xc 'select 1'
PGSSLMODE=disable psql -Xc 'select 1'
PGPORT=5432 psql -Xc 'select 1'
PGPORT=5431 psql -Xc 'select 1'
echo over
`))
	must(t, e, got, api.Succeeded, "")
	said := log(t, e, got.ID, "agent")
	for _, want := range []string{
		"1\nverify-full app_ro orders\n", "in as app_ro true\n", "by URI as app_ro\n", "100000000\n", "canceling statement due to user request",
		"the login that is lent is for the user in PGUSER alone (policy.credential)", "not lent for this database; lent are: orders (policy.credential)",
		`password authentication failed for user "app_ro"`, "(policy.protocol)", "(policy.denied)", "refused", "over\n",
	} {
		if !strings.Contains(strings.ReplaceAll(said, "\r", ""), want) {
			t.Errorf("the agent's log has no %q:\n%s", want, said)
		}
	}
	if strings.Contains(said, rolePassword) || strings.Contains(server.Log(), "placeholder") {
		t.Error("the password is inside, or a placeholder outside")
	}
	if len(got.Leases) != 1 || got.Leases[0].Kind != "postgres" || got.Leases[0].Settings["user"] != "app_ro" || got.Leases[0].Ended != "stage" {
		t.Errorf("leases %+v", got.Leases)
	}
	valueNowhere(t, e.Data, rolePassword)
}

// Revoking the credential cuts a session in the middle of its rows.
func TestRevokedLoginIsCut(t *testing.T) {
	server, e := serveBase(t)
	task := submit(t, e, baseTask(t, e, server, `
psql -XAtc "copy (select repeat('x', 1000), generate_series(1, 1000000000)) to stdout" > /dev/null; echo "cut $?"
psql -XAtc 'select 1'; echo "after $?"
`))
	sessions := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(patience); ; {
			have := server.SQL("select count(*) from pg_stat_activity where usename = 'app_ro' and query like 'copy%'")
			if have == want {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s sessions, want %s", have, want)
			}
		}
	}
	sessions("1")
	end, err := e.Client.RevokeCredential(context.Background(), "db")
	if err != nil || end.Leases != 1 || !end.Cut {
		t.Fatalf("revoked: %+v, %v", end, err)
	}
	sessions("0")
	got := e.WaitTask(task.ID, patience)
	must(t, e, got, api.Succeeded, "")
	if said := log(t, e, task.ID, "agent"); strings.Contains(said, "cut 0") || !strings.Contains(said, "cut ") || !strings.Contains(said, "(policy.credential)") || strings.Contains(said, "after 0") {
		t.Errorf("the agent's log:\n%s", said)
	}
	valueNowhere(t, e.Data, rolePassword)
}
