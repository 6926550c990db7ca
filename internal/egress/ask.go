package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/splice"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Asker asks a person, through the control plane.
type Asker interface {
	// Ask waits for what becomes of a held connection, until ctx ends. Errors are
	// *task.Failure: task.InfraControlAway when nobody could be asked.
	Ask(ctx context.Context, h task.Held) (task.HeldAnswer, error)
}

const (
	heldMost = 16        // connections of a sandbox that wait for an answer at one time
	heldRead = 128 << 10 // bytes that are read of a client meanwhile
	askGrace = 45 * time.Second
)

// unknown says what becomes of a connection that no rule matches. In log-only
// mode it passes under a rule of its own. The way's lock is held.
func (c *connection) unknown() {
	if c.decision.Verdict == task.Allowed {
		return
	}
	switch c.grant.Unknown.Mode {
	case task.UnknownAsk:
		c.asks = c.way.gateway.options.Asker != nil
	case task.UnknownLog:
		if rule, ok := decide.Passing(c.grant.Unknown, c.use(), ""); ok {
			rule.ID, rule.Layer = task.RuleLogOnly, task.LayerOperator
			c.allowBy(rule)
		}
	case task.UnknownDeny:
	}
}

// allowBy lets the connection pass under one rule, which stands for nothing
// else. What was lent stays known, so that no placeholder goes out elsewhere.
func (c *connection) allowBy(rule task.Rule) {
	c.grant.Rules = []task.Rule{rule}
	c.rules = decide.NewIndex(c.grant)
	c.decision = c.rules.Decide(c.use())
}

// holdFor reads what the client opens with, asks, and goes on as the answer
// says. Nothing is looked up or dialled before.
func (c *connection) holdFor(r *netstack.Request) {
	if reason := c.unaskable(); reason != task.ReasonNone {
		c.deny(r, reason, "")
		return
	}
	if !c.way.takeHeld() {
		c.deny(r, task.LimitRequests, "")
		return
	}
	defer c.way.letHeld()
	inner, err := r.Accept(c.grow)
	if err != nil || !c.hold(inner) {
		return
	}
	h := &held{connection: c, inner: inner}
	if h.reason = h.look(); h.reason != task.ReasonNone {
		h.refuse()
		return
	}
	if h.opening.Kind == splice.Unknown && h.ask.Seen == "" {
		return // the client ended or fell silent
	}
	answer, err := h.wait()
	switch {
	case errors.Is(err, errGone):
		c.denied(task.ApprovalExpired, "")
		return
	case err != nil:
		c.way.log.Warn("a connection that waits for an answer", "conn", c.id, "error", err)
		h.reason = task.InfraControlAway
	case !answer.Allow:
		h.reason = answer.Reason
		if h.reason == task.ReasonNone {
			h.reason = task.ApprovalDenied
		}
	default:
		h.reason = h.adopt(answer)
	}
	if h.reason != task.ReasonNone {
		h.refuse()
		return
	}
	h.carry()
}

// unaskable says why the connection is refused whatever a person would say.
func (c *connection) unaskable() task.Reason {
	if addr, err := netip.ParseAddr(c.address); err == nil && c.way.gateway.options.Guard.Judge(addr, c.to.Port()) != guard.Public {
		return task.PolicyAddress
	}
	if c.name != "" && guard.MetadataName(c.name) {
		return task.PolicyAddress
	}
	for _, seen := range []string{task.ProtocolTLS, task.ProtocolHTTP, task.ProtocolTCP} {
		if _, ok := decide.Passing(c.grant.Unknown, c.use(), seen); ok {
			return task.ReasonNone
		}
	}
	return task.PolicyDenied
}

// takeHeld takes one of the places of connections that wait.
func (w *way) takeHeld() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.asking >= heldMost {
		return false
	}
	w.asking++
	return true
}

func (w *way) letHeld() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking--
}

// held is a connection that waits for an answer.
type held struct {
	*connection
	inner   *netstack.Conn
	data    []byte // that the client sent
	opening splice.Opening
	ask     task.EgressAsk
	rule    task.Rule   // that an answer would let it pass under
	reason  task.Reason // why it is refused
}

