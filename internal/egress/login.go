package egress

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/postgres"
	"github.com/cofferdam/cofferdam/internal/egress/refusal"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	postgresPort = 5432
	loginWait    = time.Minute      // for a program inside to log in, as servers wait
	secureWait   = 15 * time.Second // for a server's TLS
	lendWait     = 30 * time.Second // for a password to be lent
	farLoginWait = 30 * time.Second // for a server, beside lendWait
	cancelWait   = 15 * time.Second // for a request to cancel
	relendPace   = 30 * time.Second // between questions whether a session's lease lasts
)

// logins are what the sessions of PostgreSQL of one sandbox have in common.
type logins struct {
	keys postgres.Keys

	mu        sync.Mutex
	verifiers map[string]*postgres.Verifier // by placeholder
}

// verifier checks the placeholder. It is made once, since making it is as much
// work as a server wants a guess to be.
func (l *logins) verifier(placeholder string) (*postgres.Verifier, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if v := l.verifiers[placeholder]; v != nil {
		return v, nil
	}
	v, err := postgres.NewVerifier(placeholder)
	if err != nil {
		return nil, err
	}
	if l.verifiers == nil || len(l.verifiers) >= 64 {
		l.verifiers = map[string]*postgres.Verifier{}
	}
	l.verifiers[placeholder] = v
	return v, nil
}

// logsIn says whether the connection is for PostgreSQL, where the gateway logs
// in and nothing else passes.
func (c *connection) logsIn() bool {
	return slices.Equal(c.decision.Protocols, []string{task.ProtocolPostgres})
}

// meet takes the connection and reads what a program of PostgreSQL wants.
func (c *connection) meet(r *netstack.Request, within time.Duration) (*postgres.Guest, error) {
	inner, err := r.Accept(c.grow)
	if err != nil {
		return nil, err
	}
	if !c.hold(inner) {
		return nil, net.ErrClosed
	}
	c.saw(task.ProtocolPostgres, "", "")
	inner.SetDeadline(time.Now().Add(within))
	g, err := postgres.Meet(c.ctx, inner, func() (*tls.Certificate, error) { return c.way.authority.Leaf(c.target(), time.Now()) })
	c.saw(task.ProtocolPostgres, strings.ToLower(g.Name), "")
	return g, err
}

// logIn is the whole of an allowed connection of PostgreSQL. The program inside
// proves the placeholder before anything goes outside.
func (c *connection) logIn(r *netstack.Request) {
	g, err := c.meet(r, loginWait)
	switch {
	case g == nil:
		return
	case err != nil: // told by meet
		c.way.log.Debug("start-up inside", "conn", c.id, "error", err)
		c.unfit(insideFault(err))
		return
	}
	defer g.End()
	if g.Cancel != nil {
		c.cancelFar(*g.Cancel)
		return
	}
	s, err := c.session(g)
	if err != nil {
		c.refuseLogin(g, err)
		return
	}
	defer c.way.logins.keys.Remove(s.key)
	c.relay(g, s)
}

// session is one that was logged in to.
type session struct {
	far    *tls.Conn
	key    postgres.Key      // that the program inside has of it
	server *postgres.Session // what the key stands for; nil: nothing
	lease  *task.Lease
}

// session has the program inside log in, and logs in outside.
func (c *connection) session(g *postgres.Guest) (session, error) {
	lease, err := c.startable(g)
	if err != nil {
		return session{}, err
	}
	v, err := c.way.logins.verifier(lease.Placeholder)
	if err != nil {
		return session{}, err
	}
	if err := g.Authenticate(v); err != nil {
		return session{}, fmt.Errorf("%w: %w", errInside, err)
	}
	c.mu.Lock()
	c.lease = lease.ID
	c.mu.Unlock()
	far, err := c.secure(nil)
	if err != nil {
		return session{}, err
	}
	far.SetDeadline(time.Now().Add(lendWait + farLoginWait))
	g.Conn.SetDeadline(time.Now().Add(lendWait + farLoginWait))
	greeting, err := postgres.Login(far, *g.Startup, func() (task.Secret, error) { return c.password(lease) })
	if err != nil {
		return session{}, err
	}
	s := session{far: far, lease: lease}
	if greeting.Key != nil {
		c.mu.Lock()
		at := c.dialled
		c.mu.Unlock()
		s.server = &postgres.Session{Name: c.target(), At: at, Key: *greeting.Key}
		s.key = c.way.logins.keys.Add(*s.server)
	}
	if err := g.Admit(greeting, s.key); err != nil {
		c.way.logins.keys.Remove(s.key)
		return session{}, fmt.Errorf("%w: %w", errInside, err)
	}
	far.SetDeadline(time.Time{})
	g.Conn.SetDeadline(time.Time{})
	return s, nil
}

