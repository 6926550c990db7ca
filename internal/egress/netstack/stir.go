package netstack

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// Stir lets the sandbox learn that a connection is gone which another stack had
// on this device: a program that only waits for an answer would wait for ever.
// from is the port inside, to where the connection went.
//
// What is sent is a SYN of that connection. A side that thinks it is open answers
// with an ACK (RFC 9293 §3.10.7.4, RFC 5961 §4), which this stack knows nothing of
// and resets; any other side resets or drops it.
func (s *Stack) Stir(from uint16, to netip.AddrPort) error {
	inside, protocol := inside4, header.IPv4ProtocolNumber
	if to.Addr().Is6() {
		inside, protocol = inside6, header.IPv6ProtocolNumber
	}
	route, failed := s.stack.FindRoute(nic, toTCPIP(to.Addr()), toTCPIP(inside), protocol, false)
	if failed != nil {
		return fmt.Errorf("netstack: stir %s: %s", to, failed)
	}
	defer route.Release()
	packet := stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: int(route.MaxHeaderLength()) + header.TCPMinimumSize})
	defer packet.DecRef()
	packet.TransportProtocolNumber = header.TCPProtocolNumber
	syn := header.TCP(packet.TransportHeader().Push(header.TCPMinimumSize))
	syn.Encode(&header.TCPFields{
		SrcPort: to.Port(), DstPort: from, SeqNum: rand.Uint32(), DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 1 << 15,
	})
	syn.SetChecksum(^syn.CalculateChecksum(route.PseudoHeaderChecksum(header.TCPProtocolNumber, header.TCPMinimumSize)))
	if failed := route.WritePacket(stack.NetworkHeaderParams{Protocol: tcpip.TransportProtocolNumber(header.TCPProtocolNumber), TTL: 64}, packet); failed != nil {
		return fmt.Errorf("netstack: stir %s: %s", to, failed)
	}
	return nil
}
