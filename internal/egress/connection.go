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

	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	lookupWait = 5 * time.Second
	dialWait   = 10 * time.Second // for all addresses of a name together
	dialMost   = 4                // addresses of a name that are tried
)

// connection is one connection of a sandbox, from being asked for to its end.
type connection struct {
	way      *way
	id       int64
	to       netip.AddrPort
	name     string // asked for by name, or
	address  string // by literal address
	grant    task.Grant
	decision task.Decision
	grow     bool
	ctx      context.Context
	cancel   context.CancelFunc

	dialled  netip.AddrPort // the checked address that was dialled
	recorded bool           // the decision is in the log, so its end belongs there too
	in, out  atomic.Int64

	mu       sync.Mutex
	done     chan struct{} // made by finished, closed when the last record is written
	ended    bool
	gone     bool // cut: whatever opens now is closed at once
	inner    *netstack.Conn
	upstream *counted
	protocol string
	sni      string
	host     string
	reason   task.Reason // why it was refused after it was allowed
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
	c.id = w.records.Conn()
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
	case c.decision.Verdict != task.Allowed:
		c.deny(r, c.decision.Reason, "")
		return
	case c.to.Port() == 53:
		// DNS is answered by the gateway only, whatever a rule says: a name
		// server outside would carry bytes out in names.
		c.protocol = "dns"
		c.deny(r, task.PolicyProtocol, "")
		return
	case c.name != "" && guard.MetadataName(c.name):
		c.deny(r, task.PolicyAddress, "")
		return
	}
	addresses, reason := c.outside()
	if reason != task.ReasonNone {
		c.fail(r, reason, addresses)
		return
	}
	if err := c.dialAny(addresses); err != nil {
		if errors.Is(err, errRecord) {
			c.way.log.Error("decision log", "error", err)
			r.Refuse()
			return
		}
		c.way.log.Debug("dial", "conn", c.id, "error", err)
		c.fail(r, task.EgressUnreachable, nil)
		return
	}
	inner, err := r.Accept(c.grow)
	if err != nil || !c.hold(inner, nil) {
		return
	}
	c.carry(inner)
}

// outside gives the addresses that may be dialled.
func (c *connection) outside() ([]netip.Addr, task.Reason) {
	found := []netip.Addr{c.to.Addr().Unmap()}
	if c.name != "" {
		ctx, cancel := context.WithTimeout(c.ctx, lookupWait)
		defer cancel()
		var err error
		if found, err = c.way.gateway.options.Resolver.Lookup(ctx, c.name); err != nil || len(found) == 0 {
			c.way.log.Debug("look-up", "conn", c.id, "name", c.name, "error", err)
			return nil, task.EgressUnresolved
		}
	}
	return c.checked(found)
}

// checked keeps the addresses that the guard lets this decision reach. One that
// is never reachable refuses the whole name: it has no business beside others.
func (c *connection) checked(found []netip.Addr) ([]netip.Addr, task.Reason) {
	var out []netip.Addr
	var refused []netip.Addr
	for _, a := range found {
		a = a.Unmap()
		switch c.way.gateway.options.Guard.Judge(a, c.to.Port()) {
		case guard.Public:
			out = append(out, a)
		case guard.Private:
			if c.decision.Private {
				out = append(out, a)
			} else {
				refused = append(refused, a)
			}
		default:
			return []netip.Addr{a}, task.PolicyAddress
		}
	}
	if len(out) == 0 {
		return refused, task.PolicyAddress
	}
	return out[:min(len(out), dialMost)], task.ReasonNone
}

var errRecord = errors.New("decision not recorded")

// dialAny tries the checked addresses in order. Each is recorded before it is
// dialled.
func (c *connection) dialAny(addresses []netip.Addr) error {
	ctx, cancel := context.WithTimeout(c.ctx, dialWait)
	defer cancel()
	err := errors.New("no address")
	for i, a := range addresses {
		each, cancel := context.WithTimeout(ctx, dialWait/time.Duration(len(addresses)-i))
		err = c.dial(each, netip.AddrPortFrom(a, c.to.Port()))
		cancel()
		if err == nil || errors.Is(err, errRecord) || c.ctx.Err() != nil {
			return err
		}
	}
	return err
}

// dial records and dials one checked address and keeps the connection.
func (c *connection) dial(ctx context.Context, to netip.AddrPort) error {
	rec := c.record()
	rec.Verdict, rec.Address = task.Allowed.String(), to.Addr().String()
	if err := c.way.records.Append(rec); err != nil {
		return errors.Join(errRecord, err)
	}
	c.recorded, c.dialled = true, to
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}}
	// The address is a literal one: nothing is looked up here.
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return err
	}
	upstream := &counted{Conn: conn, tcp: conn.(*net.TCPConn), in: &c.in, out: &c.out}
	if !c.hold(nil, upstream) {
		return net.ErrClosed
	}
	return nil
}

// hold keeps what is to be closed when the connection is cut. It returns false,
// having closed it, when that has happened already.
func (c *connection) hold(inner *netstack.Conn, upstream *counted) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		if inner != nil {
			inner.Abort()
		}
		if upstream != nil {
			upstream.Close()
		}
		return false
	}
	if inner != nil {
		c.inner = inner
	}
	if upstream != nil {
		c.upstream = upstream
	}
	return true
}

// cut ends the connection now, on both sides.
func (c *connection) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	c.cancel()
	if c.upstream != nil {
		c.upstream.Close()
	}
	if c.inner != nil {
		c.inner.Abort()
	}
}

// release ends the connection gently: what was sent to the client still
// arrives.
func (c *connection) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return
	}
	c.gone = true
	c.cancel()
	if c.upstream != nil {
		c.upstream.Close()
	}
	if c.inner != nil {
		c.inner.Close()
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

// counted counts the bytes that cross the machine's own network. It hides the
// methods of the TCP connection that would move bytes past the count.
type counted struct {
	net.Conn
	tcp     *net.TCPConn
	in, out *atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.Add(int64(n))
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.out.Add(int64(n))
	return n, err
}

func (c *counted) CloseWrite() error { return c.tcp.CloseWrite() }