// look reads the client's opening and says what is to be asked. A reason means
// that nobody is asked.
func (h *held) look() task.Reason {
	c := h.connection
	port := c.to.Port()
	strict := port == 80 || port == 443
	if !strict {
		// Who says nothing may wait for the server to speak first.
		_ = h.inner.SetReadDeadline(time.Now().Add(freeWait))
	}
	h.data, h.opening = c.open(h.inner, strict)
	h.ask = task.EgressAsk{Name: c.name, Address: c.address, Port: port}
	switch h.opening.Kind {
	case splice.TLS:
		c.saw("tls", h.opening.SNI, "")
		if !c.agrees(h.opening.SNI) {
			return task.PolicyNameMismatch
		}
		h.ask.Seen = task.ProtocolTLS
	case splice.HTTP:
		c.saw("http", "", "")
		h.ask.Seen = task.ProtocolHTTP
		method, path, ok := requestLine(h.data)
		if !ok {
			return task.PolicyProtocol
		}
		h.ask.Method, h.ask.Path = method, path
	case splice.Other:
		if strict {
			return task.PolicyProtocol
		}
		h.ask.Seen = task.ProtocolTCP
	case splice.Refusing:
		return task.PolicyProtocol
	default:
		if strict || len(h.data) > 0 {
			return task.ReasonNone
		}
		h.ask.Seen = task.ProtocolTCP
	}
	rule, ok := decide.Passing(c.grant.Unknown, c.use(), h.ask.Seen)
	if !ok {
		return task.PolicyDenied
	}
	h.rule, h.ask.Protocol = rule, rule.Protocol
	return task.ReasonNone
}

// requestLine reads the method and the path of a request of HTTP/1, as they
// would be decided; false for what never passes.
func requestLine(data []byte) (method, path string, ok bool) {
	line, _, _ := bytes.Cut(bytes.TrimLeft(data, "\r\n"), []byte("\n"))
	parts := strings.Fields(string(line))
	if len(parts) != 3 || parts[0] == http.MethodConnect || len(parts[0]) > 32 || len(parts[1]) > 4096 || !printable(parts[1]) {
		return "", "", false
	}
	u, err := url.ParseRequestURI(parts[1])
	if err != nil || u.Opaque != "" || u.User != nil || parts[1] == "*" {
		return "", "", false
	}
	return parts[0], outbound.SentPath(u), true
}

// errGone says that the client gave up.
var errGone = errors.New("the client is gone")

// wait asks, and reads on meanwhile, to notice when the client gives up.
func (h *held) wait() (task.HeldAnswer, error) {
	ctx, cancel := context.WithTimeoutCause(h.ctx, h.grant.Unknown.Wait+askGrace, context.DeadlineExceeded)
	defer cancel()
	read, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		if h.readOn() {
			close(gone)
			cancel()
		}
	}()
	answer, err := h.way.gateway.options.Asker.Ask(ctx, task.Held{
		Sandbox: h.way.id, Use: fmt.Sprintf("%s/%s/%d", h.way.id, h.way.started, h.id), EgressAsk: h.ask,
	})
	_ = h.inner.SetReadDeadline(time.Unix(1, 0))
	<-read
	_ = h.inner.SetReadDeadline(time.Time{})
	select {
	case <-gone:
		return task.HeldAnswer{}, errGone
	default:
	}
	if h.ctx.Err() != nil {
		return task.HeldAnswer{}, errGone // cut
	}
	return answer, err
}

// readOn keeps what the client sends while it waits, as far as there is room,
// and says whether it is gone. A client that ends its side alone may still wait
// for an answer, but one of TLS has not begun by then.
func (h *held) readOn() bool {
	buf := make([]byte, 16<<10)
	for len(h.data) < heldRead {
		n, err := h.inner.Read(buf[:min(len(buf), heldRead-len(h.data))])
		h.data = append(h.data, buf[:n]...)
		var timeout net.Error
		switch {
		case err == nil:
		case errors.As(err, &timeout) && timeout.Timeout(): // there is an answer
			return false
		case errors.Is(err, io.EOF):
			return h.opening.Kind == splice.TLS
		default:
			return true
		}
	}
	return false
}

