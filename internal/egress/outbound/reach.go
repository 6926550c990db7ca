package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	lookupWait = 5 * time.Second
	dialWait   = 10 * time.Second // for all addresses of a name together
	dialMost   = 4                // addresses of a name that are tried
)

// Resolver looks names up outside. It is asked for allowed connections only.
type Resolver interface {
	Lookup(ctx context.Context, name string) ([]netip.Addr, error)
}

// Reach finds the addresses that may be dialled, and dials them. Both fields
// are required.
type Reach struct {
	Resolver Resolver
	Guard    *guard.Guard
}

// Unreached says why an allowed use has no address to dial.
type Unreached struct {
	Reason  task.Reason // policy.address or egress.unresolved
	Address string      // the address that was refused; empty when there was none
	Err     error       // the cause, for our own log
}

// Error gives the code, the address and the cause.
func (u *Unreached) Error() string {
	return fmt.Sprintf("%s %s: %v", u.Reason, u.Address, u.Err)
}

// Unwrap returns the cause.
func (u *Unreached) Unwrap() error { return u.Err }

// Addresses gives what may be dialled for an allowed use. private says that a
// rule of the operator's allows private addresses for it. One address that is
// never reachable refuses the whole name: it has no business beside others.
func (r Reach) Addresses(ctx context.Context, use decide.Use, private bool) ([]netip.Addr, *Unreached) {
	if task.IsReserved(strings.TrimSuffix(strings.ToLower(use.Name), ".")) {
		return nil, &Unreached{Reason: task.PolicyAddress, Err: errors.New("a name that the gateway answers itself")}
	}
	found, refused := r.lookup(ctx, use)
	if refused != nil {
		return nil, refused
	}
	var out []netip.Addr
	last := ""
	for _, a := range found {
		a = a.Unmap()
		switch r.Guard.Judge(a, use.Port) {
		case guard.Public:
			out = append(out, a)
		case guard.Private:
			if private {
				out = append(out, a)
			} else {
				last = a.String()
			}
		default:
			return nil, &Unreached{Reason: task.PolicyAddress, Address: a.String()}
		}
	}
	if len(out) == 0 {
		return nil, &Unreached{Reason: task.PolicyAddress, Address: last}
	}
	return out[:min(len(out), dialMost)], nil
}

func (r Reach) lookup(ctx context.Context, use decide.Use) ([]netip.Addr, *Unreached) {
	if use.Name == "" {
		addr, err := netip.ParseAddr(use.Address)
		if err != nil || addr.Zone() != "" {
			return nil, &Unreached{Reason: task.PolicyAddress, Address: use.Address, Err: err}
		}
		return []netip.Addr{addr}, nil
	}
	if guard.MetadataName(use.Name) {
		return nil, &Unreached{Reason: task.PolicyAddress}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupWait)
	defer cancel()
	found, err := r.Resolver.Lookup(ctx, use.Name)
	if err != nil || len(found) == 0 {
		return nil, &Unreached{Reason: task.EgressUnresolved, Err: err}
	}
	return found, nil
}

// ErrRecord says that a decision could not be recorded, so nothing was dialled.
var ErrRecord = errors.New("decision not recorded")

// Dial tries the addresses in order. before is called with each ahead of its
// dial; when it fails nothing is dialled.
func Dial(ctx context.Context, addresses []netip.Addr, port uint16, before func(netip.AddrPort) error) (*net.TCPConn, netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	err := errors.New("no address")
	for i, a := range addresses {
		to := netip.AddrPortFrom(a, port)
		if err := before(to); err != nil {
			return nil, to, errors.Join(ErrRecord, err)
		}
		each, cancel := context.WithTimeout(ctx, dialWait/time.Duration(len(addresses)-i))
		var conn *net.TCPConn
		conn, err = dialOne(each, to)
		cancel()
		if err == nil {
			return conn, to, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, netip.AddrPort{}, err
}

func dialOne(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}}
	// The address is a literal one: nothing is looked up here.
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("not a TCP connection"), conn.Close())
	}
	return tcp, nil
}
