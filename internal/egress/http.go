package egress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/cofferdam/cofferdam/internal/egress/answer"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/refusal"
	"github.com/cofferdam/cofferdam/internal/egress/strict"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

const (
	requestWait = time.Minute      // for a request's header
	halfWait    = 30 * time.Second // for more of an answer to a client that ended its side
)

// exchanges are the requests of one connection.
type exchanges struct {
	connection *connection
	wire       http.RoundTripper
	far        url.URL // scheme and host of what goes out
	gate       outbound.Gate
	h2         bool         // spoken inside
	screen     *strict.Conn // of HTTP/1 inside
	count      atomic.Int64
	running    sync.WaitGroup
}

// ServeHTTP decides one request and sends it on.
func (x *exchanges) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.running.Add(1)
	defer x.running.Done()
	if x.screen != nil {
		defer x.screen.Answered()
	}
	n := x.count.Add(1)
	if x.connection.single {
		if w.Header().Set("Connection", "close"); n > 1 {
			x.deny(w, r, n, task.Decision{Reason: task.PolicyDenied}, true)
			return
		}
	}
	if reason := x.misshapen(r, n); reason != task.ReasonNone {
		x.deny(w, r, n, task.Decision{Reason: reason}, true)
		return
	}
	pass := x.gate.Judge(r)
	defer pass.Release()
	if !pass.Allowed() {
		x.refuse(w, r, n, pass.Decision, pass.Why(), false)
		return
	}
	x.connection.saw("http", "", clip(r.Host))
	e := &exchange{exchanges: x, pass: pass, record: x.recordOf(r, n, pass.Decision)}
	e.record.Lease, e.record.Verdict = pass.Lease(), task.Allowed.String()
	e.serve(w, r)
}

// misshapen says why a request must not pass whatever the rules are: it names
// another host than the connection, or would carry requests that are not looked
// at.
func (x *exchanges) misshapen(r *http.Request, n int64) task.Reason {
	c := x.connection
	if x.screen != nil {
		if why := x.screen.Refused(n); why != "" {
			c.way.log.Debug("request", "conn", c.id, "why", why)
			return task.PolicyProtocol
		}
	}
	if x.h2 != (r.ProtoMajor == 2) || len(r.Header[":protocol"]) > 0 {
		return task.PolicyProtocol
	}
	if lengths := r.Header["Content-Length"]; x.h2 && (len(lengths) > 1 || len(lengths) == 1 && r.ContentLength == 0 && lengths[0] != "0") {
		return task.PolicyProtocol // a length of a body that isn't there
	}
	switch {
	case r.Method == http.MethodConnect, r.URL.Opaque != "", r.URL.User != nil:
		return task.PolicyProtocol
	case x.h2 && !printable(r.RequestURI): // strict sees to that of HTTP/1
		return task.PolicyProtocol
	case r.URL.Scheme != "" && r.URL.Scheme != x.far.Scheme:
		return task.PolicyProtocol
	case !c.sameHost(r.Host), r.URL.Host != "" && !c.sameHost(r.URL.Host):
		return task.PolicyNameMismatch
	}
	for _, h := range r.Header["Host"] { // beside :authority
		if !c.sameHost(h) {
			return task.PolicyNameMismatch
		}
	}
	if !x.upgradable(r.Header) {
		return task.PolicyProtocol
	}
	return task.ReasonNone
}

// printable says whether a target has only characters that stand in one. A space
// would end it where the far side speaks HTTP/1.
func printable(target string) bool {
	for i := range len(target) {
		if target[i] <= ' ' || target[i] >= 0x7f || target[i] == '#' {
			return false
		}
	}
	return true
}

// upgradable says whether the protocols that a request offers to switch to may
// pass: where requests are decided, WebSocket alone; else those that don't
// carry requests.
func (x *exchanges) upgradable(h http.Header) bool {
	for _, v := range h.Values("Upgrade") {
		for p := range strings.SplitSeq(v, ",") {
			p = strings.ToLower(strings.TrimSpace(p))
			if x.gate.Inspect && p != "websocket" || strings.HasPrefix(p, "h2c") || strings.HasPrefix(p, "tls/") || strings.HasPrefix(p, "http/") {
				return false
			}
		}
	}
	return true
}

