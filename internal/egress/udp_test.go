package egress

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/cofferdam/cofferdam/internal/task"
)

// UDP, QUIC among it, is refused at once, over IPv6 as over IPv4, also to what
// is allowed: clients fall back instead of waiting.
func TestUDPIsRefusedAtOnce(t *testing.T) {
	r := newRig(t, []task.Rule{private("ok.test", 443, 4433)})
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		named, err := r.client.Lookup(r.ctx(), "ok.test", kind)
		if err != nil {
			t.Fatal(err)
		}
		literal := map[uint16]string{dns.TypeA: "192.0.2.1", dns.TypeAAAA: "2001:db8::1"}[kind]
		for _, addr := range []netip.Addr{named, netip.MustParseAddr(literal)} {
			for _, port := range []uint16{443, 4433, 123} {
				c, err := r.client.Packet(netip.AddrPortFrom(addr, port))
				if err != nil {
					t.Fatal(err)
				}
				if !refusedPacket(c) {
					t.Errorf("UDP to %s port %d is not refused", addr, port)
				}
				c.Close()
			}
		}
	}
	r.await("QUIC", func(rec task.EgressRecord) bool {
		return rec.Protocol == "udp" && rec.Name == "ok.test" && rec.Port == 443 && rec.Reason == task.PolicyProtocol && rec.Verdict == "denied"
	})
}

// refusedPacket sends until the other side says that nothing is there: the
// error of one packet is told with the next, and comes at a limited rate.
func refusedPacket(c net.Conn) bool {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if _, err := c.Write([]byte("\xc0hello")); err != nil {
			return true
		}
		c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		if slow, ok := err.(net.Error); err != nil && (!ok || !slow.Timeout()) {
			return true
		}
	}
	return false
}

// A literal IPv6 address is decided, guarded and refused as an IPv4 one is, in
// whatever way it carries one.
func TestIPv6IsPolicedAsIPv4(t *testing.T) {
	u := httpServer(t)
	r := newRig(t, []task.Rule{{ID: "p", Host: "6.test", Ports: []uint16{80, u.port}}, private("ok.test", u.port)})
	for name, address := range map[string]string{
		"loopback": "::1", "mapped": "::ffff:127.0.0.1", "link-local": "fe80::1", "unique local": "fd12::1", "translated": "64:ff9b::7f00:1", "6to4": "2002:7f00:1::",
	} {
		r.resolver.set("6.test", addrs(address))
		status, body := r.get(r.http(nil), "http://6.test/")
		if status != 403 || code(t, body) != task.PolicyAddress {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
	c, err := r.client.DialName(r.ctx(), "tcp6", "ok.test", u.port)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, to := range []string{"[2001:db8::1]:80", "[fd00:cffe::1]:80"} {
		addr := netip.MustParseAddrPort(to)
		if c, err := r.client.Dial(r.ctx(), addr); err == nil {
			c.SetDeadline(time.Now().Add(time.Minute))
			c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
			buf := make([]byte, 12)
			n, _ := c.Read(buf)
			if string(buf[:n]) != "HTTP/1.1 403" {
				t.Errorf("%s: %q", to, buf[:n])
			}
			c.Close()
		}
	}
	if u.bytes.Load() != 0 {
		t.Error("the upstream was reached")
	}
}
