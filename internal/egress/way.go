package egress

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/egress/authority"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/netstack"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/record"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	cutWait = 2 * time.Second // for cut connections to write their last record
	// growing is how many connections of a sandbox may have large buffers at one
	// time; with the buffers of netstack this bounds a sandbox to about 300 MB.
	growing = 32
	// openingRate is how many connections of a sandbox may be asked for a second;
	// ended ones still cost memory for a moment.
	openingRate = 300
	sessionsMax = 64 // of TLS outside that are remembered, a sandbox
	bodiesMax   = 96 << 20
)

// way is what the gateway holds for one sandbox.
type way struct {
	gateway   *Gateway
	id        string
	log       *slog.Logger
	names     *names.Table
	records   *record.Log
	authority *authority.Authority
	device    *os.File // a duplicate, for a worker that lost its own
	stack     *netstack.Stack
	queries   *pace
	most      int                    // connections open at one time
	started   string                 // names this way among those of the sandbox
	opening   *pace                  // of connections
	inside    *tls.Config            // of TLS that ends here
	sessions  tls.ClientSessionCache // of TLS outside
	bodies    *outbound.Bodies       // held while requests are decided
	logins    logins                 // of PostgreSQL
	ctx       context.Context
	cancel    context.CancelFunc

	mu     sync.Mutex
	grant  task.Grant
	rules  *decide.Index // of grant
	conns  map[*connection]struct{}
	asking int         // connections that wait for an answer
	ending *time.Timer // of the rule of grant that ends next; nil: none does
	closed bool
}

// newWay starts the stack. It takes h.Device over.
func newWay(g *Gateway, h Handed, a *authority.Authority) (*way, error) {
	table := names.New(smaller(g.options.Limits.Names, h.MaxNames))
	if err := table.Restore(h.Names); err != nil {
		h.Device.Close()
		return nil, &task.Failure{Reason: task.InputInvalid, Text: "the names handed over contradict each other", Err: err}
	}
	second, err := duplicate(h.Device)
	if err != nil {
		h.Device.Close()
		return nil, err
	}
	records, err := record.Open(g.options.Records, h.Sandbox, g.options.Limits.Log)
	if err != nil {
		h.Device.Close()
		second.Close()
		return nil, &task.Failure{Reason: task.InfraStorage, Text: "the gateway's decision log can't be opened", Err: err}
	}
	w := &way{
		started: rand.Text(),
		most:    smaller(g.options.Limits.Connections, h.MaxConnections),
		bodies:  outbound.NewBodies(bodiesMax),
		gateway: g, id: h.Sandbox, log: g.options.Log.With("sandbox", h.Sandbox), names: table, records: records,
		authority: a, device: second, queries: newPace(g.options.Limits.Queries), opening: newPace(openingRate), grant: h.Grant, rules: decide.NewIndex(h.Grant), conns: make(map[*connection]struct{}),
	}
	w.inside, w.sessions = w.insideTLS(), tls.NewLRUClientSessionCache(sessionsMax)
	w.ctx, w.cancel = context.WithCancel(context.Background())
	ready := make(chan struct{})
	w.stack, err = netstack.New(h.Device, netstack.Options{
		Pending: w.most,
		Connect: func(r *netstack.Request) {
			<-ready
			w.connect(r)
		},
		Refused: w.refusedPacket,
		Ended:   func(err error) { go func() { <-ready; g.broken(w, err) }() },
	})
	if err != nil {
		w.cancel()
		second.Close()
		records.Close()
		return nil, err
	}
	w.mu.Lock()
	w.await()
	w.mu.Unlock()
	close(ready)
	for _, c := range w.stack.Names() {
		go w.nameServer().Packets(w.ctx, c)
	}
	w.stir(h.Names)
	return w, nil
}

