//go:build root

package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// scramOnly is what a well-kept server says of connections by network.
const scramOnly = "hostssl all all 127.0.0.1/32 scram-sha-256"

// base is a sandbox, a real server outside, and a way for real programs into
// the sandbox's network.
type base struct {
	*rig
	server *egresstest.Postgres
	lender *passwords
	port   string // of this machine, that leads into the sandbox's network
	roots  string
}

// newBase makes one; the server's certificate is for the name, "" for none.
func newBase(t *testing.T, certificate string, hba ...string) *base {
	t.Helper()
	far := egresstest.NewFar(t)
	b := &base{lender: &passwords{value: realPassword}}
	if certificate == "" {
		b.server = egresstest.NewPostgres(t, nil, hba...)
	} else {
		cert := far.Certificate(t, certificate, time.Now().Add(time.Hour))
		b.server = egresstest.NewPostgres(t, &cert, hba...)
	}
	b.server.SQL("create role app_ro login password '" + realPassword + "'; create role other login password 'another password'; create database orders; create database stock; create database secret;")
	b.rig = newRig(t, nil, func(o *Options) { o.Roots, o.Lender = far.Roots, b.lender })
	b.resolver.set("db.test", addrs("127.0.0.1"))
	if err := b.gateway.SetGrant(loginGrant(b.server.Port)); err != nil {
		t.Fatal(err)
	}
	b.roots = t.TempDir() + "/bundle.pem"
	if err := os.WriteFile(b.roots, b.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	b.port = b.lead(fmt.Sprintf("db.test:%d", b.server.Port))
	return b
}

// lead opens a port of this machine that leads to an address as the sandbox
// reaches it.
func (b *base) lead(to string) string {
	b.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				inside, err := b.client.DialContext(context.Background(), "tcp", to)
				if err != nil {
					if b.t.Context().Err() == nil {
						b.t.Logf("from inside to %s: %v", to, err)
					}
					return
				}
				defer inside.Close()
				go func() {
					_, _ = io.Copy(inside, conn)
					inside.Close()
				}()
				_, _ = io.Copy(conn, inside)
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// connection is the string with which libpq connects, changed by words of the
// same kind.
func (b *base) connection(change string) string {
	return fmt.Sprintf("host=db.test hostaddr=127.0.0.1 port=%s user=app_ro dbname=orders password=%s sslmode=verify-full sslrootcert=%s connect_timeout=300 %s", b.port, dbPlace, b.roots, change)
}

func (b *base) psql(change string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(b.t.Context(), "psql", append([]string{"-X", "-A", "-t", b.connection(change)}, args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "HOME=" + b.t.TempDir()}
	return cmd
}

// says runs psql and gives what it prints, with its errors.
func (b *base) says(change string, args ...string) (string, error) {
	out, err := b.psql(change, args...).CombinedOutput()
	if strings.Contains(string(out), realPassword) {
		b.t.Errorf("psql was told the real password: %s", out)
	}
	return strings.TrimSpace(string(out)), err
}

func TestPsqlLogsIn(t *testing.T) {
	b := newBase(t, "db.test", scramOnly)
	const who = "select current_user || ' ' || current_database() || ' ' || (select ssl from pg_stat_ssl where pid = pg_backend_pid())"
	for change, want := range map[string]string{
		"":                        "app_ro orders true",
		"dbname=stock":            "app_ro stock true",
		"sslmode=require":         "app_ro orders true",
		"channel_binding=require": "app_ro orders true",
		"channel_binding=disable": "app_ro orders true",
		"sslsni=0":                "app_ro orders true",
		"options='-c statement_timeout=5s' application_name=x": "app_ro orders true",
	} {
		if out, err := b.says(change, "-c", who); err != nil || out != want {
			t.Errorf("%q: %q, %v", change, out, err)
		}
	}
	// One of them names no server in its TLS.
	rec := b.await("the end", func(rec task.EgressRecord) bool {
		return rec.Done && rec.Verdict == "allowed" && rec.BytesOut > 0 && rec.SNI != ""
	})
	if rec.Protocol != "postgres" || rec.Lease != "l-aaaaaaaaaaaaaaaa" || rec.Name != "db.test" || rec.Reason != "" || rec.SNI != "db.test" {
		t.Errorf("record %+v", rec)
	}
	asked, before := b.lender.asked.Load(), b.server.Connections()
	for change, want := range map[string]string{
		"password=wrongwrong":  "password authentication failed for user \"app_ro\"",
		"user=other":           "(policy.credential)",
		"user=postgres":        "(policy.credential)",
		"dbname=secret":        "not lent for this database; lent are: orders,stock (policy.credential)",
		"dbname=postgres":      "(policy.credential)",
		"sslmode=disable":      "connect with TLS: sslmode=verify-full, or at least require (policy.protocol)",
		"replication=database": "replication is not lent",
		"options=endpoint=x":   "options may hold settings only",
		"password=''":          "no password supplied",
	} {
		if out, err := b.says(change, "-c", who); err == nil || !strings.Contains(out, want) {
			t.Errorf("%q: %q, %v", change, out, err)
		}
	}
	if b.lender.asked.Load() != asked || b.server.Connections() != before {
		t.Error("a refused program reached the server, or had the password lent")
	}
	if strings.Contains(b.server.Log(), dbPlace) {
		t.Error("the server saw the placeholder")
	}
}
