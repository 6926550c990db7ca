package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/selftest"
	"github.com/cofferdam/cofferdam/internal/egress/serving"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Prove tries every lease of the sandbox's grant without dialling anything. The
// error is a *task.Failure that says which one failed and why.
func (g *Gateway) Prove(ctx context.Context, sandbox string) error {
	w := g.way(sandbox)
	if w == nil {
		return fmt.Errorf("sandbox %q: %w", sandbox, errNotAttached)
	}
	w.mu.Lock()
	grant := w.grant
	w.mu.Unlock()
	err := selftest.Run(ctx, grant, selftest.Options{Lender: g.options.Lender, Trusted: w.authority.PEM(), Serve: w.serveTrial})
	if err != nil {
		w.log.Error("self-test", "task", grant.Task, "stage", grant.Stage, "error", err)
	}
	return err
}

// serveTrial serves a connection of a self-test as one of the sandbox's own.
func (w *way) serveTrial(ctx context.Context, grant task.Grant, inside net.Conn, outside outbound.WireOptions) {
	c := newConnection(w, netip.AddrPortFrom(netstack.Gateway4(), 443))
	c.id, c.name, c.grant, c.rules = w.records.Conn(), selftest.Host, grant, decide.NewIndex(grant)
	c.decision = c.rules.Decide(c.use())
	c.ctx, c.cancel = context.WithCancel(ctx)
	defer c.cancel()
	notice := serving.Notice(inside)
	server := tls.Server(&targeted{notice, c.name}, w.inside)
	if err := server.HandshakeContext(c.ctx); err != nil {
		_ = server.Close()
		return
	}
	wire := outbound.NewWire(outside)
	defer wire.CloseIdleConnections()
	c.exchanges(wire, url.URL{Scheme: "https", Host: net.JoinHostPort(c.name, "443")}, server, notice, false)
}
