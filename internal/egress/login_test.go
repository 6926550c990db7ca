package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/egress/postgres"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The real password of the role, and what the sandbox has in its place.
const (
	realPassword = "correct horse battery staple"
	dbPlace      = "placeholderabcdefghijklmnopqrstuv"
)

// passwords is a lender that can be told to refuse.
type passwords struct {
	mu    sync.Mutex
	value string
	err   error
	asked atomic.Int64
}

func (p *passwords) Value(context.Context, string, task.Lease) (task.Secret, error) {
	p.asked.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	return task.NewSecret(p.value), p.err
}

func (p *passwords) say(value string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value, p.err = value, err
}

func loginLease(port uint16) task.Lease {
	return task.Lease{
		ID: "l-aaaaaaaaaaaaaaaa", Credential: "db", Kind: task.KindPostgres, Placeholder: dbPlace,
		Settings: map[string]string{"user": "app_ro", "database": "orders,stock"}, Hosts: []string{"db.test"}, Ports: []uint16{port},
	}
}

func loginGrant(port uint16) task.Grant {
	g := grantOf(task.Rule{ID: "agent.network.allow[0]", Host: "db.test", Ports: []uint16{port}, Protocol: task.ProtocolPostgres, Credential: "db", Private: true})
	g.Leases = []task.Lease{loginLease(port)}
	return g
}

// farBase is a server outside that speaks as PostgreSQL does as far as a login
// goes, and answers every query with one row.
type farBase struct {
	*upstream
	cert     tls.Certificate
	roots    *x509.CertPool
	verifier *postgres.Verifier
	logins   atomic.Int64
	cancels  chan postgres.Key
	users    chan postgres.Startup
}

func newFarBase(t *testing.T, name string) *farBase {
	t.Helper()
	far := egresstest.NewFar(t)
	v, err := postgres.NewVerifier(realPassword)
	if err != nil {
		t.Fatal(err)
	}
	f := &farBase{
		upstream: listen(t), cert: far.Certificate(t, name, time.Now().Add(time.Hour)), roots: far.Roots, verifier: v,
		cancels: make(chan postgres.Key, 10), users: make(chan postgres.Startup, 100),
	}
	go func() {
		for {
			conn, err := f.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				f.serve(t.Context(), conn)
			}()
		}
	}()
	return f
}

func (f *farBase) serve(ctx context.Context, conn net.Conn) {
	g, err := postgres.Meet(ctx, conn, func() (*tls.Certificate, error) { return &f.cert, nil })
	switch {
	case err != nil:
		return
	case g.Cancel != nil:
		f.cancels <- *g.Cancel
		return
	}
	f.users <- *g.Startup
	if err := g.Authenticate(f.verifier); err != nil {
		var r *postgres.Refusal
		if errors.As(err, &r) {
			_ = (&postgres.Refusal{State: "28P01", Text: "password authentication failed"}).Refuse(g.Conn)
		}
		return
	}
	f.logins.Add(1)
	if err := g.Admit(postgres.Greeting{}, postgres.Key{}); err != nil {
		return
	}
	b := pgproto3.NewBackend(g.Conn, g.Conn)
	b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "15.0"})
	b.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	b.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 11, SecretKey: []byte{0, 0, 0, 22}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		m, err := b.Receive()
		if err != nil {
			return
		}
		if q, ok := m.(*pgproto3.Query); ok {
			b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("q"), DataTypeOID: 25, DataTypeSize: -1, TypeModifier: -1}}})
			b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(q.String)}})
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

// pgRig is a sandbox whose grant has a login at a farBase.
type pgRig struct {
	*rig
	far    *farBase
	lender *passwords
}

func newPgRig(t *testing.T, certificate string, options ...option) *pgRig {
	t.Helper()
	d := &pgRig{far: newFarBase(t, certificate), lender: &passwords{value: realPassword}}
	d.rig = newRig(t, nil, append(options, func(o *Options) { o.Roots, o.Lender = d.far.roots, d.lender })...)
	d.resolver.set("db.test", addrs("127.0.0.1"))
	d.grant(func(*task.Grant) {})
	return d
}

