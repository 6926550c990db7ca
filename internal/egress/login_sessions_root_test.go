//go:build root

package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cofferdam/cofferdam/internal/task"
)

// until waits for what the server's own statement says.
func (b *base) until(statement, want string) {
	b.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		got := b.server.SQL(statement)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("%s: %q, want %q", statement, got, want)
		}
	}
}

const (
	running  = "select count(*) from pg_stat_activity where usename = 'app_ro' and state = 'active'"
	sessions = "select count(*) from pg_stat_activity where usename = 'app_ro'"
)

// Control-C in psql sends a request to cancel, with the key that it was given, on
// another connection and in the clear.
func TestPsqlCancels(t *testing.T) {
	b := newBase(t, "db.test", scramOnly)
	cmd := b.psql("", "-c", "select pg_sleep(600)")
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.until(running, "1")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), "canceling statement due to user request") {
		t.Errorf("%v: %s", err, out.String())
	}
	// A key that nobody has is passed to nobody, and who sends it is told nothing.
	before := b.server.Connections()
	conn, err := b.client.DialContext(b.ctx(), "tcp", fmt.Sprintf("db.test:%d", b.server.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("\x00\x00\x00\x10\x04\xd2\x16\x2e\x00\x00\x00\x01\x00\x00\x00\x02")); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); len(answer) > 0 || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("%q, %v", answer, err)
	}
	b.await("a key of nobody's", denied(task.PolicyCredential))
	if b.server.Connections() != before {
		t.Error("the server was asked")
	}
}

// A hundred megabytes each way take no more memory than one.
func TestCopyTakesFlatMemory(t *testing.T) {
	b := newBase(t, "db.test", scramOnly)
	b.server.SQL("\\c orders\ncreate table lines (line text); grant all on lines to app_ro;")
	const rows, width = 100_000, 999
	var most atomic.Uint64
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, err := make(chan struct{}), error(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most.Store(max(most.Load(), m.HeapInuse))
			}
		}
	})
	in := b.psql("", "-c", "copy lines from stdin")
	pipe, err := in.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		defer pipe.Close()
		w := bufio.NewWriter(pipe)
		line := strings.Repeat("x", width) + "\n"
		for range rows {
			if _, err := w.WriteString(line); err != nil {
				return
			}
		}
		w.Flush()
	})
	if out, err := in.CombinedOutput(); err != nil || !strings.Contains(string(out), "COPY 100000") {
		t.Errorf("in: %v, %s", err, out)
	}
	out := b.psql("", "-c", "copy lines to stdout")
	out.Stderr = t.Output()
	from, err := out.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Start(); err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, from)
	if err := errors.Join(err, out.Wait()); err != nil || n != rows*(width+1) {
		t.Errorf("out: %d bytes, %v", n, err)
	}
	close(stop)
	wg.Wait()
	if grown := int64(most.Load()) - int64(before.HeapInuse); grown > 64<<20 {
		t.Errorf("%d MiB of memory for 100 MB", grown>>20)
	}
	b.await("counted in", func(r task.EgressRecord) bool { return r.Done && r.BytesOut > rows*width })
	b.await("counted out", func(r task.EgressRecord) bool { return r.Done && r.BytesIn > rows*width })
}

// stream starts a query that gives rows without end, and returns once some came.
func (b *base) stream() (*exec.Cmd, io.Reader) {
	b.t.Helper()
	cmd := b.psql("", "-c", "copy (select repeat('x', 1000), generate_series(1, 1000000000)) to stdout")
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd.Stderr = b.t.Output()
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, out, 1<<20); err != nil {
		b.t.Fatal(err)
	}
	return cmd, out
}

// over waits for the end of a stream that must not end well.
func (b *base) over(cmd *exec.Cmd, out io.Reader) {
	b.t.Helper()
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err == nil {
		b.t.Errorf("the stream ended as if it were whole: %v", err)
	}
	b.until(sessions, "0")
}

