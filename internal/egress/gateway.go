package egress

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/authority"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/names"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/egress/splice"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Resolver looks names up outside. It is asked for allowed connections only.
type Resolver = outbound.Resolver

// Limits bound one sandbox. Zero fields mean the default.
type Limits struct {
	Names       int     // that have an address; default 4096
	Connections int     // open or asked for at one time; default 512
	Queries     float64 // to the name service a second; default 500
	Log         int64   // bytes of the decision log before refusals are only counted; default record.SoftLimit
}

func (l Limits) withDefaults() Limits {
	if l.Names <= 0 {
		l.Names = 4096
	}
	if l.Connections <= 0 {
		l.Connections = 512
	}
	if l.Queries <= 0 {
		l.Queries = 500
	}
	return l
}

// Options make a gateway. All but Limits, Roots, Trust, Lender, Asker, Purse and Granted
// are required.
type Options struct {
	Resolver Resolver
	// Roots are whom the far side's certificates are verified under, where the
	// gateway ends TLS; nil: the system's.
	Roots *x509.CertPool
	// Trust are certificates (PEM) that programs inside are told to trust beside
	// the sandbox's own authority, for connections whose TLS does not end here;
	// nil: none.
	Trust []byte
	// Lender gives the values of leases; nil: nothing is lent, and requests that
	// need a credential are refused.
	Lender outbound.Lender
	// Asker asks a person about connections that no rule matches, where a grant
	// says so; nil: they are denied.
	Asker Asker
	// Purse says whether budgets have room for what asks a model; nil: nobody asks.
	Purse outbound.Purse
	// Granted is told of a sandbox's grant once it counts, and of an empty one when
	// the sandbox is detached, so that what was lent under another is forgotten;
	// nil: nobody is told.
	Granted func(task.Grant)
	Guard   *guard.Guard
	Records string // folder of the decision logs
	SealKey []byte // encrypts the authorities that the worker keeps
	Log     *slog.Logger
	Limits  Limits
	// Stored makes the worker store a name before its address is told. An error
	// means that it is not stored.
	Stored func(ctx context.Context, sandbox string, e names.Entry) error
	// Broken is told of a sandbox that is not attached any more because its
	// device or its stack failed.
	Broken func(sandbox string)
}

// dialer makes a connection outside to one of the checked addresses.
type dialer func(ctx context.Context, addresses []netip.Addr, port uint16, before func(netip.AddrPort) error) (*net.TCPConn, netip.AddrPort, error)

// Gateway holds the ways of one machine's sandboxes. Safe for concurrent use.
type Gateway struct {
	options Options
	pump    splice.Pump
	relend  time.Duration // between questions whether a session's lease lasts
	dial    dialer        // outbound.Dial

	mu     sync.Mutex
	ways   map[string]*way
	closed bool
}

// New makes a gateway without sandboxes.
func New(o Options) (*Gateway, error) {
	if o.Resolver == nil || o.Guard == nil || o.Records == "" || len(o.SealKey) < 16 || o.Log == nil || o.Stored == nil || o.Broken == nil {
		return nil, errors.New("egress: an option is missing")
	}
	o.Limits = o.Limits.withDefaults()
	return &Gateway{options: o, relend: relendPace, dial: outbound.Dial, ways: make(map[string]*way)}, nil
}

// Handed is what a worker hands over for one sandbox.
type Handed struct {
	Sandbox string
	Device  *os.File // taken over, also on error
	Names   []names.Entry
	Sealed  []byte // empty for a new sandbox
	Grant   task.Grant

	MaxNames       int64 // 0: as many as Options.Limits allows; never more
	MaxConnections int64 // likewise
}

// smaller gives the smaller limit, of which zero is none.
func smaller(most int, own int64) int {
	if own > 0 && own < int64(most) {
		return int(own)
	}
	return most
}

