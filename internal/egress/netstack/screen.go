package netstack

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Refused is a packet that went no further than the screen.
type Refused struct {
	Protocol string // "udp", "dns" (UDP to a name server that is not the gateway), "icmp", "ip" (another protocol)
	To       netip.AddrPort
}

// Numbers of the packet formats, as assigned by IANA.
const (
	etherIPv4, etherARP, etherIPv6 = 0x0800, 0x0806, 0x86dd

	protoICMP, protoTCP, protoUDP, protoICMPv6 = 1, 6, 17, 58

	ethernetLen, ipv4Len, ipv6Len = 14, 20, 40

	portDNS = 53
)

// screen looks at raw frames. It is used by one goroutine.
type screen struct {
	mac     [6]byte
	refused func(Refused)
	errors  bucket // of ICMP errors sent
}

func newScreen(mac []byte, refused func(Refused)) *screen {
	s := &screen{refused: refused, errors: bucket{rate: 1000, size: 1000, tokens: 1000}}
	copy(s.mac[:], mac)
	return s
}

// look says whether the frame may go on to the stack, and gives a frame to
// answer it with, if any.
func (s *screen) look(frame []byte) (answer []byte, pass bool) {
	if len(frame) < ethernetLen {
		return nil, false
	}
	if [6]byte(frame[:6]) != s.mac && frame[0]&1 == 0 {
		return nil, false
	}
	packet := frame[ethernetLen:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherARP:
		return nil, lookARP(packet)
	case etherIPv4:
		return s.look4(frame, packet)
	case etherIPv6:
		return s.look6(frame, packet)
	}
	return nil, false
}

// lookARP passes requests for any address but the sandbox's own, which it may
// be probing for.
func lookARP(p []byte) bool {
	if len(p) < 28 || binary.BigEndian.Uint16(p[2:]) != etherIPv4 || p[4] != 6 || p[5] != 4 {
		return false
	}
	sender, target := netip.AddrFrom4([4]byte(p[14:18])), netip.AddrFrom4([4]byte(p[24:28]))
	return sender != target && !sender.IsUnspecified() && target != inside4 && sender != gateway4
}

func (s *screen) look4(frame, p []byte) ([]byte, bool) {
	if len(p) < ipv4Len || p[0] != 0x45 { // version 4, no options
		return nil, false
	}
	total := int(binary.BigEndian.Uint16(p[2:]))
	if total < ipv4Len || total > len(p) {
		return nil, false
	}
	if binary.BigEndian.Uint16(p[6:])&0x3fff != 0 { // a fragment; nobody needs one with this MTU
		return nil, false
	}
	from, to := netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20]))
	if !plausible(from) {
		return nil, false
	}
	body := p[ipv4Len:total]
	v := judge(p[9], body, to, to == gateway4)
	return s.conclude(v, to, func(port bool) []byte { return unreachable4(frame, total, port) })
}

func (s *screen) look6(frame, p []byte) ([]byte, bool) {
	if len(p) < ipv6Len || p[0]>>4 != 6 {
		return nil, false
	}
	length := int(binary.BigEndian.Uint16(p[4:]))
	if length == 0 || ipv6Len+length > len(p) { // no jumbograms
		return nil, false
	}
	from, to := netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40]))
	body := p[ipv6Len : ipv6Len+length]
	if p[6] == protoICMPv6 {
		if v, known := lookNeighbour(body, from); known {
			return nil, v
		}
	}
	if !plausible(from) {
		return nil, false
	}
	v := judge(p[6], body, to, to == gateway6)
	return s.conclude(v, to, func(port bool) []byte { return unreachable6(frame, ipv6Len+length, port) })
}

// lookNeighbour judges neighbour discovery and multicast listener messages.
// The stack would answer for any address, also for the one that the sandbox
// is about to give itself.
func lookNeighbour(body []byte, from netip.Addr) (pass, known bool) {
	if len(body) < 4 {
		return false, true
	}
	switch body[0] {
	case 135: // neighbour solicitation
		if len(body) < 24 {
			return false, true
		}
		target := netip.AddrFrom16([16]byte(body[8:24]))
		return !from.IsUnspecified() && from != gateway6 && target != inside6 && !target.IsLinkLocalUnicast(), true
	case 136: // neighbour advertisement
		return true, true
	case 130, 131, 132, 133, 134, 137, 143: // listeners, routers, redirects: nothing here to tell
		return false, true
	}
	return false, false
}

// plausible says whether a packet may come from the address.
func plausible(from netip.Addr) bool {
	return from != gateway4 && from != gateway6 && !from.IsMulticast() && !from.IsLoopback() &&
		!from.IsUnspecified() && from != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// judgement is what becomes of a packet.
type judgement struct {
	pass     bool
	protocol string // of the refusal
	port     uint16
	silent   bool // malformed: not worth a report
}

func judge(proto byte, body []byte, to netip.Addr, gateway bool) judgement {
	switch proto {
	case protoTCP:
		if len(body) < 20 || to.IsMulticast() {
			return judgement{silent: true}
		}
		return judgement{pass: true}
	case protoUDP:
		if len(body) < 8 {
			return judgement{silent: true}
		}
		port := binary.BigEndian.Uint16(body[2:])
		if gateway && port == portDNS {
			return judgement{pass: true}
		}
		if port == portDNS || port == 5353 {
			return judgement{protocol: "dns", port: port}
		}
		return judgement{protocol: "udp", port: port}
	case protoICMP, protoICMPv6:
		return judgeICMP(proto, body, to, gateway)
	}
	return judgement{protocol: "ip"}
}

// judgeICMP passes echo requests to the gateway; errors about our own packets
// are dropped without a word, since a forged one could only do harm.
func judgeICMP(proto byte, body []byte, to netip.Addr, gateway bool) judgement {
	if len(body) < 8 || to.Is4() != (proto == protoICMP) {
		return judgement{silent: true}
	}
	echo := proto == protoICMP && body[0] == 8 || proto == protoICMPv6 && body[0] == 128
	if !echo {
		return judgement{silent: true}
	}
	if gateway {
		return judgement{pass: true}
	}
	return judgement{protocol: "icmp"}
}

func (s *screen) conclude(v judgement, to netip.Addr, answer func(port bool) []byte) ([]byte, bool) {
	if v.pass || v.silent {
		return nil, v.pass
	}
	s.refused(Refused{Protocol: v.protocol, To: netip.AddrPortFrom(to, v.port)})
	if to.IsMulticast() || !s.errors.take(time.Now()) {
		return nil, false
	}
	return answer(v.protocol == "udp" || v.protocol == "dns"), false
}

// bucket is a token bucket.
type bucket struct {
	rate, size, tokens float64
	last               time.Time
}

func (b *bucket) take(now time.Time) bool {
	if !b.last.IsZero() {
		b.tokens = min(b.size, b.tokens+b.rate*now.Sub(b.last).Seconds())
	}
	b.last = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
