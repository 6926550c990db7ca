package netstack

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const nic = tcpip.NICID(1)

// Options say what to do with what comes out of the device. All are required.
type Options struct {
	// Connect is called, in a goroutine of its own, for each connection asked
	// for. It must end with req.Refuse or req.Accept.
	Connect func(req *Request)
	// Refused is told of packets that are answered with an ICMP error. It must
	// not block.
	Refused func(Refused)
	// Ended is called once when the device fails or delivering a frame panicked.
	// The stack must then be closed, by another goroutine.
	Ended func(error)
	// Pending bounds the connections that are asked for and not yet decided.
	Pending int
}

// Stack is one sandbox's network. Its zero value is not usable.
type Stack struct {
	stack *stack.Stack
	link  *link
	names [2]net.PacketConn
	once  sync.Once
}

// New takes the device over and starts reading it. device is closed by Close,
// also when New fails.
func New(device *os.File, opts Options) (*Stack, error) {
	if opts.Connect == nil || opts.Refused == nil || opts.Ended == nil || opts.Pending <= 0 {
		device.Close()
		return nil, errors.New("netstack: an option is missing")
	}
	mac := GatewayMAC()
	l, err := newLink(device, tcpip.LinkAddress(mac), newScreen(mac, opts.Refused), opts.Ended)
	if err != nil {
		device.Close()
		return nil, err
	}
	s := &Stack{link: l, stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol, ipv6.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})}
	if err := s.configure(opts); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// configure gives the stack its buffers, its handlers and its interface, in
// this order: frames are read as soon as the interface exists.
func (s *Stack) configure(opts Options) error {
	if err := tune(s.stack); err != nil {
		return err
	}
	forwarder := tcp.NewForwarder(s.stack, 0, opts.Pending, func(r *tcp.ForwarderRequest) {
		opts.Connect(&Request{request: r, id: r.ID()})
	})
	s.stack.SetTransportProtocolHandler(tcp.ProtocolNumber, forwarder.HandlePacket)
	if err := s.stack.CreateNIC(nic, s.link); err != nil {
		return fmt.Errorf("netstack: interface: %s", err)
	}
	for _, a := range []netip.Prefix{netip.PrefixFrom(gateway4, 15), netip.PrefixFrom(gateway6, 64)} {
		protocol := header.IPv4ProtocolNumber
		if a.Addr().Is6() {
			protocol = header.IPv6ProtocolNumber
		}
		address := tcpip.ProtocolAddress{Protocol: protocol, AddressWithPrefix: tcpip.AddressWithPrefix{Address: toTCPIP(a.Addr()), PrefixLen: a.Bits()}}
		if err := s.stack.AddProtocolAddress(nic, address, stack.AddressProperties{}); err != nil {
			return fmt.Errorf("netstack: address %s: %s", a, err)
		}
	}
	s.stack.SetRouteTable([]tcpip.Route{
		{Destination: header.IPv4EmptySubnet, NIC: nic},
		{Destination: header.IPv6EmptySubnet, NIC: nic},
	})
	if err := s.stack.SetPromiscuousMode(nic, true); err != nil {
		return fmt.Errorf("netstack: promiscuous: %s", err)
	}
	if err := s.stack.SetSpoofing(nic, true); err != nil {
		return fmt.Errorf("netstack: spoofing: %s", err)
	}
	return s.listenNames()
}

// tune sets what the throughput of a link without loss and with a large MTU
// asks for.
func tune(s *stack.Stack) error {
	sack := tcpip.TCPSACKEnabled(true)
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	cubic := tcpip.CongestionControlOption("cubic")
	send := tcpip.TCPSendBufferSizeRangeOption{Min: 4 << 10, Default: smallBuffer, Max: largeBuffer}
	receive := tcpip.TCPReceiveBufferSizeRangeOption{Min: 4 << 10, Default: smallBuffer, Max: largeBuffer}
	linger, timeWait := tcpip.TCPLingerTimeoutOption(5*time.Second), tcpip.TCPTimeWaitTimeoutOption(5*time.Second)
	for _, o := range []tcpip.SettableTransportProtocolOption{&sack, &moderate, &cubic, &send, &receive, &linger, &timeWait} {
		if err := s.SetTransportProtocolOption(tcp.ProtocolNumber, o); err != nil {
			return fmt.Errorf("netstack: option %T: %s", o, err)
		}
	}
	return nil
}

func (s *Stack) listenNames() error {
	for i, a := range []netip.Addr{gateway4, gateway6} {
		protocol := header.IPv4ProtocolNumber
		if a.Is6() {
			protocol = header.IPv6ProtocolNumber
		}
		conn, err := gonet.DialUDP(s.stack, &tcpip.FullAddress{NIC: nic, Addr: toTCPIP(a), Port: portDNS}, nil, protocol)
		if err != nil {
			return fmt.Errorf("netstack: names on %s: %w", a, err)
		}
		s.names[i] = conn
	}
	return nil
}

// Names gives the sockets that the name service is asked on.
func (s *Stack) Names() []net.PacketConn { return s.names[:] }

// Close ends the stack, its connections and its device.
func (s *Stack) Close() {
	s.once.Do(func() {
		s.link.Close()
		for _, c := range s.names {
			if c != nil {
				c.Close()
			}
		}
		s.stack.Close()
	})
}

// Pollable turns a descriptor into a file that can be read with cancellation.
// It takes the descriptor over, also when it fails.
func Pollable(fd int, name string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