// Attach takes a sandbox. One that is attached already gets the new device:
// its connections end, its names and its authority stay those handed over.
func (g *Gateway) Attach(h Handed) (pem, sealed []byte, err error) {
	g.Detach(h.Sandbox)
	a, sealed, err := g.authority(h)
	if err != nil {
		h.Device.Close()
		return nil, nil, err
	}
	w, err := newWay(g, h, a)
	if err != nil {
		return nil, nil, err
	}
	g.mu.Lock()
	if g.closed || g.ways[h.Sandbox] != nil {
		g.mu.Unlock()
		w.close()
		return nil, nil, &task.Failure{Reason: task.InfraEgressAway, Text: "the gateway is stopping or the sandbox is being attached by another call"}
	}
	g.ways[h.Sandbox] = w
	g.mu.Unlock()
	g.options.Log.Info("attached", "sandbox", h.Sandbox, "names", len(h.Names), "rules", len(h.Grant.Rules))
	return append(a.PEM(), g.options.Trust...), sealed, nil
}

// authority opens the one handed over, or makes one. One that can't be opened
// is replaced: refusals are then not readable over TLS, but nothing else
// depends on it.
func (g *Gateway) authority(h Handed) (*authority.Authority, []byte, error) {
	if len(h.Sealed) > 0 {
		a, err := authority.Open(h.Sealed, g.options.SealKey, h.Sandbox)
		if err == nil {
			return a, bytes.Clone(h.Sealed), nil
		}
		g.options.Log.Warn("authority replaced", "sandbox", h.Sandbox, "error", err)
	}
	a, err := authority.New(h.Sandbox, time.Now())
	if err != nil {
		return nil, nil, err
	}
	sealed, err := a.Seal(g.options.SealKey, h.Sandbox)
	return a, sealed, err
}

// SetGrant sets what the sandbox may reach and cuts the connections made
// before. When it returns, no byte of theirs passes any more. The grant that
// counts already changes nothing, so that repeating a call harms nobody.
func (g *Gateway) SetGrant(grant task.Grant) error {
	w := g.way(grant.Sandbox)
	if w == nil {
		return fmt.Errorf("sandbox %q: %w", grant.Sandbox, errNotAttached)
	}
	w.setGrant(grant)
	g.granted(grant)
	return nil
}

func (g *Gateway) granted(grant task.Grant) {
	if g.options.Granted != nil {
		g.options.Granted(grant)
	}
}

var errNotAttached = &task.Failure{Reason: task.InputNotFound, Text: "the sandbox is not attached to the gateway"}

// Detach ends the sandbox's connections and forgets it. Unknown ids are fine.
func (g *Gateway) Detach(id string) {
	g.mu.Lock()
	w := g.ways[id]
	delete(g.ways, id)
	g.mu.Unlock()
	if w != nil {
		w.close()
		g.granted(task.Grant{Sandbox: id})
		g.options.Log.Info("detached", "sandbox", id)
	}
}

// Keep detaches every sandbox that is not in ids and gives those that stay.
func (g *Gateway) Keep(ids []string) []string {
	var kept []string
	for _, id := range g.Attached() {
		if slices.Contains(ids, id) {
			kept = append(kept, id)
		} else {
			g.Detach(id)
		}
	}
	return kept
}

// Attached gives the sandboxes that are attached, in order.
func (g *Gateway) Attached() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := make([]string, 0, len(g.ways))
	for id := range g.ways {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Device gives a duplicate of the sandbox's device, for a worker that lost its
// own.
func (g *Gateway) Device(id string) (*os.File, error) {
	w := g.way(id)
	if w == nil {
		return nil, fmt.Errorf("sandbox %q: %w", id, errNotAttached)
	}
	return w.duplicate()
}

func (g *Gateway) reach() outbound.Reach {
	return outbound.Reach{Resolver: g.options.Resolver, Guard: g.options.Guard}
}

func (g *Gateway) way(id string) *way {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ways[id]
}

// broken drops a way whose device or stack failed, if it is still the one.
func (g *Gateway) broken(w *way, cause error) {
	g.options.Log.Error("way broken", "sandbox", w.id, "error", cause)
	g.mu.Lock()
	current := g.ways[w.id] == w
	if current {
		delete(g.ways, w.id)
	}
	g.mu.Unlock()
	w.close()
	if current {
		g.granted(task.Grant{Sandbox: w.id})
		g.options.Broken(w.id)
	}
}

// Close detaches everything.
func (g *Gateway) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	for _, id := range g.Attached() {
		g.Detach(id)
	}
}
