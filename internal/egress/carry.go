package egress

import (
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/splice"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	openingWait = 20 * time.Second // for a client's first bytes to be complete
	freeWait    = time.Second      // the same, when they need not be HTTP or TLS
	openingMax  = 2*splice.HelloMax + 32<<10
)

// carry moves the bytes of an allowed connection once its opening is checked.
// Where any bytes may pass the server may speak first.
func (c *connection) carry(inner *netstack.Conn) {
	port := c.to.Port()
	// Without a rule that says so, ports 80 and 443 carry nothing but HTTP and TLS.
	free := !c.decision.Inspect && c.speaks(task.ProtocolTCP) && (len(c.decision.Protocols) > 0 || port != 80 && port != 443)
	var early *greeting
	if free {
		early = c.greet(inner)
	}
	data, opening := c.open(inner, !free)
	c.pass(inner, data, opening, free, early)
}

// pass moves the bytes of an allowed connection whose opening was read.
func (c *connection) pass(inner *netstack.Conn, data []byte, opening splice.Opening, free bool, early *greeting) {
	switch opening.Kind {
	case splice.HTTP:
		if !c.speaks(task.ProtocolHTTP) && !c.speaks(task.ProtocolTCP) {
			c.refuseOpening(inner, data, early, opening.Kind, task.PolicyProtocol)
			return
		}
		if early.quiet() {
			c.servePlain(&prefixed{Conn: inner, prefix: data})
			return
		}
	case splice.TLS:
		c.saw("tls", opening.SNI, "")
		switch {
		case !c.agrees(opening.SNI):
			c.refuseOpening(inner, data, early, opening.Kind, task.PolicyNameMismatch)
			return
		case c.decision.Inspect:
			c.intercept(&prefixed{Conn: inner, prefix: data})
			return
		case !c.speaks(task.ProtocolTLS) && !c.speaks(task.ProtocolTCP):
			c.refuseOpening(inner, data, early, opening.Kind, task.PolicyProtocol)
			return
		}
	case splice.Refusing:
		c.way.log.Debug("opening", "conn", c.id, "why", opening.Why)
		if early.quiet() {
			c.refuseOpening(inner, data, nil, opening.Kind, task.PolicyProtocol)
			return
		}
	case splice.Other:
		if !free {
			c.refuseOpening(inner, data, early, opening.Kind, task.PolicyProtocol)
			return
		}
	default: // the client ended or fell silent
		if !free || len(data) > 0 && early.quiet() {
			return
		}
	}
	c.spliceAll(inner, data, early)
}

// speaks says whether the rules allow a protocol.
func (c *connection) speaks(protocol string) bool {
	return len(c.decision.Protocols) == 0 || slices.Contains(c.decision.Protocols, protocol)
}

// agrees says whether the name in a ClientHello is the one that was allowed. A
// literal address has no name, so a name in it stands for something else.
func (c *connection) agrees(sni string) bool {
	return sni == c.name && (c.name != "" || c.address != "")
}

// open reads the client's first bytes until it is clear what they are.
func (c *connection) open(inner *netstack.Conn, hurry bool) ([]byte, splice.Opening) {
	defer func() { _ = inner.SetReadDeadline(time.Time{}) }()
	if hurry {
		_ = inner.SetReadDeadline(time.Now().Add(openingWait))
	}
	var data []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := inner.Read(buf)
		if n > 0 {
			if len(data) == 0 {
				_ = inner.SetReadDeadline(time.Now().Add(openingWait))
			}
			data = append(data, buf[:n]...)
			if !hurry && splice.Free(data) {
				_ = inner.SetReadDeadline(time.Now().Add(freeWait))
			}
		}
		o := splice.Look(data)
		if o.Kind != splice.Unknown {
			return data, o
		}
		if err != nil {
			if !hurry && splice.Free(data) {
				return data, splice.Opening{Kind: splice.Other}
			}
			return data, splice.Opening{}
		}
		if len(data) > openingMax {
			return data, splice.Opening{Kind: splice.Refusing, Why: "too long"}
		}
	}
}

// greeting is the server's side of a connection whose opening is not known
// yet: what the server sends reaches the client at once.
type greeting struct {
	upstream *outbound.Counted
	mu       sync.Mutex
	spoke    bool // the server sent something, so it is not HTTP or TLS
	stopped  bool
	done     chan struct{}
}

// greet starts moving what the server sends.
func (c *connection) greet(inner *netstack.Conn) *greeting {
	g := &greeting{upstream: c.upstream, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		if err := c.way.gateway.pump.Copy(inner, g); err != nil && !g.isStopped() {
			c.cut()
		}
	}()
	return g
}

// Read reads from the server until quiet stops it.
func (g *greeting) Read(b []byte) (int, error) {
	n, err := g.upstream.Read(b)
	g.mu.Lock()
	defer g.mu.Unlock()
	if n > 0 {
		if g.stopped {
			// Too late to hand it to the other reader: give up on the connection.
			return 0, io.ErrUnexpectedEOF
		}
		g.spoke = true
	}
	return n, err
}

func (g *greeting) isStopped() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.stopped
}

// quiet stops moving and says whether the server had said nothing. If it had,
// nothing is stopped. A nil greeting is quiet.
func (g *greeting) quiet() bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	if g.spoke {
		g.mu.Unlock()
		return false
	}
	g.stopped = true
	g.mu.Unlock()
	g.upstream.SetReadDeadline(time.Unix(1, 0))
	<-g.done
	g.upstream.SetReadDeadline(time.Time{})
	return true
}

// spliceAll sends the checked opening on and moves bytes both ways until both
// sides have ended or one has failed.
func (c *connection) spliceAll(inner *netstack.Conn, opening []byte, early *greeting) {
	pump := &c.way.gateway.pump
	down := make(chan struct{})
	if early != nil {
		down = early.done
	} else {
		go func() {
			defer close(down)
			if err := pump.Copy(inner, c.upstream); err != nil {
				c.cut()
			}
		}()
	}
	if err := pump.Copy(c.upstream, &prefixed{Conn: inner, prefix: opening}); err != nil {
		c.cut()
	}
	<-down
}

// prefixed gives bytes that were read already before the rest.
type prefixed struct {
	*netstack.Conn
	prefix []byte
}

func (p *prefixed) Read(b []byte) (int, error) {
	if len(p.prefix) > 0 {
		n := copy(b, p.prefix)
		p.prefix = p.prefix[n:]
		return n, nil
	}
	return p.Conn.Read(b)
}

// sameHost says whether a Host header or a URI's authority agrees with what was
// allowed: the name (or literal address) and, when it is given, the port.
func (c *connection) sameHost(authority string) bool {
	host, port := splitAuthority(authority)
	if port != "" {
		n, err := netip.ParseAddrPort("0.0.0.0:" + port)
		if err != nil || n.Port() != c.to.Port() {
			return false
		}
	}
	if c.name != "" {
		return strings.EqualFold(strings.TrimSuffix(host, "."), c.name)
	}
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return err == nil && addr.Zone() == "" && addr.Unmap().String() == c.address
}

// splitAuthority cuts "host:port"; an IPv6 address keeps its brackets.
func splitAuthority(s string) (host, port string) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 || strings.HasSuffix(s, "]") {
		return s, ""
	}
	if s[i+1:] == "" {
		return s[:i], "0" // an empty port is not the one that was allowed
	}
	return s[:i], s[i+1:]
}
