package egress

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/serving"
	"github.com/cofferdam/cofferdam/internal/egress/strict"
)

// targeted is a connection that knows what it was allowed for.
type targeted struct {
	*serving.Noticed
	target string
}

// insideTLS is how TLS ends here: under the sandbox's authority, for the name
// that the connection was allowed for. The ClientHello's name was compared with
// it before.
func (w *way) insideTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			t, ok := h.Conn.(*targeted)
			if !ok {
				return nil, net.ErrClosed
			}
			return w.authority.Leaf(t.target, time.Now())
		},
	}
}

// intercept ends the client's TLS and serves its requests, each decided by
// itself and sent on over TLS that is verified for the same name.
func (c *connection) intercept(conn *prefixed) {
	notice, server, err := c.endTLS(conn)
	if err != nil {
		return
	}
	wire := outbound.NewWire(outbound.WireOptions{
		Dial: c.redial(), Roots: c.way.gateway.options.Roots, Sessions: c.way.sessions, Name: c.target(), Small: !c.grow,
	})
	defer wire.CloseIdleConnections()
	far := url.URL{Scheme: "https", Host: net.JoinHostPort(c.target(), strconv.Itoa(int(c.to.Port())))}
	c.exchanges(wire, far, server, notice, server.ConnectionState().NegotiatedProtocol == "h2")
}

// endTLS ends the client's TLS here.
func (c *connection) endTLS(conn *prefixed) (*serving.Noticed, *tls.Conn, error) {
	notice := serving.Notice(conn)
	server := tls.Server(&targeted{notice, c.target()}, c.way.inside)
	conn.SetDeadline(time.Now().Add(openingWait))
	if err := server.HandshakeContext(c.ctx); err != nil {
		c.way.log.Debug("handshake inside", "conn", c.id, "error", err)
		server.Close()
		return nil, nil, err
	}
	conn.SetDeadline(time.Time{})
	return notice, server, nil
}

// servePlain serves plain HTTP/1: each request must name the host that the
// connection was allowed for, and goes to the very address that was dialled.
func (c *connection) servePlain(conn *prefixed) {
	wire := outbound.NewWire(outbound.WireOptions{Dial: c.redial(), Plain: true})
	defer wire.CloseIdleConnections()
	c.mu.Lock()
	far := url.URL{Scheme: "http", Host: c.dialled.String()}
	c.mu.Unlock()
	notice := serving.Notice(conn)
	c.exchanges(wire, far, notice, notice, false)
}

// exchanges serves the requests of a connection until it ends and all of them
// have.
func (c *connection) exchanges(wire http.RoundTripper, far url.URL, conn net.Conn, notice *serving.Noticed, h2 bool) {
	x := &exchanges{
		connection: c, wire: wire, far: far, h2: h2,
		gate: outbound.Gate{
			Grant: c.grant, Use: c.use(), Rules: c.rules,
			Inspect: c.decision.Inspect, Secure: far.Scheme == "https", Bodies: c.way.bodies,
		},
	}
	c.serveExchanges(x, x, conn, notice)
}

// serveExchanges has h answer the requests of a connection until it ends.
func (c *connection) serveExchanges(x *exchanges, h http.Handler, conn net.Conn, notice *serving.Noticed) {
	c.mu.Lock()
	c.protocol = "http"
	c.mu.Unlock()
	if !x.h2 {
		x.screen = strict.New(conn)
		if x.far.Scheme == "http" {
			// Over TLS an end of one side alone is no habit of clients, and
			// requests of one that is gone should not go on there.
			x.screen.Patient(halfWait)
		}
		conn = x.screen
	}
	b := serving.BoundsOf(c.grow)
	if !x.h2 {
		b.Header = serving.HeaderMax // there is one request at a time
	}
	serving.One(c.ctx, conn, notice, requestWait, b, h)
	c.cancel()
	x.running.Wait()
}
