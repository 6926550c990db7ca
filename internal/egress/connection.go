package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// farMost bounds the connections outside that one connection of a sandbox may
// have: requests over HTTP/2 inside may need several of HTTP/1 outside.
const farMost = 16

// connection is one connection of a sandbox, from being asked for to its end.
type connection struct {
	way      *way
	id       int64
	to       netip.AddrPort
	from     uint16 // the port inside
	name     string // asked for by name, or
	address  string // by literal address
	grant    task.Grant
	rules    *decide.Index // of grant
	decision task.Decision
	asks     bool // no rule matches, and the grant says that a person is asked
	single   bool // an answer for one request of plain HTTP allows it
	grow     bool
	ctx      context.Context
	cancel   context.CancelFunc

	slots    chan struct{} // one for each connection outside
	recorded bool          // the decision is in the log, so its end belongs there too
	in, out  atomic.Int64

	mu       sync.Mutex
	done     chan struct{} // made by finished, closed when the last record is written
	ended    bool
	gone     bool // cut: whatever opens now is closed at once
	inner    *netstack.Conn
	upstream *outbound.Counted // the first one
	far      map[*outbound.Counted]struct{}
	dialled  netip.AddrPort // the checked address that was dialled
	protocol string
	sni      string
	host     string
	lease    string      // that the connection itself was lent
	reason   task.Reason // why it was refused after it was allowed
}

func newConnection(w *way, to netip.AddrPort) *connection {
	return &connection{way: w, to: to, protocol: "tcp", slots: make(chan struct{}, farMost), far: make(map[*outbound.Counted]struct{})}
}

// connect takes a connection that the sandbox asks for through to its end.
func (w *way) connect(r *netstack.Request) {
	to := r.To()
	if to.Port() == 53 && (to.Addr() == netstack.Gateway4() || to.Addr() == netstack.Gateway6()) {
		w.serveNamesTCP(r)
		return
	}
	var c *connection
	if w.opening.take() {
		c = w.begin(to)
	}
	if c == nil {
		r.Refuse()
		rec := w.base()
		rec.Protocol, rec.Port, rec.Address = "tcp", to.Port(), to.Addr().String()
		rec.Verdict, rec.Reason = task.Denied.String(), task.LimitConnections
		w.records.Tally(rec)
		return
	}
	c.id, c.from = w.records.Conn(), r.From().Port()
	defer w.end(c)
	defer c.finish()
	defer func() {
		// A fault of ours in one connection must not cut the others.
		if p := recover(); p != nil {
			w.log.Error("connection: panic", "conn", c.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	c.run(r)
}

func (c *connection) run(r *netstack.Request) {
	switch {
	case task.IsReserved(c.name):
		c.reserved(r)
		return
	case c.asks && c.to.Port() != 53:
		c.holdFor(r)
		return
	case c.decision.Verdict != task.Allowed:
		c.deny(r, c.decision.Reason, "")
		return
	case c.to.Port() == 53:
		// DNS is answered by the gateway only, whatever a rule says: a name
		// server outside would carry bytes out in names.
		c.protocol = "dns"
		c.deny(r, task.PolicyProtocol, "")
		return
	case c.logsIn():
		c.logIn(r)
		return
	}
	addresses, unreached := c.way.gateway.reach().Addresses(c.ctx, c.use(), c.decision.Private)
	if unreached != nil {
		c.way.log.Debug("look-up", "conn", c.id, "name", c.name, "error", unreached)
		c.fail(r, unreached.Reason, unreached.Address)
		return
	}
	if _, err := c.dial(c.ctx, addresses); err != nil {
		if errors.Is(err, outbound.ErrRecord) {
			c.way.log.Error("decision log", "error", err)
			r.Refuse()
			return
		}
		c.way.log.Debug("dial", "conn", c.id, "error", err)
		c.fail(r, task.EgressUnreachable, "")
		return
	}
	inner, err := r.Accept(c.grow)
	if err != nil || !c.hold(inner) {
		return
	}
	c.carry(inner)
}

// use is what was asked for, as policy reads it.
func (c *connection) use() decide.Use {
	return decide.Use{Name: c.name, Address: c.address, Port: c.to.Port(), At: time.Now()}
}

// dial tries the checked addresses, records each before, and keeps the
// connection that came about until it is closed.
func (c *connection) dial(ctx context.Context, addresses []netip.Addr) (*outbound.Counted, error) {
	select {
	case c.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	conn, to, err := c.way.gateway.dial(ctx, addresses, c.to.Port(), func(to netip.AddrPort) error {
		rec := c.record()
		rec.Verdict, rec.Address, rec.Inside = task.Allowed.String(), to.Addr().String(), c.from
		if err := c.way.records.Append(rec); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.recorded, c.dialled = true, to
		return nil
	})
	if err != nil {
		<-c.slots
		return nil, err
	}
	var far *outbound.Counted
	far = outbound.NewCounted(conn, &c.in, &c.out, func() {
		<-c.slots
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.far, far)
	})
	if !c.holdFar(far, to) {
		return nil, errors.Join(net.ErrClosed, far.Close())
	}
	return far, nil
}

// holdFar keeps a connection outside, to be closed when this one is cut.
func (c *connection) holdFar(far *outbound.Counted, to netip.AddrPort) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return false
	}
	if c.upstream == nil {
		c.upstream = far
	}
	c.far[far], c.dialled = struct{}{}, to
	return true
}

// hold keeps the side inside, to be closed when the connection is cut. It
// returns false, having ended it, when that has happened already.
func (c *connection) hold(inner *netstack.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		inner.Abort()
		return false
	}
	c.inner = inner
	return true
}

// leave marks the connection as gone and gives what is to be closed; false when
// that has happened already.
func (c *connection) leave() (inner *netstack.Conn, far []*outbound.Counted, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first = !c.gone
	c.gone = true
	c.cancel()
	for f := range c.far {
		far = append(far, f)
	}
	return c.inner, far, first
}

// cut ends the connection now, on both sides.
func (c *connection) cut() {
	inner, far, _ := c.leave()
	for _, f := range far {
		f.Close()
	}
	if inner != nil {
		inner.Abort()
	}
}

// release ends the connection gently: what was sent to the client still
// arrives.
func (c *connection) release() {
	inner, far, first := c.leave()
	if !first {
		return
	}
	for _, f := range far {
		f.Close()
	}
	if inner != nil {
		inner.Close()
	}
}

// finished is closed when the connection's last record is written.
func (c *connection) finished() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.ended {
			close(c.done)
		}
	}
	return c.done
}
