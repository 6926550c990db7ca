package egress

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/splice"
	"github.com/cofferdam/cofferdam/internal/task"
)

const refusalWait = 10 * time.Second // for a refused client to send its request and read the answer

// problem is what a refused program reads (RFC 9457). It tells the reason and
// what was asked for, and nothing about us.
type problem struct {
	Title  string      `json:"title"`
	Status int         `json:"status"`
	Code   task.Reason `json:"code"`
	Rule   string      `json:"rule,omitempty"`
	Host   string      `json:"host"`
	Port   uint16      `json:"port"`
	Method string      `json:"method,omitempty"`
	Path   string      `json:"path,omitempty"`
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
	case task.PolicyCredential:
		return "A credential is not lent to this request, or something else stands in its place. Send the placeholder only where its tool puts it."
	case task.PolicyModel:
		return "This task may ask other models only, or it can't be told which model this request asks. Do not retry; ask for one that the policy allows, as JSON that is not compressed."
	case task.EgressUntrusted:
		return "The host is allowed, but its certificate is not valid for this name."
	case task.InfraControlAway:
		return "What this needs can't be had now: a credential, or a person's answer. Try again later."
	case task.ApprovalDenied:
		return "A person was asked and said no. Do not retry."
	case task.ApprovalExpired:
		return "A person was asked and did not answer in time."
	case task.LimitRequests:
		return "Too many connections wait for a person's answer. Wait for those first."
	case task.InfraCredential:
		return "Who mints the credential for this request does not answer as it should. Try again later."
	case task.InfraStorage:
		return "The decision can't be recorded now. Try again later."
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
	notice := newNoticed(conn)
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
	notice := newNoticed(conn)
	c.answerHTTP(notice, notice, reason)
}

func (c *connection) answerHTTP(conn net.Conn, notice *noticed, reason task.Reason) {
	serveOne(c.ctx, conn, notice, refusalWait, boundsOf(false), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		c.writeProblem(w, problem{Code: reason, Rule: c.decision.Rule})
	}))
}

// writeProblem answers with what is known of a refusal.
func (c *connection) writeProblem(w http.ResponseWriter, p problem) {
	p.Status, p.Title = http.StatusForbidden, "refused by policy"
	switch p.Code.Class() {
	case "egress":
		p.Status, p.Title = http.StatusBadGateway, "not reachable"
	case "approval":
		p.Title = "not approved"
	case "limit":
		p.Status, p.Title = http.StatusTooManyRequests, "too many"
	case "infra":
		p.Status, p.Title = http.StatusServiceUnavailable, "not possible now"
	}
	p.Host, p.Port, p.Hint = c.target(), c.to.Port(), cmp.Or(p.Hint, hint(p.Code))
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}
