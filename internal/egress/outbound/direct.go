package outbound

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// DirectOptions make a Direct. Resolver and Guard are required.
type DirectOptions struct {
	Resolver Resolver
	Guard    func() *guard.Guard // asked for each connection: our own listeners may move
	Roots    *x509.CertPool      // nil: the system's
	// Private says whether the operator opens private addresses of a host at a
	// port; nil: of none.
	Private func(host string, port uint16) bool
}

// Direct is an http.RoundTripper for what the control plane itself asks outside,
// at hosts that an administrator named: https alone, over TLS that is verified,
// to an address that was judged as a sandbox's would be. It follows no redirect
// and no proxy. Its errors are *task.Failure.
type Direct struct {
	options DirectOptions
	wire    *http.Transport
}

// NewDirect returns a Direct.
func NewDirect(o DirectOptions) *Direct {
	d := &Direct{options: o}
	d.wire = NewWire(WireOptions{Dial: d.dial, Roots: o.Roots, Small: true})
	d.wire.MaxIdleConnsPerHost, d.wire.IdleConnTimeout = 2, 30*time.Second
	return d
}

// RoundTrip implements http.RoundTripper.
func (d *Direct) RoundTrip(r *http.Request) (*http.Response, error) {
	use, err := useOf(r.URL)
	if err != nil || r.URL.Scheme != "https" {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, task.Fail(task.PolicyProtocol, "only https is spoken with it", err)
	}
	res, err := d.wire.RoundTrip(r)
	if err == nil {
		return res, nil
	}
	if u, ok := errors.AsType[*Unreached](err); ok {
		text := "its name has no address"
		if u.Reason == task.PolicyAddress {
			text = fmt.Sprintf("its address is one that is never reached, or a private one that the operator's policy does not open; open it with private: [{host: %s, ports: [%d]}]", r.URL.Hostname(), use.Port)
		}
		return nil, task.Fail(u.Reason, text, nil)
	}
	if r.Context().Err() != nil {
		return nil, task.Fail(task.EgressUnreachable, "it did not answer in time", r.Context().Err())
	}
	// What the far side sent may stand in the error: only its kind is told.
	return nil, task.Fail(Fault(err), "it does not answer as it should", nil)
}

// dial looks up, judges and dials.
func (d *Direct) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, err
	}
	use := decide.Use{Name: host, Port: uint16(port)}
	if addr, err := netip.ParseAddr(host); err == nil {
		use = decide.Use{Address: addr.String(), Port: uint16(port)}
	}
	private := d.options.Private != nil && d.options.Private(host, use.Port)
	addresses, unreached := Reach{Resolver: d.options.Resolver, Guard: d.options.Guard()}.Addresses(ctx, use, private)
	if unreached != nil {
		return nil, unreached
	}
	conn, _, err := Dial(ctx, addresses, use.Port, func(netip.AddrPort) error { return nil })
	if err != nil {
		return nil, err
	}
	return conn, nil
}