// startable judges the start-up and gives the lease that it is for.
func (c *connection) startable(g *postgres.Guest) (*task.Lease, error) {
	refused := func(reason task.Reason, text string) error {
		return &postgres.Refusal{State: "28000", Reason: reason, Text: text}
	}
	if g.Name != "" && !c.agrees(strings.ToLower(g.Name)) {
		return nil, refused(task.PolicyNameMismatch, "the TLS server name is not the name that was connected to")
	}
	lease := c.boundLease()
	switch {
	case lease == nil:
		return nil, refused(task.PolicyCredential, "no login is lent for this host and port")
	case g.Startup.User != lease.Settings["user"]:
		return nil, refused(task.PolicyCredential, "the login that is lent is for the user in PGUSER alone")
	case !slices.Contains(strings.Split(lease.Settings["database"], ","), g.Startup.Database):
		return nil, refused(task.PolicyCredential, "the login is not lent for this database; lent are: "+lease.Settings["database"])
	}
	return lease, nil
}

// boundLease finds the lease that the rule names, if its own binding covers the
// connection. The binding is read as rules are, by the same code.
func (c *connection) boundLease() *task.Lease {
	for i := range c.grant.Leases {
		l := &c.grant.Leases[i]
		if l.Credential != c.decision.Credential || l.Over(time.Now()) || l.Kind != task.KindPostgres || l.Placeholder == "" || l.Settings["user"] == "" || l.Settings["database"] == "" {
			continue
		}
		var rules []task.Rule
		for _, host := range l.Hosts {
			rules = append(rules, task.Rule{ID: l.ID, Host: host, Ports: l.Ports})
		}
		if decide.NewIndex(task.Grant{Rules: rules}).Decide(c.use()).Verdict == task.Allowed {
			return l
		}
	}
	return nil
}

// secure dials and verifies the server; at is where, when it was looked up
// before.
func (c *connection) secure(at []netip.Addr) (*tls.Conn, error) {
	if at == nil {
		addresses, unreached := c.way.gateway.reach().Addresses(c.ctx, c.use(), c.decision.Private)
		if unreached != nil {
			c.way.log.Debug("look-up", "conn", c.id, "name", c.name, "error", unreached)
			return nil, unreached
		}
		at = addresses
	}
	conn, err := c.dial(c.ctx, at)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.ctx, secureWait)
	defer cancel()
	conn.SetDeadline(time.Now().Add(secureWait))
	return postgres.Secure(ctx, conn, c.farTLS())
}

// password has the real one lent.
func (c *connection) password(lease *task.Lease) (task.Secret, error) {
	lender := c.way.gateway.options.Lender
	if lender == nil {
		return task.Secret{}, task.Fail(task.PolicyCredential, "nothing is lent", nil)
	}
	ctx, cancel := context.WithTimeout(c.ctx, lendWait)
	defer cancel()
	value, err := lender.Value(ctx, c.grant.Sandbox, *lease)
	if err != nil {
		var failure *task.Failure
		if !errors.As(err, &failure) || failure.Reason.Class() != "policy" {
			return task.Secret{}, task.Fail(task.InfraControlAway, "the password can't be had now", err)
		}
		return task.Secret{}, err
	}
	if value.Empty() || slices.ContainsFunc(c.grant.Leases, func(l task.Lease) bool { return l.Placeholder == value.Reveal() }) {
		return task.Secret{}, task.Fail(task.PolicyCredential, "nothing is lent", nil)
	}
	return value, nil
}

// errInside is a fault of the program inside, or its end.
var errInside = errors.New("inside")

// insideFault is the reason for one.
func insideFault(err error) task.Reason {
	var refusal *postgres.Refusal
	switch {
	case errors.As(err, &refusal):
		return cmp.Or(refusal.Reason, task.PolicyProtocol)
	case errors.Is(err, postgres.ErrMalformed):
		return task.PolicyProtocol
	}
	return task.ReasonNone // it went away, as programs do that have no password yet
}

// refuseLogin tells the program inside why there is no session, and the record.
func (c *connection) refuseLogin(g *postgres.Guest, err error) {
	c.way.log.Debug("login", "conn", c.id, "error", err)
	refusal, address := refusalOf(err)
	switch {
	case errors.Is(err, errInside):
		refusal.Reason = insideFault(err)
		c.unfit(refusal.Reason)
	case refusal.Reason == task.PolicyAddress:
		c.denied(refusal.Reason, address)
	default:
		c.unfit(refusal.Reason)
	}
	g.Conn.SetDeadline(time.Now().Add(refusalWait))
	_ = refusal.Refuse(g.Conn)
}

// unfit puts on record why an allowed connection came to nothing.
func (c *connection) unfit(reason task.Reason) {
	if !c.recorded && reason.Class() == "policy" {
		c.denied(reason, "")
		return
	}
	if !c.recorded {
		rec := c.record()
		rec.Verdict = task.Allowed.String()
		c.recorded = c.way.records.Append(rec) == nil
	}
	c.mismatch(reason)
}