// adopt lets the connection pass under the rule that the answer stands for. A
// decision that was taken back meanwhile allows nothing.
func (h *held) adopt(answer task.HeldAnswer) task.Reason {
	c, w := h.connection, h.way
	rule := h.rule
	rule.ID, rule.Layer = task.RuleAsked+answer.ID, task.LayerPerson
	if answer.Once && h.ask.Seen == task.ProtocolHTTP {
		rule.Methods, rule.Paths = []string{h.ask.Method}, []string{h.ask.Path}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if answer.ID == "" || slices.Contains(w.grant.Withdrawn, rule.ID) {
		return task.ApprovalDenied
	}
	c.allowBy(rule)
	c.single = len(rule.Methods) > 0
	if c.decision.Verdict != task.Allowed {
		return task.PolicyDenied
	}
	return task.ReasonNone
}

// carry looks up, dials and passes on, as for any allowed connection.
func (h *held) carry() {
	c := h.connection
	addresses, unreached := c.way.gateway.reach().Addresses(c.ctx, c.use(), false)
	if unreached != nil {
		c.way.log.Debug("look-up", "conn", c.id, "name", c.name, "error", unreached)
		h.fail(unreached.Reason, unreached.Address)
		return
	}
	if _, err := c.dial(c.ctx, addresses); err != nil {
		c.way.log.Debug("dial", "conn", c.id, "error", err)
		if errors.Is(err, outbound.ErrRecord) {
			h.inner.Abort()
			return
		}
		h.fail(task.EgressUnreachable, "")
		return
	}
	c.pass(h.inner, h.data, h.opening, h.ask.Protocol == task.ProtocolTCP, nil)
}

// fail ends a connection that was allowed and could not be made.
func (h *held) fail(reason task.Reason, address string) {
	c := h.connection
	if reason == task.PolicyAddress {
		c.denied(reason, address)
	} else {
		if !c.recorded {
			rec := c.record()
			rec.Verdict = task.Allowed.String()
			c.recorded = c.way.records.Append(rec) == nil
		}
		c.mismatch(reason)
	}
	h.answer(reason)
}

// refuse records the refusal and answers it.
func (h *held) refuse() {
	rec := h.record()
	rec.Verdict, rec.Reason = task.Denied.String(), h.reason
	rec.Method, rec.Path = h.ask.Method, h.ask.Path[:min(len(h.ask.Path), 1024)]
	h.way.records.Deny(rec)
	h.answer(h.reason)
}

// answer refuses readably where the client speaks what it can be told in.
func (h *held) answer(reason task.Reason) {
	conn := &prefixed{Conn: h.inner, prefix: h.data}
	switch {
	case h.opening.Kind == splice.TLS:
		h.refuseTLS(conn, reason)
	case h.opening.Kind == splice.HTTP, h.to.Port() == 80:
		h.refuseHTTP(conn, reason)
	default:
		h.inner.Abort()
	}
}

// sameButAnswers says whether two grants differ by nothing but what persons
// answered.
func sameButAnswers(a, b task.Grant) bool {
	if a.Unknown.Mode != task.UnknownAsk {
		return false
	}
	for _, g := range []*task.Grant{&a, &b} {
		g.Withdrawn = nil
		g.Rules = slices.DeleteFunc(slices.Clone(g.Rules), func(r task.Rule) bool { return strings.HasPrefix(r.ID, task.RuleAsked) })
		if len(g.Rules) == 0 {
			g.Rules = nil
		}
	}
	return reflect.DeepEqual(a, b)
}

// takenBack are the rules of answers that the second grant does not have any
// more.
func takenBack(a, b task.Grant) []string {
	gone := slices.Clone(b.Withdrawn)
	for _, r := range a.Rules {
		if strings.HasPrefix(r.ID, task.RuleAsked) && !slices.ContainsFunc(b.Rules, func(o task.Rule) bool { return o.ID == r.ID }) {
			gone = append(gone, r.ID)
		}
	}
	return gone
}

// cutUnder ends the connections that pass under one of the rules. The lock is
// held.
func (w *way) cutUnder(rules []string) []*connection {
	return w.cutWhere(func(c *connection) bool { return slices.Contains(rules, c.decision.Rule) })
}
