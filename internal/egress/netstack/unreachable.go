package netstack

import "encoding/binary"

// quoted is how much of the refused packet an ICMP error repeats (RFC 1812
// §4.3.2.3 and RFC 4443 §2.4 ask for as much as fits a minimal packet).
const quoted = 548

// unreachable4 makes the ICMP error for the IPv4 packet in frame: port
// unreachable, or communication administratively prohibited (RFC 792, 1812).
func unreachable4(frame []byte, total int, port bool) []byte {
	quote := frame[ethernetLen : ethernetLen+min(total, quoted)]
	out := make([]byte, ethernetLen+ipv4Len+8+len(quote))
	turnEthernet(out, frame)
	ip := out[ethernetLen:]
	ip[0] = 0x45
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[8], ip[9] = 64, protoICMP
	copy(ip[12:16], frame[ethernetLen+16:ethernetLen+20]) // from the address that was meant, so that the sender's socket takes it
	copy(ip[16:20], frame[ethernetLen+12:ethernetLen+16])
	binary.BigEndian.PutUint16(ip[10:], checksum(0, ip[:ipv4Len]))
	icmp := ip[ipv4Len:]
	icmp[0], icmp[1] = 3, 13
	if port {
		icmp[1] = 3
	}
	copy(icmp[8:], quote)
	binary.BigEndian.PutUint16(icmp[2:], checksum(0, icmp))
	return out
}

// unreachable6 is the same for IPv6 (RFC 4443 §3.1).
func unreachable6(frame []byte, total int, port bool) []byte {
	quote := frame[ethernetLen : ethernetLen+min(total, quoted)]
	out := make([]byte, ethernetLen+ipv6Len+8+len(quote))
	turnEthernet(out, frame)
	ip := out[ethernetLen:]
	ip[0] = 0x60
	length := len(ip) - ipv6Len
	binary.BigEndian.PutUint16(ip[4:], uint16(length))
	ip[6], ip[7] = protoICMPv6, 64
	copy(ip[8:24], frame[ethernetLen+24:ethernetLen+40])
	copy(ip[24:40], frame[ethernetLen+8:ethernetLen+24])
	icmp := ip[ipv6Len:]
	icmp[0], icmp[1] = 1, 1
	if port {
		icmp[1] = 4
	}
	copy(icmp[8:], quote)
	pseudo := sum(uint32(length)+protoICMPv6, ip[8:40])
	binary.BigEndian.PutUint16(icmp[2:], checksum(pseudo, icmp))
	return out
}

func turnEthernet(out, frame []byte) {
	copy(out[:6], frame[6:12])
	copy(out[6:12], GatewayMAC())
	copy(out[12:14], frame[12:14])
}

// checksum is the Internet checksum (RFC 1071) of b, begun with initial.
func checksum(initial uint32, b []byte) uint16 {
	s := sum(initial, b)
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}

func sum(s uint32, b []byte) uint32 {
	for len(b) >= 2 {
		s += uint32(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}