// recordOf is what a record says of a request.
func (x *exchanges) recordOf(r *http.Request, n int64, d task.Decision) task.EgressRecord {
	rec := x.connection.record()
	rec.Protocol, rec.HostName, rec.Request = "http", clip(r.Host), n
	rec.Method, rec.Path = r.Method[:min(len(r.Method), 32)], outbound.SentPath(r.URL)
	rec.Path = rec.Path[:min(len(rec.Path), 1024)]
	if d.Rule != "" {
		rec.Rule = d.Rule
	}
	return rec
}

// deny refuses one request, readably. misshapen says that the whole connection
// must not be trusted any further.
func (x *exchanges) deny(w http.ResponseWriter, r *http.Request, n int64, d task.Decision, misshapen bool) {
	x.refuse(w, r, n, d, "", misshapen)
}

// refuse denies a request with words of its own, where why has some.
func (x *exchanges) refuse(w http.ResponseWriter, r *http.Request, n int64, d task.Decision, why string, misshapen bool) {
	rec := x.recordOf(r, n, d)
	if x.gate.Inspect {
		rec.Rule = d.Rule // the connection's own rule allowed nothing here
	}
	rec.Verdict, rec.Reason = task.Denied.String(), d.Reason
	x.connection.way.records.Deny(rec)
	if misshapen {
		x.connection.mismatch(d.Reason)
		if !x.h2 {
			w.Header().Set("Connection", "close")
		}
	}
	x.connection.writeProblem(w, r, refusal.Problem{Code: d.Reason, Rule: rec.Rule, Method: rec.Method, Path: rec.Path, Hint: why})
}

// unaffordable refuses what no budget has room for, or nobody could say so.
func (x *exchanges) unaffordable(w http.ResponseWriter, r *http.Request, rec task.EgressRecord, err error) {
	d, why := task.Decision{Reason: task.InfraControlAway, Rule: rec.Rule}, ""
	if f, ok := errors.AsType[*task.Failure](err); ok {
		d.Reason, why = f.Reason, f.Text
	}
	x.refuse(w, r, rec.Request, d, why, false)
}

// clip bounds what a client chose and a record repeats.
func clip(s string) string { return s[:min(len(s), 300)] }

// redial gives a transport the connection that was dialled, and when that is
// used up another one to the same address, which is recorded again.
func (c *connection) redial() func(context.Context, string, string) (net.Conn, error) {
	var first atomic.Bool
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		c.mu.Lock()
		upstream, to := c.upstream, c.dialled.Addr()
		c.mu.Unlock()
		if !first.Swap(true) {
			return upstream, nil
		}
		if c.ctx.Err() != nil {
			return nil, errors.New("cut")
		}
		far, err := c.dial(ctx, []netip.Addr{to})
		if err != nil {
			return nil, err
		}
		return far, nil
	}
}

// exchange is one request that may go.
type exchange struct {
	exchanges *exchanges
	pass      outbound.Pass
	record    task.EgressRecord
	upgrade   string // the protocol that it asks to switch to
	unfit     error  // why the lent value could not be put into the request
	status    int
	reason    task.Reason
	in, out   atomic.Int64
}

// RoundTrip sends the request outside, unless what is lent could not be put
// into it.
func (e *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	if e.unfit != nil {
		return nil, e.unfit
	}
	return e.exchanges.wire.RoundTrip(r)
}

// serve records the request, lends what it needs and sends it on. Where
// requests are not decided, the connection's own record stands for them.
func (e *exchange) serve(w http.ResponseWriter, r *http.Request) {
	x := e.exchanges
	c := x.connection
	done, err := x.gate.Afford(r.Context(), c.way.gateway.options.Purse, e.pass)
	if err != nil {
		x.unaffordable(w, r, e.record, err)
		return
	}
	defer done()
	if x.gate.Inspect {
		if err := c.way.records.Append(e.record); err != nil {
			c.way.log.Error("decision log", "error", err)
			c.writeProblem(w, r, refusal.Problem{Code: task.InfraStorage})
			return
		}
		defer e.end()
	}
	loan, reason := x.gate.Lend(r.Context(), c.way.gateway.options.Lender, e.pass)
	if reason != task.ReasonNone {
		e.reason = reason
		c.writeProblem(w, r, refusal.Problem{Code: reason, Rule: e.record.Rule, Method: e.record.Method, Path: e.record.Path, Hint: loan.Why()})
		return
	}
	if httpguts.HeaderValuesContainsToken(r.Header["Connection"], "Upgrade") {
		e.upgrade = r.Header.Get("Upgrade")
	}
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		// An answer may come while the request is still being sent.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &countedBody{ReadCloser: e.pass.Meter().Question(r.Body), n: &e.out}
	}
	e.answer(loan, &countedWriter{ResponseWriter: w, n: &e.in}, r)
}