func (d *pgRig) grant(change func(*task.Grant)) {
	d.t.Helper()
	g := loginGrant(d.far.port)
	change(&g)
	if err := d.gateway.SetGrant(g); err != nil {
		d.t.Fatal(err)
	}
}

// connect has pgx connect from inside.
func (d *pgRig) connect(change func(*pgx.ConnConfig)) (*pgx.Conn, error) {
	d.t.Helper()
	config, err := pgx.ParseConfig(fmt.Sprintf("postgresql://app_ro:%s@db.test:%d/orders?sslmode=require&default_query_exec_mode=simple_protocol", dbPlace, d.far.port))
	if err != nil {
		d.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.pem)
	config.TLSConfig = &tls.Config{RootCAs: roots, ServerName: "db.test"}
	config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	config.DialFunc = d.lasting
	config.RuntimeParams["standard_conforming_strings"] = "on"
	if change != nil {
		change(config)
	}
	c, err := pgx.ConnectConfig(d.ctx(), config)
	if err == nil {
		d.t.Cleanup(func() { c.Close(context.Background()) })
	} else if strings.Contains(err.Error(), realPassword) {
		d.t.Errorf("pgx was told the password: %v", err)
	}
	return c, err
}

// lasting dials from inside; the connection knows where it went also after it
// ended, as those of package net do.
func (r *rig) lasting(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := r.client.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &lastingConn{conn, conn.RemoteAddr()}, nil
}

type lastingConn struct {
	net.Conn
	to net.Addr
}

func (c *lastingConn) RemoteAddr() net.Addr { return c.to }

// refused says that a login is refused with a code of SQL's and words of ours.
func (d *pgRig) refused(what, state, words string, change func(*pgx.ConnConfig)) {
	d.t.Helper()
	_, err := d.connect(change)
	var failed *pgconn.PgError
	if !errors.As(err, &failed) || failed.Code != state || !strings.Contains(failed.Message, words) {
		d.t.Errorf("%s: %v, want %s %q", what, err, state, words)
	}
}

