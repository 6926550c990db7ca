package egress

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	refusalWait = 10 * time.Second // for a refused client to send its request and read the answer
	headerMax   = 256 << 10
)

// problem is what a refused program reads (RFC 9457). It tells the reason and
// what was asked for, and nothing about us.
type problem struct {
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Code   task.Reason `json:"code"`
	Host   string      `json:"host"`
	Port   uint16      `json:"port"`
	Hint   string      `json:"hint"`
}

func hint(reason task.Reason) string {
	switch reason {
	case task.PolicyDenied:
		return "No rule of this task's policy allows this host and port. Do not retry; ask for a rule if it is needed."
	case task.PolicyAddress:
		return "The host stands for an address that sandboxes never reach. Do not retry."
	case task.PolicyNameMismatch:
		return "The name of the connection, the TLS server name and the Host header must be the same."
	case task.PolicyProtocol:
		return "This protocol does not pass. Use HTTP/1.1, or TLS with a server name."
	case task.EgressUnresolved:
		return "The host is allowed, but its name has no address."
	case task.EgressUnreachable:
		return "The host is allowed, but it does not answer."
	}
	return "The connection was refused."
}

// deny records a refusal and answers it.
func (c *connection) deny(r *netstack.Request, reason task.Reason, address string) {
	c.denied(reason, address)
	c.answer(r, reason)
}

// fail ends an allowed connection that could not be made. addresses are what
// the guard refused.
func (c *connection) fail(r *netstack.Request, reason task.Reason, addresses []netip.Addr) {
	if reason == task.PolicyAddress {
		c.deny(r, reason, addresses[0].String())
		return
	}
	if !c.recorded {
		rec := c.record()
		rec.Verdict = task.Allowed.String()
		c.recorded = c.way.records.Append(rec) == nil
	}
	c.mismatch(reason)
	if c.to.Port() == 443 {
		r.Refuse()
		return
	}
	c.answer(r, reason)
}

// answer refuses readably where a protocol for it is known, else with a reset.
func (c *connection) answer(r *netstack.Request, reason task.Reason) {
	port := c.to.Port()
	if port != 80 && port != 443 {
		r.Refuse()
		return
	}
	inner, err := r.Accept(false)
	if err != nil || !c.hold(inner, nil) {
		return
	}
	if port == 443 {
		c.refuseTLS(inner, reason)
		return
	}
	c.refuseHTTP(inner, reason)
}

// refuseOpening ends an allowed connection whose first bytes must not pass.
func (c *connection) refuseOpening(inner *netstack.Conn, opening []byte, early *greeting, reason task.Reason) {
	c.mismatch(reason)
	quiet := early.quiet()
	c.upstream.Close() // nothing was sent to it
	conn := &prefixed{Conn: inner, prefix: opening}
	switch {
	case !quiet:
		inner.Abort()
	case len(opening) > 0 && opening[0] == 22 && reason == task.PolicyNameMismatch:
		c.refuseTLS(conn, reason)
	case c.to.Port() == 80:
		c.refuseHTTP(conn, reason)
	default:
		inner.Abort()
	}
}

// target is what the program inside asked for.
func (c *connection) target() string {
	if c.name != "" {
		return c.name
	}
	return c.address
}

func (c *connection) refuseTLS(conn net.Conn, reason task.Reason) {
	conn.SetDeadline(time.Now().Add(refusalWait))
	server := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			name := c.target()
			if sni, ok := names.Canonical(h.ServerName); ok {
				c.saw("tls", sni, "")
				name = sni
			}
			return c.way.authority.Leaf(name, time.Now())
		},
	})
	if err := server.Handshake(); err != nil {
		conn.Close()
		return
	}
	c.refuseHTTP(server, reason)
}

// refuseHTTP answers one request, whatever it is, and closes.
func (c *connection) refuseHTTP(conn net.Conn, reason task.Reason) {
	conn.SetDeadline(time.Now().Add(refusalWait))
	serveOne(c.ctx, conn, refusalWait, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.writeProblem(w, reason)
	}))
}

func (c *connection) writeProblem(w http.ResponseWriter, reason task.Reason) {
	status, title := http.StatusForbidden, "refused by policy"
	if reason.Class() == "egress" {
		status, title = http.StatusBadGateway, "not reachable"
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Connection", "close")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem{Title: title, Status: status, Code: reason, Host: c.target(), Port: c.to.Port(), Hint: hint(reason)})
}

// serveOne serves HTTP on one connection until it is closed.
func serveOne(ctx context.Context, conn net.Conn, header time.Duration, h http.Handler) {
	l := &single{conn: make(chan net.Conn, 1), closed: make(chan struct{}), addr: conn.LocalAddr()}
	l.conn <- &noticed{Conn: conn, listener: l}
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: header, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: headerMax,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	_ = server.Serve(l)
}

// single is a listener of one connection: it gives it out and then waits for
// its end.
type single struct {
	conn   chan net.Conn
	once   sync.Once
	closed chan struct{}
	addr   net.Addr
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	default:
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close does nothing: the connection's end is what ends the listener.
func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return l.addr }

// noticed tells the listener when its connection is closed.
type noticed struct {
	net.Conn
	listener *single
}

func (n *noticed) Close() error {
	err := n.Conn.Close()
	n.listener.once.Do(func() { close(n.listener.closed) })
	return err
}

// CloseWrite lets the server end a response that has no length before it has
// read the whole request.
func (n *noticed) CloseWrite() error {
	if h, ok := n.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