// stir ends, inside, what a gateway that was killed left open there.
func (w *way) stir(table []names.Entry) {
	known := map[string]names.Entry{}
	for _, e := range table {
		known[e.Name] = e
	}
	for _, r := range w.records.Left() {
		var to []netip.Addr
		if e, ok := known[r.Name]; ok {
			to = []netip.Addr{e.Address4(), e.Address6()} // by which of them is not on record
		} else if a, err := netip.ParseAddr(r.Address); err == nil {
			to = []netip.Addr{a}
		}
		for _, a := range to {
			if err := w.stack.Stir(r.Inside, netip.AddrPortFrom(a, r.Port)); err != nil {
				w.log.Debug("stir", "conn", r.Conn, "error", err)
			}
		}
	}
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	fd := -1
	var inner error
	if err := raw.Control(func(old uintptr) { fd, inner = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		return nil, fmt.Errorf("device: %w", err)
	}
	if inner != nil {
		return nil, fmt.Errorf("device: %w", inner)
	}
	return os.NewFile(uintptr(fd), "device"), nil
}

func (w *way) duplicate() (*os.File, error) { return duplicate(w.device) }

// refusedPacket records a packet that the screen answered with an error.
func (w *way) refusedPacket(r netstack.Refused) {
	rec := w.base()
	rec.Protocol, rec.Port = r.Protocol, r.To.Port()
	rec.Verdict, rec.Reason = task.Denied.String(), task.PolicyProtocol
	if name, ok := w.names.Name(r.To.Addr()); ok {
		rec.Name = name
	} else {
		rec.Address = r.To.Addr().String()
	}
	w.records.Tally(rec)
}

// base is a record with what the grant says.
func (w *way) base() task.EgressRecord {
	w.mu.Lock()
	defer w.mu.Unlock()
	return task.EgressRecord{Task: w.grant.Task, Stage: w.grant.Stage}
}

// begin decides a connection and registers it in one step, so that a grant set
// later finds it. It returns nil when there are too many or the way is closed.
func (w *way) begin(to netip.AddrPort) *connection {
	c := newConnection(w, to)
	if name, ok := w.names.Name(to.Addr()); ok {
		c.name = name
	} else {
		c.address = to.Addr().Unmap().String()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || len(w.conns) >= w.most {
		return nil
	}
	c.grow = len(w.conns) < growing
	c.grant, c.rules = w.grant, w.rules
	if c.name != "" || !names.Virtual(to.Addr()) {
		c.decision = c.rules.Decide(c.use())
		c.unknown()
	} else {
		c.decision = task.Decision{Reason: task.PolicyDenied}
	}
	c.ctx, c.cancel = context.WithCancel(w.ctx)
	w.conns[c] = struct{}{}
	return c
}

// end forgets a connection.
func (w *way) end(c *connection) {
	w.mu.Lock()
	delete(w.conns, c)
	w.mu.Unlock()
}

func (w *way) setGrant(grant task.Grant) {
	w.mu.Lock()
	if reflect.DeepEqual(w.grant, grant) {
		w.mu.Unlock()
		return
	}
	before := w.grant
	w.grant, w.rules = grant, decide.NewIndex(grant)
	w.await()
	var cut []*connection
	if sameButAnswers(before, grant) {
		cut = w.cutUnder(takenBack(before, grant))
	} else {
		cut = w.cutAll()
	}
	w.mu.Unlock()
	w.log.Info("grant", "task", grant.Task, "stage", grant.Stage, "rules", len(grant.Rules), "cut", len(cut))
	wait(cut)
}

// cutAll ends every connection. The lock is held.
func (w *way) cutAll() []*connection {
	return w.cutWhere(func(*connection) bool { return true })
}

func (w *way) cutWhere(fits func(*connection) bool) []*connection {
	cut := make([]*connection, 0, len(w.conns))
	for c := range w.conns {
		if fits(c) {
			c.cut()
			cut = append(cut, c)
		}
	}
	return cut
}

// wait gives cut connections a moment to write their last record.
func wait(cut []*connection) {
	deadline := time.NewTimer(cutWait)
	defer deadline.Stop()
	for _, c := range cut {
		select {
		case <-c.finished():
		case <-deadline.C:
			return
		}
	}
}

// close ends the way: connections, stack, log.
func (w *way) close() {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.closed = true
	w.await()
	cut := w.cutAll()
	w.mu.Unlock()
	w.cancel()
	wait(cut)
	// A stack in which something panicked may hold its locks for ever.
	go w.stack.Close()
	w.device.Close()
	w.records.Close()
}

// pace is a token bucket for several goroutines.
type pace struct {
	mu     sync.Mutex
	rate   float64
	tokens float64
	last   time.Time
}

func newPace(rate float64) *pace { return &pace{rate: rate, tokens: 2 * rate, last: time.Now()} }

func (p *pace) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.tokens = min(2*p.rate, p.tokens+p.rate*now.Sub(p.last).Seconds())
	p.last = now
	if p.tokens < 1 {
		return false
	}
	p.tokens--
	return true
}
