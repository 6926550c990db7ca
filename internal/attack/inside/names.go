package inside

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

const gateway = "198.18.0.1"

func names() map[string]func(*try) verdict {
	return map[string]func(*try) verdict{
		"dns.unknown-name":   func(t *try) verdict { return t.lookup("ip4") },
		"dns.unknown-aaaa":   func(t *try) verdict { return t.lookup("ip6") },
		"dns.txt":            func(t *try) verdict { return t.asks(16) },
		"dns.https":          func(t *try) verdict { return t.asks(65) },
		"dns.mx":             func(t *try) verdict { return t.asks(15) },
		"dns.srv":            func(t *try) verdict { return t.asks(33) },
		"dns.null":           func(t *try) verdict { return t.asks(10) },
		"dns.any":            func(t *try) verdict { return t.asks(255) },
		"dns.transfer":       func(t *try) verdict { return t.asks(252) },
		"dns.udp-elsewhere":  func(t *try) verdict { return t.udp(53, t.query(1), "8.8.8.8", "1.1.1.1", "9.9.9.9") },
		"dns.tcp-elsewhere":  func(t *try) verdict { return t.dnsTCP("53", "8.8.8.8", "1.1.1.1", "9.9.9.9") },
		"dns.over-tls":       func(t *try) verdict { return t.dnsTCP("853", "8.8.8.8", "1.1.1.1", "9.9.9.9") },
		"dns.over-https":     func(t *try) verdict { return t.doh() },
		"dns.multicast":      func(t *try) verdict { return t.udp(5353, t.query(1), "224.0.0.251") },
		"dns.link-multicast": func(t *try) verdict { return t.udp(5355, t.query(1), "224.0.0.252") },
		"dns.netbios":        func(t *try) verdict { return t.udp(137, t.query(32), "255.255.255.255") },
		"dns.on-the-machine": func(t *try) verdict { return t.udp(t.plan.UDP, append(t.query(1), t.mark()...), t.plan.Hosts...) },
		"dns.port-53-of-the-machine": func(t *try) verdict {
			return t.udp(53, t.query(1), t.plan.Hosts...)
		},
	}
}

// secret is a name whose label would carry something out.
func (t *try) secret() string { return "s" + t.plan.Nonce + ".exit.test" }

// query is a question for that name (RFC 1035 §4).
func (t *try) query(kind uint16) []byte {
	b := []byte{0x43, 0x46, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(t.secret(), ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	b = append(b, 0)
	b = binary.BigEndian.AppendUint16(b, kind)
	return binary.BigEndian.AppendUint16(b, 1)
}

// lookup asks for a name that nobody has. An address of the gateway's own making
// says that it was not asked for outside, since outside it doesn't exist.
func (t *try) lookup(family string) verdict {
	ctx, cancel := context.WithTimeout(context.Background(), 2*wait)
	defer cancel()
	addrs, err := (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, family, t.secret())
	if err != nil {
		return fell("the answer for a name that nobody has is %v, as if it had been looked up", err)
	}
	for _, a := range addrs {
		if !virtual(a) {
			return fell("the answer is %s, which the gateway did not make", a)
		}
	}
	return held("answered with %s, an address of the gateway's own making, without a look-up", addrs[0])
}

func virtual(a netip.Addr) bool {
	return netip.MustParsePrefix("198.18.0.0/15").Contains(a.Unmap()) || netip.MustParsePrefix("fd00:cffe::/32").Contains(a)
}

// asks the gateway for another kind of record. None may come back, and no word
// that the name doesn't exist: only a look-up could tell.
func (t *try) asks(kind uint16) verdict {
	c, err := net.Dial("udp", gateway+":53")
	if err != nil {
		return untried("no socket: %v", err)
	}
	defer c.Close()
	if _, err := c.Write(t.query(kind)); err != nil {
		return untried("the gateway is not reached: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	b := make([]byte, 2048)
	n, err := c.Read(b)
	switch {
	case err != nil:
		return held("type %d has no answer: %v", kind, err)
	case n < 12:
		return fell("type %d has an answer of %d bytes", kind, n)
	case b[3]&15 == 3:
		return fell("type %d: the name is said not to exist, as if it had been looked up", kind)
	case kind != 255 && (b[6] != 0 || b[7] != 0):
		return fell("type %d has records", kind)
	}
	return held("type %d is answered with code %d and no record of it", kind, b[3]&15)
}

// dnsTCP asks others, with the length in front.
func (t *try) dnsTCP(port string, hosts ...string) verdict {
	q := t.query(1)
	return each(hosts, func(h string) verdict {
		return t.says(net.JoinHostPort(h, port), string(binary.BigEndian.AppendUint16(nil, uint16(len(q))))+string(q)) //nolint:gosec // G115: a name is short
	})
}

func (t *try) doh() verdict {
	return each([]string{"1.1.1.1", "8.8.8.8", "9.9.9.9"}, func(h string) verdict {
		return t.secure(net.JoinHostPort(h, strconv.Itoa(443)), "", h)
	})
}