// A lease that is taken out of the grant, or refused when it is asked for again,
// cuts the session that was made under it, in the middle of its rows.
func TestRevokedSessionIsCut(t *testing.T) {
	b := newBase(t, "db.test", scramOnly)
	cmd, out := b.stream()
	without := loginGrant(b.server.Port)
	without.Leases = nil
	if err := b.gateway.SetGrant(without); err != nil {
		t.Fatal(err)
	}
	b.over(cmd, out)
	before := b.server.Connections()
	if out, err := b.says("", "-c", "select 1"); err == nil || !strings.Contains(out, "no login is lent for this host and port (policy.credential)") {
		t.Errorf("%v: %s", err, out)
	}
	if b.server.Connections() != before {
		t.Error("the server was asked without a lease")
	}

	// What says nothing for long is ended too.
	if err := b.gateway.SetGrant(loginGrant(b.server.Port)); err != nil {
		t.Fatal(err)
	}
	silent := b.psql("", "-c", "select pg_sleep(6000)")
	if err := silent.Start(); err != nil {
		t.Fatal(err)
	}
	b.until(running, "1")
	if err := b.gateway.SetGrant(without); err != nil {
		t.Fatal(err)
	}
	b.over(silent, strings.NewReader(""))

	b.gateway.relend = 10 * time.Millisecond
	if err := b.gateway.SetGrant(loginGrant(b.server.Port)); err != nil {
		t.Fatal(err)
	}
	cmd, out = b.stream()
	b.lender.say("", task.Fail(task.InfraControlAway, "away", nil))
	for asked := b.lender.asked.Load(); b.lender.asked.Load() < asked+3; {
		if _, err := io.CopyN(io.Discard, out, 1<<20); err != nil {
			t.Fatalf("cut while the control plane was away: %v", err)
		}
	}
	b.lender.say("", task.Fail(task.PolicyCredential, "revoked", nil))
	b.over(cmd, out)
	b.await("the refusal", func(r task.EgressRecord) bool {
		return r.Done && r.Verdict == "denied" && r.Reason == task.PolicyCredential && r.BytesIn > 1<<20
	})
}

// logAs makes the lease one for another user.
func (b *base) logAs(user string) {
	b.t.Helper()
	g := loginGrant(b.server.Port)
	g.Leases[0].Settings = map[string]string{"user": user, "database": "orders"}
	if err := b.gateway.SetGrant(g); err != nil {
		b.t.Fatal(err)
	}
}

// The password is proved by SCRAM over verified TLS, or not at all.
func TestWeakServersAreRefused(t *testing.T) {
	t.Run("login", func(t *testing.T) {
		b := newBase(t, "db.test",
			"hostssl all old 127.0.0.1/32 md5", "hostssl all plain 127.0.0.1/32 password", "hostssl all open 127.0.0.1/32 trust", scramOnly)
		b.server.SQL("create role plain login password '" + realPassword + "'; create role open login; set password_encryption = md5; create role old login password '" + realPassword + "';")
		for user, want := range map[string]string{
			"old":   "the server asks for an MD5 password, and the password is proved by SCRAM-SHA-256 alone",
			"plain": "the server asks for a cleartext password",
			"open":  "the server let us in without a proof of the password",
		} {
			b.logAs(user)
			asked := b.lender.asked.Load()
			if out, err := b.says("user="+user, "-c", "select 1"); err == nil || !strings.Contains(out, want) || !strings.Contains(out, "(policy.credential)") {
				t.Errorf("%s: %v: %s", user, err, out)
			}
			if b.lender.asked.Load() != asked {
				t.Errorf("%s: the password was lent", user)
			}
		}
		b.logAs("app_ro")
		b.lender.say("another password", nil)
		if out, err := b.says("", "-c", "select 1"); err == nil || !strings.Contains(out, `the server says: password authentication failed for user "app_ro"`) {
			t.Errorf("another password: %v: %s", err, out)
		}
		b.lender.say("", task.Fail(task.PolicyCredential, "revoked", nil))
		if out, err := b.says("", "-c", "select 1"); err == nil || !strings.Contains(out, "(policy.credential)") {
			t.Errorf("refused: %v: %s", err, out)
		}
		b.lender.say("", errors.New("away"))
		if out, err := b.says("", "-c", "select 1"); err == nil || !strings.Contains(out, "Try again later. (infra.control_plane_away)") {
			t.Errorf("away: %v: %s", err, out)
		}
		b.server.SQL("alter role app_ro nologin")
		b.lender.say(realPassword, nil)
		if out, err := b.says("", "-c", "select 1"); err == nil || !strings.Contains(out, `the server says: role "app_ro" is not permitted to log in`) {
			t.Errorf("not permitted: %v: %s", err, out)
		}
	})
	for certificate, want := range map[string]string{
		"else.test": "its certificate is not valid for this name. (egress.untrusted)",
		"":          "the server does not speak TLS, and no password is proved to it without (egress.untrusted)",
	} {
		t.Run("certificate "+certificate, func(t *testing.T) {
			b := newBase(t, certificate, "host all all 127.0.0.1/32 scram-sha-256")
			if out, err := b.says("", "-c", "select 1"); err == nil || !strings.Contains(out, want) {
				t.Errorf("%v: %s", err, out)
			}
			if b.lender.asked.Load() != 0 {
				t.Error("the password was lent")
			}
			if b.server.Connections() != 1 {
				t.Errorf("%d connections: none in the clear may follow", b.server.Connections())
			}
			b.await("untrusted", func(r task.EgressRecord) bool { return r.Done && r.Reason == task.EgressUntrusted })
		})
	}
}

