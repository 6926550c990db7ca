package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Options make a Transport. All but Roots and Lender are required.
type Options struct {
	Grant    task.Grant // the zero Grant reaches nothing
	Guard    *guard.Guard
	Resolver Resolver
	Roots    *x509.CertPool // nil: the system's
	Lender   Lender         // nil: nothing is lent, and what needs a credential is refused
	// Record keeps a record; it sets Seq, Sandbox and Time. When it fails the
	// request is not sent.
	Record func(task.EgressRecord) error
}

// Transport is an http.RoundTripper that reaches what its grant allows. Each
// request is decided by itself, those of redirects too. Its errors are
// *task.Failure. Safe for concurrent use.
type Transport struct {
	options Options
	rules   *decide.Index
	reach   Reach
	wire    *http.Transport
	conns   atomic.Int64
	ctx     context.Context
	cancel  context.CancelFunc

	mu     sync.Mutex
	open   map[*Counted]struct{}
	closed bool
}

// New makes a transport. It must be closed.
func New(o Options) (*Transport, error) {
	if o.Guard == nil || o.Resolver == nil || o.Record == nil {
		return nil, errors.New("outbound: an option is missing")
	}
	t := &Transport{options: o, rules: decide.NewIndex(o.Grant), reach: Reach{Resolver: o.Resolver, Guard: o.Guard}, open: make(map[*Counted]struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	t.wire = NewWire(WireOptions{Dial: t.dial, Roots: o.Roots, Sessions: tls.NewLRUClientSessionCache(16)})
	return t, nil
}

// Close ends the grant: what is open is cut and nothing new passes.
func (t *Transport) Close() {
	t.cancel()
	t.mu.Lock()
	t.closed = true
	cut := make([]*Counted, 0, len(t.open))
	for c := range t.open {
		cut = append(cut, c)
	}
	t.mu.Unlock()
	for _, c := range cut {
		_ = c.Close()
	}
	t.wire.CloseIdleConnections()
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	own := *r // deciding may read the body and put it back
	r = &own
	e, err := t.admit(r)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	res, err := t.wire.RoundTrip(e.out)
	if err != nil {
		reason := e.fault(err)
		e.end(0, reason)
		return nil, e.failure(reason, e.loan.Quiet(err))
	}
	e.status = res.StatusCode
	if _, upgraded := res.Body.(io.ReadWriteCloser); upgraded {
		e.end(res.StatusCode, task.PolicyProtocol)
		return nil, e.failure(task.PolicyProtocol, res.Body.Close())
	}
	if err := e.loan.Returned(res); err != nil {
		e.end(res.StatusCode, task.EgressUnreachable)
		return nil, e.failure(task.EgressUnreachable, errors.Join(err, res.Body.Close()))
	}
	e.pass.Meter().Answer(res)
	res.Body = &counted{ReadCloser: res.Body, exchange: e}
	if err := e.loan.answered(res); err != nil {
		e.end(res.StatusCode, task.PolicyCredential)
		return nil, e.failure(task.PolicyCredential, errors.Join(err, res.Body.Close()))
	}
	return res, nil
}

// use reads what a URL asks for.
func useOf(u *url.URL) (decide.Use, error) {
	port := map[string]uint16{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return decide.Use{}, fmt.Errorf("port %q", p)
		}
		port = uint16(n)
	}
	if u.Scheme != "http" && u.Scheme != "https" || port == 0 || u.Hostname() == "" || u.User != nil || u.Opaque != "" {
		return decide.Use{}, errors.New("not a plain http or https URL")
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil {
		return decide.Use{Address: addr.String(), Port: port, At: time.Now()}, nil
	}
	return decide.Use{Name: strings.ToLower(strings.TrimSuffix(u.Hostname(), ".")), Port: port, At: time.Now()}, nil
}

// exchange is one request from its decision to its end.
type exchange struct {
	transport *Transport
	record    task.EgressRecord
	private   bool
	use       decide.Use
	out       *http.Request
	pass      Pass
	loan      Loan
	in, sent  atomic.Int64
	status    int
	once      sync.Once

	mu     sync.Mutex
	reason task.Reason // why no connection came about
}

type exchangeKey struct{}

// admit decides, records and lends. What it returns is ready to be sent.
func (t *Transport) admit(r *http.Request) (*exchange, error) {
	use, err := useOf(r.URL)
	if err != nil {
		return nil, task.Fail(task.PolicyProtocol, "the request can't be decided", err)
	}
	g := t.options.Grant
	e := &exchange{transport: t, use: use, record: task.EgressRecord{
		Conn: t.conns.Add(1), Task: g.Task, Stage: g.Stage, Sandbox: g.Sandbox, Name: use.Name, Address: use.Address, Port: use.Port,
		Protocol: "http", HostName: clip(r.Host, 300), Method: clip(r.Method, 32), Path: clip(SentPath(r.URL), 1024), Request: 1,
	}}
	if r.URL.Scheme == "https" {
		e.record.SNI = use.Name
	}
	d := t.rules.Decide(use)
	e.record.Rule, e.private = d.Rule, d.Private
	host := &url.URL{Host: r.Host}
	switch {
	case t.ctx.Err() != nil:
		return nil, e.refuse(task.PolicyDenied)
	case d.Verdict != task.Allowed:
		return nil, e.refuse(task.PolicyDenied)
	case r.Host != "" && !strings.EqualFold(strings.TrimSuffix(host.Hostname(), "."), r.URL.Hostname()):
		return nil, e.refuse(task.PolicyNameMismatch)
	}
	gate := Gate{Grant: g, Use: use, Rules: t.rules, Inspect: d.Inspect, Secure: r.URL.Scheme == "https"}
	if len(r.Header["Host"]) > 0 || r.Header.Get("Upgrade") != "" {
		return nil, e.refuse(task.PolicyProtocol)
	}
	pass := gate.Judge(r)
	e.pass = pass
	if pass.Decision.Rule != "" {
		e.record.Rule = pass.Decision.Rule
	}
	if !pass.Allowed() {
		return nil, e.refuse(pass.Decision.Reason)
	}
	e.record.Lease, e.record.Verdict = pass.Lease(), task.Allowed.String()
	if err := t.options.Record(e.record); err != nil {
		return nil, task.Fail(task.InfraStorage, "the decision could not be recorded", err)
	}
	loan, reason := gate.Lend(r.Context(), t.options.Lender, pass)
	if reason != task.ReasonNone {
		e.end(0, reason)
		return nil, e.failure(reason, nil)
	}
	if err := e.prepare(r, loan); err != nil {
		e.end(0, task.PolicyCredential)
		return nil, e.failure(task.PolicyCredential, err)
	}
	return e, nil
}

// prepare makes the request that goes out: only it ever has the value.
func (e *exchange) prepare(r *http.Request, loan Loan) error {
	e.loan = loan
	e.out = r.Clone(context.WithValue(r.Context(), exchangeKey{}, e))
	if e.out.Header == nil {
		e.out.Header = make(http.Header)
	}
	if r.Body != nil && r.Body != http.NoBody {
		e.out.Body = &question{ReadCloser: e.pass.Meter().Question(r.Body), exchange: e}
	}
	return loan.Apply(e.out)
}

// refuse records a refusal before anything was asked for outside.
func (e *exchange) refuse(reason task.Reason) error {
	e.record.Verdict, e.record.Reason = task.Denied.String(), reason
	_ = e.transport.options.Record(e.record) // it is refused whether that is recorded or not
	return e.failure(reason, nil)
}

// end records the end of the request, once.
func (e *exchange) end(status int, reason task.Reason) {
	e.once.Do(func() {
		rec := e.record
		rec.Done, rec.Status, rec.Reason, rec.BytesIn, rec.BytesOut = true, status, reason, e.in.Load(), e.sent.Load()
		rec.Tokens = e.pass.Meter().Tokens(status, rec.BytesOut, rec.BytesIn)
		if reason.Class() == "policy" {
			rec.Verdict = task.Denied.String()
		}
		_ = e.transport.options.Record(rec)
	})
}

// fault is the reason for an error of the wire.
func (e *exchange) fault(err error) task.Reason {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reason != task.ReasonNone {
		return e.reason
	}
	if e.transport.ctx.Err() != nil {
		return task.PolicyDenied
	}
	return Fault(err)
}

func (e *exchange) failure(reason task.Reason, cause error) error {
	host := e.use.Name
	if host == "" {
		host = e.use.Address
	}
	return task.Fail(reason, fmt.Sprintf("request to %s port %d", host, e.use.Port), cause)
}

// dial makes the connection for a request: look-up, guard, record, dial.
func (t *Transport) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	e, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		return nil, errors.New("a dial for no request")
	}
	fail := func(reason task.Reason, err error) (net.Conn, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.reason = reason
		return nil, err
	}
	addresses, unreached := t.reach.Addresses(ctx, e.use, e.private)
	if unreached != nil {
		return fail(unreached.Reason, unreached)
	}
	rec := e.record
	rec.Request, rec.Method, rec.Path, rec.Lease = 0, "", "", ""
	conn, to, err := Dial(ctx, addresses, e.use.Port, func(to netip.AddrPort) error {
		rec.Address = to.Addr().String()
		return t.options.Record(rec)
	})
	if errors.Is(err, ErrRecord) {
		return fail(task.InfraStorage, err)
	}
	if err != nil {
		return nil, err
	}
	rec.Address = to.Addr().String()
	return t.keep(conn, rec)
}

