package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/miekg/dns"
)

// SystemResolver looks names up as this machine does.
type SystemResolver struct{ resolver net.Resolver }

// Lookup implements Resolver. The name is absolute: search lists don't count.
func (r *SystemResolver) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return r.resolver.LookupNetIP(ctx, "ip", dns.Fqdn(name))
}

// ServerResolver looks names up at one name server.
type ServerResolver struct {
	Server netip.AddrPort
}

// Lookup implements Resolver: A and AAAA, asked together.
func (r *ServerResolver) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	type found struct {
		addresses []netip.Addr
		err       error
	}
	types := []uint16{dns.TypeA, dns.TypeAAAA}
	results := make([]chan found, len(types))
	for i, kind := range types {
		results[i] = make(chan found, 1)
		go func() {
			a, err := r.ask(ctx, name, kind)
			results[i] <- found{a, err}
		}()
	}
	var all []netip.Addr
	var errs []error
	for _, ch := range results {
		f := <-ch
		all = append(all, f.addresses...)
		errs = append(errs, f.err)
	}
	if len(all) > 0 {
		return all, nil
	}
	return nil, errors.Join(errs...)
}

func (r *ServerResolver) ask(ctx context.Context, name string, kind uint16) ([]netip.Addr, error) {
	query := new(dns.Msg)
	query.SetQuestion(dns.Fqdn(name), kind)
	query.SetEdns0(1232, false)
	client := &dns.Client{Net: "udp"}
	reply, _, err := client.ExchangeContext(ctx, query, r.Server.String())
	if err == nil && reply.Truncated {
		client.Net = "tcp"
		reply, _, err = client.ExchangeContext(ctx, query, r.Server.String())
	}
	if err != nil {
		return nil, fmt.Errorf("look-up of %s: %w", name, err)
	}
	if reply.Rcode != dns.RcodeSuccess {
		return nil, fmt.Errorf("look-up of %s: %s", name, dns.RcodeToString[reply.Rcode])
	}
	var out []netip.Addr
	for _, rr := range reply.Answer {
		var ip net.IP
		switch a := rr.(type) {
		case *dns.A:
			ip = a.A
		case *dns.AAAA:
			ip = a.AAAA
		}
		if addr, ok := netip.AddrFromSlice(ip); ok {
			out = append(out, addr.Unmap())
		}
	}
	return out, nil
}

// NewResolver gives the resolver of a --dns flag: a name server at host:port,
// or, when server is empty, the one this machine is set up with.
func NewResolver(server string) (Resolver, error) {
	if server == "" {
		return new(SystemResolver), nil
	}
	addr, err := netip.ParseAddrPort(server)
	if err != nil {
		return nil, fmt.Errorf("--dns: %w", err)
	}
	return &ServerResolver{Server: addr}, nil
}