func TestLogin(t *testing.T) {
	d := newPgRig(t, "db.test")
	c, err := d.connect(nil)
	if err != nil {
		t.Fatal(err)
	}
	var said string
	if err := c.QueryRow(d.ctx(), "select 1").Scan(&said); err != nil || said != "select 1" {
		t.Errorf("%q, %v", said, err)
	}
	if s := <-d.far.users; s.User != "app_ro" || s.Database != "orders" || len(s.Settings) == 0 {
		t.Errorf("asked for %+v", s)
	}
	if d.lender.asked.Load() != 1 || d.far.logins.Load() != 1 {
		t.Errorf("lent %d times for %d logins", d.lender.asked.Load(), d.far.logins.Load())
	}
	// The key inside is not the server's, and stands for it.
	key := &pgproto3.CancelRequest{ProcessID: c.PgConn().PID(), SecretKey: c.PgConn().SecretKey()}
	if key.ProcessID == 11 {
		t.Error("the server's own key is inside")
	}
	if err := c.PgConn().CancelRequest(d.ctx()); err != nil {
		t.Error(err)
	}
	if k := <-d.far.cancels; k != (postgres.Key{Process: 11, Secret: 22}) {
		t.Errorf("canceled %+v", k)
	}
	if err := c.Close(d.ctx()); err != nil {
		t.Error(err)
	}
	rec := d.await("the end", func(r task.EgressRecord) bool { return r.Done && r.BytesIn > 0 && r.Lease != "" })
	if rec.Protocol != "postgres" || rec.Verdict != "allowed" || rec.Rule != "agent.network.allow[0]" || rec.Address != "127.0.0.1" || rec.BytesOut == 0 {
		t.Errorf("%+v", rec)
	}
	if len(d.far.cancels) > 0 {
		t.Error("a session that ended by itself was canceled")
	}
	// Its key ended with it.
	accepted := d.far.accepted.Load()
	packet, err := key.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := d.client.DialContext(d.ctx(), "tcp", fmt.Sprintf("db.test:%d", d.far.port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(packet); err != nil {
		t.Error(err)
	}
	d.await("a key of nobody's", denied(task.PolicyCredential))
	if d.far.accepted.Load() != accepted {
		t.Error("a request to cancel nothing went out")
	}
}

// What is refused inside reaches nobody outside.
func TestLoginIsRefusedInside(t *testing.T) {
	d := newPgRig(t, "db.test")
	d.refused("password", "28P01", "(policy.credential)", func(c *pgx.ConnConfig) { c.Password = realPassword })
	d.refused("user", "28000", "for the user in PGUSER alone (policy.credential)", func(c *pgx.ConnConfig) { c.User = "postgres" })
	d.refused("database", "28000", "lent are: orders,stock (policy.credential)", func(c *pgx.ConnConfig) { c.Database = "postgres" })
	d.refused("replication", "28000", "(policy.protocol)", func(c *pgx.ConnConfig) { c.RuntimeParams["replication"] = "on" })
	d.refused("no TLS", "28000", "(policy.protocol)", func(c *pgx.ConnConfig) { c.TLSConfig = nil })
	d.refused("another name", "28000", "(policy.name_mismatch)", func(c *pgx.ConnConfig) {
		c.TLSConfig = &tls.Config{InsecureSkipVerify: true, ServerName: "ok.test"}
	})
	for what, change := range map[string]func(*task.Lease){
		"another kind":       func(l *task.Lease) { l.Kind = task.KindHeader },
		"another credential": func(l *task.Lease) { l.Credential = "other" },
		"another host":       func(l *task.Lease) { l.Hosts = []string{"ok.test"} },
		"another port":       func(l *task.Lease) { l.Ports = []uint16{5432} },
		"no host":            func(l *task.Lease) { l.Hosts = nil },
		"no user":            func(l *task.Lease) { l.Settings = map[string]string{"database": "orders"} },
		"no placeholder":     func(l *task.Lease) { l.Placeholder = "" },
	} {
		d.grant(func(g *task.Grant) { change(&g.Leases[0]) })
		d.refused(what, "28000", "no login is lent for this host and port (policy.credential)", nil)
	}
	d.grant(func(g *task.Grant) { g.Rules[0].Private = false })
	d.refused("a private address", "28000", "(policy.address)", nil)
	d.grant(func(*task.Grant) {})
	d.resolver.set("db.test", nil)
	d.refused("no address", "08001", "(egress.unresolved)", nil)
	d.resolver.set("db.test", addrs("127.0.0.1"))
	if d.far.accepted.Load() != 0 || d.lender.asked.Load() != 0 {
		t.Errorf("%d connections outside, lent %d times", d.far.accepted.Load(), d.lender.asked.Load())
	}
	d.await("an address", denied(task.PolicyAddress))
	d.await("a name", denied(task.PolicyNameMismatch))
}

// Beside a login nothing passes, whatever other rules allow.
func TestNothingPassesBesideALogin(t *testing.T) {
	d := newPgRig(t, "db.test")
	d.grant(func(g *task.Grant) {
		g.Rules = append(g.Rules, task.Rule{ID: "open", Host: "db.test", Ports: []uint16{d.far.port}, Private: true},
			task.Rule{ID: "bytes", Host: "db.test", Ports: []uint16{d.far.port}, Protocol: task.ProtocolTCP, Private: true})
	})
	for _, b := range []string{"GET / HTTP/1.1\r\nHost: db.test\r\n\r\n", "\x00\x00\x00\x04", "\x16\x03\x01\x00\x02\x01\x00", "SSH-2.0-x\r\n"} {
		conn, err := d.client.DialContext(d.ctx(), "tcp", fmt.Sprintf("db.test:%d", d.far.port))
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(30 * time.Second))
		if _, err := conn.Write([]byte(b)); err != nil {
			t.Error(err)
		}
		if half, ok := conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
			t.Error("the client's side does not end")
		}
		_, _ = io.ReadAll(conn)
		conn.Close()
	}
	d.await("the refusal", denied(task.PolicyProtocol))
	if d.far.accepted.Load() != 0 {
		t.Error("something went out")
	}
	if _, err := d.connect(nil); err != nil {
		t.Error(err)
	}
}

