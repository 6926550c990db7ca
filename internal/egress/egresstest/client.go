// Package egresstest is a sandbox's side of a network device without a
// sandbox: a second user-space stack at the other end of a socket pair. It
// needs no privilege. Tests only.
package egresstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/cofferdam/cofferdam/internal/egress/netstack"
)

// Pair makes the two ends of a device: the gateway's, and the sandbox's.
func Pair(t testing.TB) (gateway, inside *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		// Room for some whole frames, so that few are lost.
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
	}
	gateway, inside = os.NewFile(uintptr(fds[0]), "gateway side"), os.NewFile(uintptr(fds[1]), "inside")
	t.Cleanup(func() { gateway.Close(); inside.Close() })
	return gateway, inside
}

// Client is the network of a sandbox.
type Client struct{ stack *stack.Stack }

// NewClient makes the sandbox's network on its end of the device.
func NewClient(t testing.TB, inside *os.File) *Client {
	t.Helper()
	fd, err := unix.FcntlInt(inside.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := fdbased.New(&fdbased.Options{
		FDs: []int{fd}, MTU: netstack.MTU, EthernetHeader: true, Address: tcpip.LinkAddress("\x02\xcf\xfd\x00\x00\x02"),
	})
	if err != nil {
		t.Fatal(err)
	}
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})
	if err := s.CreateNIC(1, ep); err != nil {
		t.Fatal(err)
	}
	var routes []tcpip.Route
	for _, side := range []struct {
		own, gateway netip.Addr
		bits         int
		protocol     tcpip.NetworkProtocolNumber
		everything   tcpip.Subnet
	}{
		{netstack.Inside4(), netstack.Gateway4(), 30, header.IPv4ProtocolNumber, header.IPv4EmptySubnet},
		{netstack.Inside6(), netstack.Gateway6(), 64, header.IPv6ProtocolNumber, header.IPv6EmptySubnet},
	} {
		address := tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(side.own.AsSlice()), PrefixLen: side.bits}
		if err := s.AddProtocolAddress(1, tcpip.ProtocolAddress{Protocol: side.protocol, AddressWithPrefix: address}, stack.AddressProperties{}); err != nil {
			t.Fatal(err)
		}
		routes = append(routes,
			tcpip.Route{Destination: address.Subnet(), NIC: 1},
			tcpip.Route{Destination: side.everything, Gateway: tcpip.AddrFromSlice(side.gateway.AsSlice()), NIC: 1})
	}
	s.SetRouteTable(routes)
	t.Cleanup(func() {
		// Reading must have ended before the descriptor's number can be another
		// client's: this stack would answer its packets with resets.
		ep.Attach(nil)
		s.Close()
		unix.Close(fd)
	})
	return &Client{stack: s}
}

func full(a netip.AddrPort) (tcpip.FullAddress, tcpip.NetworkProtocolNumber) {
	protocol := header.IPv4ProtocolNumber
	if a.Addr().Is6() {
		protocol = header.IPv6ProtocolNumber
	}
	return tcpip.FullAddress{NIC: 1, Addr: tcpip.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}, protocol
}

// Dial connects to a literal address.
func (c *Client) Dial(ctx context.Context, to netip.AddrPort) (*gonet.TCPConn, error) {
	address, protocol := full(to)
	return gonet.DialContextTCP(ctx, c.stack, address, protocol)
}

// DialName looks the name up and connects, over IPv4 or IPv6.
func (c *Client) DialName(ctx context.Context, network, name string, port uint16) (*gonet.TCPConn, error) {
	kind := dns.TypeA
	if network == "tcp6" {
		kind = dns.TypeAAAA
	}
	addr, err := c.Lookup(ctx, name, kind)
	if err != nil {
		return nil, err
	}
	return c.Dial(ctx, netip.AddrPortFrom(addr, port))
}

// DialContext is DialName in the form that net/http wants.
func (c *Client) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		return nil, err
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return c.Dial(ctx, netip.AddrPortFrom(addr, uint16(number)))
	}
	return c.DialName(ctx, network, host, uint16(number))
}

// Packet opens a UDP socket towards an address.
func (c *Client) Packet(to netip.AddrPort) (*gonet.UDPConn, error) {
	address, protocol := full(to)
	return gonet.DialUDP(c.stack, nil, &address, protocol)
}

// Ask sends a query to the gateway's name service over UDP. A datagram may be
// lost, as in a real network, so it asks again until ctx ends, or for ten
// seconds where ctx has no end.
func (c *Client) Ask(ctx context.Context, query *dns.Msg) (*dns.Msg, error) {
	conn, err := c.Packet(netip.AddrPortFrom(netstack.Gateway4(), 53))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(10 * time.Second)
	}
	data, err := query.Pack()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for {
		if _, err := conn.Write(data); err != nil {
			return nil, err
		}
		again := time.Now().Add(2 * time.Second)
		last := !again.Before(deadline)
		if last {
			again = deadline
		}
		conn.SetReadDeadline(again)
		n, err := conn.Read(buf)
		var slow net.Error
		if errors.As(err, &slow) && slow.Timeout() && !last && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		reply := new(dns.Msg)
		return reply, reply.Unpack(buf[:n])
	}
}

// Lookup asks for the name's address.
func (c *Client) Lookup(ctx context.Context, name string, kind uint16) (netip.Addr, error) {
	query := new(dns.Msg)
	query.SetQuestion(dns.Fqdn(name), kind)
	reply, err := c.Ask(ctx, query)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, rr := range reply.Answer {
		switch a := rr.(type) {
		case *dns.A:
			addr, _ := netip.AddrFromSlice(a.A.To4())
			return addr, nil
		case *dns.AAAA:
			addr, _ := netip.AddrFromSlice(a.AAAA.To16())
			return addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s: %s without an address", name, dns.RcodeToString[reply.Rcode])
}