// pgx is a client with nothing of libpq in it.
func TestPgxLogsIn(t *testing.T) {
	b := newBase(t, "db.test", scramOnly)
	b.server.SQL("\\c orders\ncreate table numbers (n int); grant all on numbers to app_ro;")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(b.pem)
	connect := func(ctx context.Context, change func(*pgx.ConnConfig)) (*pgx.Conn, error) {
		config, err := pgx.ParseConfig(fmt.Sprintf("postgresql://app_ro:%s@db.test:%d/orders?sslmode=require", dbPlace, b.server.Port))
		if err != nil {
			t.Fatal(err)
		}
		config.TLSConfig = &tls.Config{RootCAs: roots, ServerName: "db.test"}
		config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
		config.DialFunc = b.lasting
		change(config)
		return pgx.ConnectConfig(ctx, config)
	}
	c, err := connect(b.ctx(), func(*pgx.ConnConfig) {})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(b.ctx())
	if n, err := c.CopyFrom(b.ctx(), pgx.Identifier{"numbers"}, []string{"n"}, pgx.CopyFromSlice(1000, func(i int) ([]any, error) { return []any{i}, nil })); n != 1000 || err != nil {
		t.Errorf("copy: %d, %v", n, err)
	}
	var sum int
	if err := c.QueryRow(b.ctx(), "select sum(n) from numbers where n < $1", 1000).Scan(&sum); err != nil || sum != 499500 {
		t.Errorf("%d, %v", sum, err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(b.ctx(), "select pg_sleep(600)")
		done <- err
	}()
	b.until(running, "1")
	if err := c.PgConn().CancelRequest(b.ctx()); err != nil {
		t.Error(err)
	}
	var failed *pgconn.PgError
	if err := <-done; !errors.As(err, &failed) || failed.Code != "57014" {
		t.Errorf("canceled: %v", err)
	}
	for state, change := range map[string]func(*pgx.ConnConfig){
		"28P01": func(c *pgx.ConnConfig) { c.Password = "wrong password" },
		"28000": func(c *pgx.ConnConfig) { c.Database = "secret" },
	} {
		if _, err := connect(b.ctx(), change); !errors.As(err, &failed) || failed.Code != state {
			t.Errorf("%s: %v", state, err)
		}
	}
	b.lender.say("", task.Fail(task.InfraControlAway, "away", nil))
	if _, err := connect(b.ctx(), func(*pgx.ConnConfig) {}); !errors.As(err, &failed) || failed.Code != "57P03" {
		t.Errorf("away: %v", err)
	}
}

// The libpq in psycopg's wheel is newer than the system's: it negotiates TLS
// directly, cancels over TLS, and asks for later versions of the protocol.
func TestNewLibpqLogsIn(t *testing.T) {
	b := newBase(t, "db.test", scramOnly)
	wheels := t.TempDir()
	install := exec.CommandContext(t.Context(), "python3", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--target", wheels, "psycopg[binary]==3.3.2")
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	script := `
import psycopg, sys, threading
base = sys.argv[1]
print("libpq", psycopg.pq.version() >= 180000)
for more in ["", "sslnegotiation=direct", "channel_binding=require sslnegotiation=direct", "max_protocol_version=latest", "require_auth=scram-sha-256"]:
    with psycopg.connect(base + " " + more) as c:
        print(more, c.execute("select current_user").fetchone()[0], c.pgconn.ssl_in_use)
with psycopg.connect(base + " sslnegotiation=direct") as c:
    timer = threading.Timer(1, lambda: c.cancel_safe())
    timer.start()
    try:
        c.execute("select pg_sleep(600)")
    except psycopg.errors.QueryCanceled as e:
        print("canceled")
try:
    psycopg.connect(base + " sslnegotiation=direct dbname=secret")
except psycopg.OperationalError as e:
    print("policy.credential" in str(e))
`
	run := exec.CommandContext(t.Context(), "python3", "-c", script, b.connection(""))
	run.Env = append(os.Environ(), "PYTHONPATH="+wheels)
	out, err := run.CombinedOutput()
	want := "libpq True\n app_ro True\nsslnegotiation=direct app_ro True\nchannel_binding=require sslnegotiation=direct app_ro True\nmax_protocol_version=latest app_ro True\nrequire_auth=scram-sha-256 app_ro True\ncanceled\nTrue\n"
	if err != nil || string(out) != want {
		t.Errorf("%v:\n%s\nwant\n%s", err, out, want)
	}
}