// keep holds an open connection until it is closed, and records its end.
func (t *Transport) keep(conn *net.TCPConn, rec task.EgressRecord) (net.Conn, error) {
	var in, out atomic.Int64
	var c *Counted
	c = NewCounted(conn, &in, &out, func() {
		t.mu.Lock()
		delete(t.open, c)
		t.mu.Unlock()
		rec.Done, rec.BytesIn, rec.BytesOut = true, in.Load(), out.Load()
		_ = t.options.Record(rec)
	})
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.open[c] = struct{}{}
	}
	t.mu.Unlock()
	if closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	return c, nil
}

// question is a request's body while it is counted.
type question struct {
	io.ReadCloser
	exchange *exchange
}

func (q *question) Read(b []byte) (int, error) {
	n, err := q.ReadCloser.Read(b)
	q.exchange.sent.Add(int64(n))
	return n, err
}

// counted is a response's body while it is counted; its end ends the request.
type counted struct {
	io.ReadCloser
	exchange *exchange
}

func (a *counted) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	a.exchange.in.Add(int64(n))
	if err == io.EOF { //nolint:errorlint // a body ends with itself
		a.exchange.end(a.exchange.status, task.ReasonNone)
		return n, err
	}
	if err != nil {
		a.exchange.end(a.exchange.status, task.EgressUnreachable)
	}
	return n, a.exchange.loan.Quiet(err)
}

func (a *counted) Close() error {
	err := a.ReadCloser.Close()
	a.exchange.end(a.exchange.status, task.ReasonNone)
	return err
}

func clip(s string, most int) string { return s[:min(len(s), most)] }