// refusalOf puts a failure into the words of PostgreSQL. address is the one that
// the guard refused.
func refusalOf(err error) (refusal *postgres.Refusal, address string) {
	var unreached *outbound.Unreached
	var failure *task.Failure
	reason := outbound.Fault(err)
	switch {
	case errors.As(err, &refusal):
		return refusal, ""
	case errors.As(err, &unreached):
		reason, address = unreached.Reason, unreached.Address
	case errors.Is(err, outbound.ErrRecord):
		reason = task.InfraStorage
	case errors.As(err, &failure) && failure.Reason.Class() == "policy":
		reason = task.PolicyCredential
	case errors.As(err, &failure):
		reason = task.InfraControlAway
	}
	return refusalFor(reason), address
}

// refusalFor says a reason in the words of PostgreSQL.
func refusalFor(reason task.Reason) *postgres.Refusal {
	state := "28000"
	switch {
	case reason.Class() == "infra":
		state = "57P03"
	case reason == task.EgressUnreachable, reason == task.EgressUnresolved:
		state = "08001"
	}
	return &postgres.Refusal{State: state, Reason: reason, Text: refusal.Hint(reason)}
}

// cancelFar passes a request to cancel on to the server of the session that its
// key stands for. Who asks is told nothing, whatever becomes of it, as by
// servers.
func (c *connection) cancelFar(key postgres.Key) {
	s, ok := c.way.logins.keys.Find(key)
	if !ok || s.Name != c.target() || s.At.Port() != c.to.Port() {
		c.denied(task.PolicyCredential, "")
		return
	}
	far, err := c.secure([]netip.Addr{s.At.Addr()})
	if err == nil {
		far.SetDeadline(time.Now().Add(cancelWait))
		err = postgres.Cancel(far, s.Key)
	}
	if err != nil {
		c.way.log.Debug("cancel", "conn", c.id, "error", err)
		refusal, _ := refusalOf(err)
		c.unfit(refusal.Reason)
	}
}

// relay passes the session's bytes on until one side ends. The end of the
// program's side is the session's, as it is without us.
func (c *connection) relay(g *postgres.Guest, s session) {
	inside, ok := g.Conn.(*tls.Conn)
	if !ok {
		return
	}
	pump := &c.way.gateway.pump
	var running sync.WaitGroup
	running.Go(func() {
		_ = pump.Copy(s.far, inside)
		s.far.Close()
	})
	running.Go(func() { c.relend(s.lease) })
	err := pump.Copy(inside, s.far)
	cut := c.ctx.Err() != nil // by a new grant, or since the lease is refused
	// A server that ends without ending TLS has said what it had to say.
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		c.cut()
	}
	c.release()
	running.Wait()
	if cut && s.server != nil {
		c.stop(*s.server)
	}
}

// stop cancels what runs in a session that was cut. A server notices that a
// client is gone only when it has something to say, and would finish, and keep,
// what was begun.
func (c *connection) stop(s postgres.Session) {
	ctx, cancel := context.WithTimeout(context.Background(), cancelWait)
	defer cancel()
	rec := c.record()
	rec.Conn, rec.Verdict = c.way.records.Conn(), task.Allowed.String()
	conn, _, err := c.way.gateway.dial(ctx, []netip.Addr{s.At.Addr()}, s.At.Port(), func(netip.AddrPort) error { return c.way.records.Append(rec) })
	if err != nil {
		c.way.log.Debug("stop", "conn", c.id, "error", err)
		return
	}
	var in, out atomic.Int64
	far := outbound.NewCounted(conn, &in, &out, nil)
	defer far.Close()
	far.SetDeadline(time.Now().Add(cancelWait))
	secure, err := postgres.Secure(ctx, far, c.farTLS())
	if err == nil {
		err = postgres.Cancel(secure, s.Key)
	}
	if err != nil {
		c.way.log.Debug("stop", "conn", c.id, "error", err)
		rec.Reason = outbound.Fault(err)
	}
	rec.Done, rec.BytesIn, rec.BytesOut = true, in.Load(), out.Load()
	if err := c.way.records.Append(rec); err != nil {
		c.way.log.Error("decision log", "error", err)
	}
}

// farTLS is how a server is verified.
func (c *connection) farTLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.target(), RootCAs: c.way.gateway.options.Roots}
}

// relend asks again and again whether the session's lease lasts, and cuts the
// session when it is refused. That it can't be known now cuts nothing: a control
// plane that is away takes no rights away.
func (c *connection) relend(lease *task.Lease) {
	tick := time.NewTicker(c.way.gateway.relend)
	defer tick.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		_, err := c.password(lease)
		var failure *task.Failure
		if c.ctx.Err() == nil && errors.As(err, &failure) && failure.Reason.Class() == "policy" {
			c.mismatch(task.PolicyCredential)
			c.cut()
			return
		}
	}
}

// answerPostgres refuses what comes to PostgreSQL's port readably.
func (c *connection) answerPostgres(r *netstack.Request, reason task.Reason) {
	g, err := c.meet(r, refusalWait)
	if err != nil || g.Startup == nil {
		return
	}
	_ = refusalFor(reason).Refuse(g.Conn)
	g.End()
}
