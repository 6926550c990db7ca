package egress

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/refusal"
	"github.com/cofferdam/cofferdam/internal/egress/serving"
	"github.com/cofferdam/cofferdam/internal/egress/splice"
	"github.com/cofferdam/cofferdam/internal/task"
)

const refusalWait = 10 * time.Second // for a refused client to send its request and read the answer

// deny records a refusal and answers it.
func (c *connection) deny(r *netstack.Request, reason task.Reason, address string) {
	c.denied(reason, address)
	c.answer(r, reason)
}

// fail ends an allowed connection that could not be made. address is the one
// that the guard refused.
func (c *connection) fail(r *netstack.Request, reason task.Reason, address string) {
	if reason == task.PolicyAddress {
		c.deny(r, reason, address)
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
	switch port {
	case 80, 443:
	case postgresPort:
		c.answerPostgres(r, reason)
		return
	default:
		r.Refuse()
		return
	}
	inner, err := r.Accept(false)
	if err != nil || !c.hold(inner) {
		return
	}
	if port == 443 {
		c.refuseTLS(inner, reason)
		return
	}
	c.refuseHTTP(inner, reason)
}

// refuseOpening ends an allowed connection whose first bytes must not pass.
func (c *connection) refuseOpening(inner *netstack.Conn, opening []byte, early *greeting, kind splice.Kind, reason task.Reason) {
	c.mismatch(reason)
	quiet := early.quiet()
	c.upstream.Close() // nothing was sent to it
	conn := &prefixed{Conn: inner, prefix: opening}
	switch {
	case !quiet:
		inner.Abort()
	case kind == splice.TLS:
		c.refuseTLS(conn, reason)
	case kind == splice.HTTP, c.to.Port() == 80:
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
	notice := serving.Notice(conn)
	server := tls.Server(notice, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"http/1.1"},
		// A refusal is answered to any client, whatever else it would speak.
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
	c.answerHTTP(server, notice, reason)
}

// refuseHTTP answers one request, whatever it is, and closes.
func (c *connection) refuseHTTP(conn net.Conn, reason task.Reason) {
	conn.SetDeadline(time.Now().Add(refusalWait))
	notice := serving.Notice(conn)
	c.answerHTTP(notice, notice, reason)
}

func (c *connection) answerHTTP(conn net.Conn, notice *serving.Noticed, reason task.Reason) {
	serving.One(c.ctx, conn, notice, refusalWait, serving.BoundsOf(false), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		c.writeProblem(w, r, refusal.Problem{Code: reason, Rule: c.decision.Rule})
	}))
}

// writeProblem answers a request with what is known of a refusal.
func (c *connection) writeProblem(w http.ResponseWriter, r *http.Request, p refusal.Problem) {
	p.Host, p.Port = c.target(), c.to.Port()
	p.Answer(w, r)
}
