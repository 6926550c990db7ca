// Package guard says which addresses outside may be dialled at all, after a
// rule allowed a name or an address and before anything is sent.
//
// Words. An address is never reachable when it hands out a machine's identity
// (cloud metadata) or belongs to the control plane's own listeners: no rule
// changes that. It is private when it is not on the public Internet, or is one
// of this machine's own: only an operator's rule reaches it. Everything else
// is public; so are the ranges kept for documentation. An IPv6 address that
// carries an IPv4 address is judged as both and the stricter answer counts.
//
// Not promised: knowledge of a metadata service on a public address that is
// not listed here.
package guard

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Reach says who may reach an address. The zero value is nobody.
type Reach uint8

// The answers, from the strictest on.
const (
	Never Reach = iota
	Private
	Public
)

// String names the answer.
func (r Reach) String() string {
	switch r {
	case Private:
		return "private"
	case Public:
		return "public"
	}
	return "never"
}

// Guard judges addresses. Its zero value protects no listener and asks the
// machine for its own addresses.
type Guard struct {
	protected []netip.AddrPort
	own       func() ([]netip.Addr, error)
}

// New makes a guard that protects the given listeners. own gives the machine's
// own addresses; nil asks the machine.
func New(protected []netip.AddrPort, own func() ([]netip.Addr, error)) *Guard {
	return &Guard{protected: slices.Clone(protected), own: own}
}

// Judge says who may reach addr at port. When the machine's own addresses
// can't be read, the answer is Never.
func (g *Guard) Judge(addr netip.Addr, port uint16) Reach {
	own := g.own
	if own == nil {
		own = machineAddresses
	}
	mine, err := own()
	if err != nil || !addr.IsValid() {
		return Never
	}
	reach := Public
	for _, a := range append(carried(addr), addr) {
		reach = min(reach, g.judgeOne(a.Unmap().WithZone(""), port, mine))
	}
	return reach
}

func (g *Guard) judgeOne(addr netip.Addr, port uint16, mine []netip.Addr) Reach {
	if inAny(never, addr) {
		return Never
	}
	own := addr.IsLoopback() || addr.IsUnspecified() || slices.Contains(mine, addr)
	for _, p := range g.protected {
		if p.Port() != port {
			continue
		}
		host := p.Addr().Unmap()
		if host == addr || own && (host.IsUnspecified() || host.IsLoopback() || slices.Contains(mine, host)) {
			return Never
		}
	}
	if own || inAny(private, addr) || addr.Is6() && !globalUnicast.Contains(addr) && !nat64.Contains(addr) {
		return Private
	}
	return Public
}

// MetadataName says whether name is known to stand for a cloud's metadata
// service. Such a name is never resolved.
func MetadataName(name string) bool {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	return slices.Contains(metadataNames, name)
}

func inAny(set []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(set, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// machineAddresses asks the machine for the addresses of its interfaces.
func machineAddresses() ([]netip.Addr, error) {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("own addresses: %w", err)
	}
	var out []netip.Addr
	for _, f := range found {
		if n, ok := f.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, a.Unmap())
			}
		}
	}
	return out, nil
}
