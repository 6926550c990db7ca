package netstack

import (
	"encoding/binary"
	"net/netip"
	"testing"
)

func ethernet(kind uint16, packet []byte) []byte {
	f := append([]byte{}, GatewayMAC()...)
	f = append(f, 2, 0xcf, 0xfd, 0, 0, 2)
	return append(binary.BigEndian.AppendUint16(f, kind), packet...)
}

func packet4(proto byte, to string, body []byte) []byte {
	p := make([]byte, ipv4Len, ipv4Len+len(body))
	p[0], p[8], p[9] = 0x45, 64, proto
	binary.BigEndian.PutUint16(p[2:], uint16(ipv4Len+len(body)))
	copy(p[12:], inside4.AsSlice())
	copy(p[16:], netip.MustParseAddr(to).AsSlice())
	return append(p, body...)
}

func packet6(next byte, to string, body []byte) []byte {
	p := make([]byte, ipv6Len, ipv6Len+len(body))
	p[0], p[6], p[7] = 0x60, next, 64
	binary.BigEndian.PutUint16(p[4:], uint16(len(body)))
	copy(p[8:], inside6.AsSlice())
	copy(p[24:], netip.MustParseAddr(to).AsSlice())
	return append(p, body...)
}

func segment(n int, first ...byte) []byte {
	return append(first, make([]byte, n-len(first))...)
}

func TestScreen(t *testing.T) {
	udp53 := segment(12, 0x30, 0x39, 0, 53, 0, 12)
	udp443 := segment(12, 0x30, 0x39, 1, 187, 0, 12)
	change := func(f []byte, at int, b byte) []byte { f[at] = b; return f }
	for _, c := range []struct {
		what    string
		frame   []byte
		pass    bool
		answer  bool
		refused string
	}{
		{"tcp anywhere", ethernet(etherIPv4, packet4(6, "1.2.3.4", segment(20))), true, false, ""},
		{"tcp anywhere, 6", ethernet(etherIPv6, packet6(6, "2001:db8::1", segment(20))), true, false, ""},
		{"dns", ethernet(etherIPv4, packet4(17, "198.18.0.1", udp53)), true, false, ""},
		{"dns, 6", ethernet(etherIPv6, packet6(17, "fd00:cffe::1", udp53)), true, false, ""},
		{"dns elsewhere", ethernet(etherIPv4, packet4(17, "8.8.8.8", udp53)), false, true, "dns"},
		{"dns elsewhere, 6", ethernet(etherIPv6, packet6(17, "2001:4860:4860::8888", udp53)), false, true, "dns"},
		{"quic", ethernet(etherIPv4, packet4(17, "198.18.1.1", udp443)), false, true, "udp"},
		{"quic, 6", ethernet(etherIPv6, packet6(17, "fd00:cffe:1::1", udp443)), false, true, "udp"},
		{"multicast", ethernet(etherIPv4, packet4(17, "224.0.0.251", segment(12, 0, 1, 0x14, 0xe9))), false, false, "dns"},
		{"ping", ethernet(etherIPv4, packet4(1, "198.18.0.1", segment(8, 8))), true, false, ""},
		{"ping, 6", ethernet(etherIPv6, packet6(58, "fd00:cffe::1", segment(8, 128))), true, false, ""},
		{"ping elsewhere", ethernet(etherIPv4, packet4(1, "1.1.1.1", segment(8, 8))), false, true, "icmp"},
		{"ping elsewhere, 6", ethernet(etherIPv6, packet6(58, "2001:db8::1", segment(8, 128))), false, true, "icmp"},
		{"sctp", ethernet(etherIPv4, packet4(132, "1.1.1.1", segment(20))), false, true, "ip"},
		{"gre, 6", ethernet(etherIPv6, packet6(47, "2001:db8::1", segment(20))), false, true, "ip"},
		{"extension headers", ethernet(etherIPv6, packet6(0, "2001:db8::1", segment(40, 6))), false, true, "ip"},
		{"forged error", ethernet(etherIPv4, packet4(1, "198.18.0.1", segment(36, 3, 4))), false, false, ""},
		{"redirect, 6", ethernet(etherIPv6, packet6(58, "fd00:cffe::1", segment(40, 137))), false, false, ""},
		{"fragment", change(ethernet(etherIPv4, packet4(6, "1.2.3.4", segment(20))), 14+6, 0x20), false, false, ""},
		{"later fragment", change(ethernet(etherIPv4, packet4(6, "1.2.3.4", segment(20))), 14+7, 9), false, false, ""},
		{"options", change(ethernet(etherIPv4, packet4(6, "1.2.3.4", segment(24))), 14, 0x46), false, false, ""},
		{"another's address", change(ethernet(etherIPv4, packet4(6, "1.2.3.4", segment(20))), 0, 4), false, false, ""},
		{"from the gateway", change(ethernet(etherIPv4, packet4(6, "1.2.3.4", segment(20))), 14+15, 1), false, false, ""},
		{"vlan", ethernet(0x8100, segment(60)), false, false, ""},
		{"short", []byte{1, 2, 3}, false, false, ""},
	} {
		refused := ""
		s := newScreen(GatewayMAC(), func(r Refused) { refused = r.Protocol })
		answer, pass := s.look(c.frame)
		if pass != c.pass || (answer != nil) != c.answer || refused != c.refused {
			t.Errorf("%s: pass %v, answer %x, refused %q", c.what, pass, answer, refused)
		}
	}
}

func TestUnreachableIsAValidPacket(t *testing.T) {
	frame := ethernet(etherIPv4, packet4(17, "8.8.8.8", segment(1000)))
	out := unreachable4(frame, 1020, true)[ethernetLen:]
	if checksum(0, out[:ipv4Len]) != 0 || checksum(0, out[ipv4Len:]) != 0 || out[20] != 3 || out[21] != 3 || len(out) > 576 {
		t.Errorf("IPv4: %x", out[:28])
	}
	frame = ethernet(etherIPv6, packet6(17, "2001:db8::1", segment(1000)))
	out = unreachable6(frame, 1040, false)[ethernetLen:]
	pseudo := sum(uint32(len(out)-ipv6Len)+protoICMPv6, out[8:40])
	if checksum(pseudo, out[ipv6Len:]) != 0 || out[40] != 1 || out[41] != 1 || len(out) > 1280 {
		t.Errorf("IPv6: %x", out[:48])
	}
}

func FuzzScreen(f *testing.F) {
	f.Add(ethernet(etherIPv4, packet4(17, "8.8.8.8", segment(12))))
	f.Add(ethernet(etherIPv6, packet6(58, "fd00:cffe::1", segment(24, 135))))
	f.Add(ethernet(etherARP, segment(28, 0, 1, 8, 0, 6, 4)))
	f.Fuzz(func(t *testing.T, frame []byte) {
		s := newScreen(GatewayMAC(), func(Refused) {})
		answer, pass := s.look(frame)
		if pass && answer != nil {
			t.Fatal("passed and answered")
		}
		if len(answer) > 1294 {
			t.Fatalf("an answer of %d bytes", len(answer))
		}
	})
}