// answer sends the request on and gives its answer, in which nothing is left of
// what is lent to the sandbox.
func (e *exchange) answer(loan outbound.Loan, w http.ResponseWriter, r *http.Request) {
	var others []task.Secret
	if h, ok := e.exchanges.connection.way.gateway.options.Lender.(holder); ok && e.pass.Lease() != "" {
		others = h.Held(e.exchanges.gate.Grant.Sandbox)
	}
	m := loan.Masker(others...)
	if m == nil {
		e.proxy(loan, nil).ServeHTTP(w, r)
		return
	}
	masked := answer.NewWriter(w, m)
	defer masked.Abandon() // where the answer broke off
	e.proxy(loan, m).ServeHTTP(masked, r)
	if err := masked.Finish(); err != nil {
		panic(http.ErrAbortHandler) // as the proxy does when its client is gone
	}
}

// holder is a Lender that knows what it has lent.
type holder interface {
	// Held are the values that are held for a sandbox.
	Held(sandbox string) []task.Secret
}

// proxy sends one request on. The lent value is put into what goes out after
// everything that a client may have taken off it.
func (e *exchange) proxy(loan outbound.Loan, m *mask.Masker) *httputil.ReverseProxy {
	x := e.exchanges
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host = x.far.Scheme, x.far.Host
			p.Out.URL.RawQuery, p.Out.Host, p.Out.Trailer = p.In.URL.RawQuery, p.In.Host, p.In.Trailer
			if !e.pass.Trailers() {
				p.Out.Trailer = nil
			}
			for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := p.In.Header[h]; ok {
					p.Out.Header[h] = v
				}
			}
			delete(p.Out.Header, "Host")
			e.unfit = loan.Apply(p.Out)
		},
		Transport:     e,
		FlushInterval: -1,
		BufferPool:    &x.connection.way.gateway.pump,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ModifyResponse: func(res *http.Response) error {
			e.status = res.StatusCode
			if res.StatusCode == http.StatusSwitchingProtocols && x.screen != nil {
				// What did not ask to switch goes on with requests.
				if asked := e.upgrade; asked == "" || !strings.EqualFold(asked, res.Header.Get("Upgrade")) {
					return errors.New("the far side switches to a protocol that was not asked for")
				}
				x.screen.Open()
			}
			if err := loan.Returned(res); err != nil {
				return err
			}
			if err := answer.Readable(m, res); err != nil {
				return err
			}
			e.pass.Meter().Answer(res)
			if conn, ok := res.Body.(io.ReadWriteCloser); ok && m != nil {
				res.Body = answer.Switched(conn, m)
			}
			if !x.h2 && len(res.Trailer) > 0 {
				res.Header.Del("Content-Length") // in HTTP/1 only chunks have trailers
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			x.connection.way.log.Debug("request", "conn", x.connection.id, "error", loan.Quiet(err))
			if e.reason = outbound.Fault(err); e.unfit != nil {
				e.reason = task.PolicyCredential
			}
			x.connection.writeProblem(w, r, refusal.Problem{Code: e.reason, Method: e.record.Method, Path: e.record.Path, Hint: outbound.Why(err)})
		},
	}
}

// end records how the request ended.
func (e *exchange) end() {
	rec := e.record
	rec.Done, rec.Status, rec.Reason, rec.BytesIn, rec.BytesOut = true, e.status, e.reason, e.in.Load(), e.out.Load()
	rec.Tokens = e.pass.Meter().Tokens(rec.Status, rec.BytesOut, rec.BytesIn)
	if e.reason.Class() == "policy" {
		rec.Verdict = task.Denied.String()
	}
	if err := e.exchanges.connection.way.records.Append(rec); err != nil {
		e.exchanges.connection.way.log.Error("decision log", "error", err)
	}
}

// countedBody counts what a request brings.
type countedBody struct {
	io.ReadCloser
	n *atomic.Int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}

// countedWriter counts what answers a request.
type countedWriter struct {
	http.ResponseWriter
	n *atomic.Int64
}

func (w *countedWriter) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.n.Add(int64(n))
	return n, err
}

// Unwrap is for http.ResponseController, which finds the rest.
func (w *countedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
