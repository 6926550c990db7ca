package egress

import (
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/splice"
	"github.com/cofferdam/cofferdam/internal/task"
)

// desk answers one request to a name of ours. Whatever it answers it has put on
// record.
type desk func(x *exchanges, w http.ResponseWriter, r *http.Request, n int64)

// desks are the names of the reserved zone that are answered, on port 443.
func desks() map[string]desk {
	return map[string]desk{task.TokenHost: runToken}
}

// reserved takes a connection to a name of ours to its end. It is never dialled,
// and no rule has a say in it.
func (c *connection) reserved(r *netstack.Request) {
	c.decision, c.asks = task.Decision{Inspect: true}, false
	answer, ok := desks()[c.name]
	if !ok || c.to.Port() != 443 {
		c.deny(r, task.PolicyDenied, "")
		return
	}
	inner, err := r.Accept(false)
	if err != nil || !c.hold(inner) {
		return
	}
	data, opening := c.open(inner, true)
	conn := &prefixed{Conn: inner, prefix: data}
	switch {
	case opening.Kind != splice.TLS:
		c.denied(task.PolicyProtocol, "")
		inner.Abort()
		return
	case !c.agrees(opening.SNI):
		c.saw("tls", opening.SNI, "")
		c.denied(task.PolicyNameMismatch, "")
		c.refuseTLS(conn, task.PolicyNameMismatch)
		return
	}
	notice, server, err := c.endTLS(conn)
	if err != nil {
		return
	}
	x := &exchanges{
		connection: c, far: url.URL{Scheme: "https", Host: net.JoinHostPort(c.name, "443")}, h2: server.ConnectionState().NegotiatedProtocol == "h2",
		gate: outbound.Gate{Grant: c.grant, Use: c.use(), Inspect: true, Secure: true},
	}
	c.serveExchanges(x, own{x, answer}, server, notice)
}

// own has the requests of a connection to a name of ours answered here.
type own struct {
	*exchanges
	answer desk
}

// ServeHTTP answers one request.
func (o own) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.running.Add(1)
	defer o.running.Done()
	if o.screen != nil {
		defer o.screen.Answered()
	}
	n := o.count.Add(1)
	if reason := o.misshapen(r, n); reason != task.ReasonNone {
		o.deny(w, r, n, task.Decision{Reason: reason}, true)
		return
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(requestWait))
	o.answer(o.exchanges, w, r, n)
}