func TestLoginIsRefusedOutside(t *testing.T) {
	d := newPgRig(t, "db.test")
	d.lender.say(dbPlace, nil)
	d.refused("a placeholder is lent", "28000", "(policy.credential)", nil)
	d.lender.say("", nil)
	d.refused("nothing is lent", "28000", "(policy.credential)", nil)
	d.lender.say("another password", nil)
	d.refused("another password", "28P01", "the server says: password authentication failed", nil)
	d.lender.say("", task.Fail(task.InfraControlAway, "away", nil))
	d.refused("away", "57P03", "(infra.control_plane_away)", nil)
	if d.far.logins.Load() != 0 {
		t.Error("somebody was let in")
	}
	e := newPgRig(t, "else.test")
	e.refused("another certificate", "28000", "(egress.untrusted)", nil)
	if e.lender.asked.Load() != 0 || len(e.far.users) > 0 {
		t.Error("an untrusted server was told something")
	}
	e.await("untrusted", func(r task.EgressRecord) bool {
		return r.Done && r.Reason == task.EgressUntrusted && r.Verdict == "allowed"
	})
	e.far.Close()
	e.refused("nobody there", "08001", "(egress.unreachable)", nil)
}

// A session ends with the grant that it was made under, and when its lease is
// refused later; a control plane that is away ends none.
func TestSessionEndsWithItsLease(t *testing.T) {
	d := newPgRig(t, "db.test")
	d.gateway.relend = time.Millisecond
	c, err := d.connect(nil)
	if err != nil {
		t.Fatal(err)
	}
	d.lender.say("", task.Fail(task.InfraControlAway, "away", nil))
	for asked := d.lender.asked.Load(); d.lender.asked.Load() < asked+3; {
		if _, err := c.Exec(d.ctx(), "select 1"); err != nil {
			t.Fatalf("ended while the control plane was away: %v", err)
		}
	}
	d.lender.say("", task.Fail(task.PolicyCredential, "revoked", nil))
	for err = nil; err == nil && d.ctx().Err() == nil; {
		_, err = c.Exec(d.ctx(), "select 1")
	}
	if err == nil {
		t.Error("the session outlives its lease")
	}
	d.await("the refusal", func(r task.EgressRecord) bool {
		return r.Done && r.Reason == task.PolicyCredential && r.Verdict == "denied"
	})

	// What ran in it is canceled: the server would finish it.
	own := postgres.Key{Process: 11, Secret: 22}
	if k := <-d.far.cancels; k != own {
		t.Errorf("canceled %+v", k)
	}

	d.lender.say(realPassword, nil)
	if c, err = d.connect(nil); err != nil {
		t.Fatal(err)
	}
	d.grant(func(g *task.Grant) { g.Leases = nil })
	if _, err := c.Exec(d.ctx(), "select 1"); err == nil {
		t.Error("the session outlives its grant")
	}
	if k := <-d.far.cancels; k != own {
		t.Errorf("canceled %+v", k)
	}
}

// The port of PostgreSQL refuses in PostgreSQL's words, where no rule is about
// it too.
func TestPostgresPortRefusesReadably(t *testing.T) {
	d := newPgRig(t, "db.test")
	d.refused("no rule", "28000", "No rule of this task's policy allows this host and port. Do not retry; ask for a rule if it is needed. (policy.denied)", func(c *pgx.ConnConfig) {
		c.Host, c.Port = "no.test", 5432
		c.TLSConfig.ServerName = "no.test"
	})
	d.await("denied", denied(task.PolicyDenied))
}
