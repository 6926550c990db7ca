package inside

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nobody is an address that no machine has (RFC 5737).
const nobody = "203.0.113.9"

func network() map[string]func(*try) verdict {
	return map[string]func(*try) verdict{
		"egress.denied-name":       func(t *try) verdict { return t.plain(t.random()+":80", t.random()) },
		"egress.denied-name-tls":   func(t *try) verdict { n := t.random(); return t.secure(n+":443", n, n) },
		"egress.literal-address":   func(t *try) verdict { return t.plain(nobody+":80", nobody) },
		"egress.literal-tls":       func(t *try) verdict { return t.secure(nobody+":443", "", nobody) },
		"egress.literal-with-name": func(t *try) verdict { return t.secure(nobody+":443", t.plan.Allowed, t.plan.Allowed) },
		"egress.literal-host":      func(t *try) verdict { return t.plain(nobody+":80", t.plan.Allowed) },
		"egress.sni-mismatch":      func(t *try) verdict { return t.named(t.random()) },
		"egress.sni-missing":       func(t *try) verdict { return t.named("") },
		"egress.sni-beneath":       func(t *try) verdict { return t.named("x." + t.upstream()) },
		"egress.name-beneath":      func(t *try) verdict { return t.plain("x."+t.plan.Allowed+":80", "x."+t.plan.Allowed) },
		"egress.name-above":        func(t *try) verdict { return t.plain("x"+t.plan.Allowed+":80", "x"+t.plan.Allowed) },
		"egress.other-port":        func(t *try) verdict { return t.plain(t.plan.Allowed+":8080", t.plan.Allowed) },
		"egress.smtp":              func(t *try) verdict { return t.plain(t.plan.Allowed+":25", t.plan.Allowed) },
		"egress.ssh":               func(t *try) verdict { return t.plain(nobody+":22", nobody) },
		"egress.udp":               func(t *try) verdict { return t.udp(4444, []byte(t.mark()), "8.8.8.8", nobody) },
		"egress.quic":              func(t *try) verdict { return t.udp(443, quic(), "8.8.8.8", nobody, t.plan.Allowed) },
		"egress.ntp": func(t *try) verdict {
			return t.udp(123, append([]byte{0x1b}, make([]byte, 47)...), "8.8.8.8", "162.159.200.1")
		},
		"egress.icmp":             func(t *try) verdict { return echo("8.8.8.8", unix.SOCK_DGRAM) },
		"egress.raw-socket":       func(*try) verdict { return opens(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP) },
		"egress.raw-socket-6":     func(*try) verdict { return opens(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6) },
		"egress.packet-socket":    func(*try) verdict { return opens(unix.AF_PACKET, unix.SOCK_RAW, 0x0300) },
		"egress.sctp":             func(t *try) verdict { return opens(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP) },
		"egress.vsock":            func(*try) verdict { return vsock() },
		"egress.tap-device":       func(*try) verdict { return opensDevice("/dev/net/tun") },
		"egress.proxy-on-gateway": func(t *try) verdict { return t.proxies() },
		"egress.relay":            func(t *try) verdict { return t.relayed() },
		"egress.mixed":            func(t *try) verdict { return t.mixed() },
		"egress.ipv6-global":      func(t *try) verdict { return t.plain("[2001:4860:4860::8888]:80", "[2001:4860:4860::8888]") },
		"egress.ipv6-local":       func(t *try) verdict { return t.plain("[fd00::1]:80", "[fd00::1]") },
		"egress.ipv6-link":        func(t *try) verdict { return t.plain("[fe80::1%tap0]:80", "[fe80::1]") },
		"egress.ipv6-mapped":      func(t *try) verdict { return t.plain("[64:ff9b::808:808]:80", "[64:ff9b::808:808]") },
		"egress.broadcast":        func(t *try) verdict { return t.udp(t.plan.UDP, []byte(t.mark()), "255.255.255.255", "224.0.0.1") },
		"egress.websocket-upgrade": func(t *try) verdict {
			n := t.random()
			return t.says(n+":80", "GET / HTTP/1.1\r\nHost: "+n+"\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		},
		"egress.connect-method": func(t *try) verdict {
			n := t.random()
			return t.says(n+":80", "CONNECT "+n+":443 HTTP/1.1\r\nHost: "+n+":443\r\n\r\n")
		},
		"egress.not-http": func(t *try) verdict { return t.says(t.random()+":80", "\x00\x01"+t.mark()) },
	}
}

// mark is what a canary knows this check by.
func (t *try) mark() string { return t.plan.Nonce + "/" + t.id }

// random is a name that no rule allows, and nobody has.
func (t *try) random() string { return t.plan.Nonce + ".denied.test" }

func (t *try) request(host string) string {
	return "GET /" + t.mark() + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
}

func (t *try) plain(addr, host string) verdict { return t.says(addr, t.request(host)) }

// says opens a connection, says something and judges what comes back.
func (t *try) says(addr, text string) verdict {
	c, err := net.DialTimeout("tcp", addr, wait)
	if err != nil {
		return held("%s: %v", addr, err)
	}
	defer c.Close()
	return t.talk(c, addr, text)
}

// talk judges an open connection: a refusal of the gateway is in its own words,
// and whatever else is said came from somewhere.
func (t *try) talk(c net.Conn, addr, text string) verdict {
	_ = c.SetDeadline(time.Now().Add(wait))
	if _, err := io.WriteString(c, text); err != nil {
		return held("%s: %v", addr, err)
	}
	answer, err := io.ReadAll(io.LimitReader(c, 4096))
	switch got := string(answer); {
	case strings.Contains(got, `"code":"policy.`):
		_, code, _ := strings.Cut(got, `"code":"`)
		code, _, _ = strings.Cut(code, `"`)
		return held("%s: refused with %s", addr, code)
	case strings.Contains(got, `"code":"egress.`):
		return fell("%s: the gateway let it through and went looking for it: %s", addr, got)
	case got == "" && err != nil:
		return held("%s: no byte came back: %v", addr, err)
	case got == "":
		return held("%s: closed without a byte", addr)
	default:
		return fell("%s: something answered: %q", addr, got)
	}
}

// secure speaks TLS with one name and HTTP with another. Whose certificate it is
// is the gateway's business here; what is said then is judged.
func (t *try) secure(addr, sni, host string) verdict {
	c, err := net.DialTimeout("tcp", addr, wait)
	if err != nil {
		return held("%s: %v", addr, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(wait))
	s := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // G402: the attacker trusts anybody
	if err := s.Handshake(); err != nil {
		return held("%s: no TLS: %v", addr, err)
	}
	return t.talk(s, addr, t.request(host))
}

// udp sends a datagram to each address and waits for any answer.
func (t *try) udp(port int, data []byte, hosts ...string) verdict {
	v := held("a datagram to port %d of each of %s had no answer", port, strings.Join(hosts, ", "))
	sent := 0
	for _, h := range hosts {
		c, err := net.Dial("udp", net.JoinHostPort(h, strconv.Itoa(port)))
		if err != nil {
			continue
		}
		if _, err = c.Write(data); err == nil {
			sent++
		}
		_ = c.SetReadDeadline(time.Now().Add(1500 * time.Millisecond))
		b := make([]byte, 2048)
		if n, err := c.Read(b); err == nil {
			v = fell("%s: port %d answered %d bytes", h, port, n)
		}
		c.Close()
	}
	if sent == 0 && v.outcome == "held" {
		return held("no datagram could be sent to port %d", port)
	}
	return v
}

func quic() []byte {
	b := make([]byte, 1200)
	copy(b, []byte{0xc0, 0x1a, 0x2a, 0x3a, 0x4a, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0})
	return b
}

// opens says whether a kind of socket can be made at all.
func opens(family, kind, proto int) verdict {
	fd, err := unix.Socket(family, kind, proto)
	if err != nil {
		return held("socket: %v", err)
	}
	unix.Close(fd)
	return fell("the socket was made")
}

func vsock() verdict {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	if err != nil {
		return held("socket: %v", err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrVM{CID: 2, Port: 1024}); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
		return held("connect: %v", err)
	}
	return fell("the machine can be addressed by vsock")
}

// echo asks an address outside for an echo.
func echo(to string, kind int) verdict {
	fd, err := unix.Socket(unix.AF_INET, kind, unix.IPPROTO_ICMP)
	if err != nil {
		return held("socket: %v", err)
	}
	defer unix.Close(fd)
	tv := unix.Timeval{Sec: 3}
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	var addr unix.SockaddrInet4
	copy(addr.Addr[:], net.ParseIP(to).To4())
	if err := unix.Sendto(fd, []byte{8, 0, 0xf7, 0xfd, 0, 1, 0, 1}, 0, &addr); err != nil {
		return held("send: %v", err)
	}
	b := make([]byte, 256)
	if _, _, err := unix.Recvfrom(fd, b, 0); err != nil {
		return held("no echo: %v", err)
	}
	return fell("%s sent an echo", to)
}

// proxies asks the gateway to be a proxy.
func (t *try) proxies() verdict {
	var addrs []string
	for _, port := range []string{"80", "443", "1080", "3128", "8080", "8888"} {
		addrs = append(addrs, "198.18.0.1:"+port, "[fd00:cffe::1]:"+port)
	}
	return each(addrs, func(a string) verdict {
		n := t.random()
		return t.says(a, "GET http://"+n+"/"+t.mark()+" HTTP/1.1\r\nHost: "+n+"\r\nConnection: close\r\n\r\n")
	})
}

// each tries all at once. One that fell is enough.
func each[T any](all []T, f func(T) verdict) verdict {
	if len(all) == 0 {
		return untried("there is nothing to try it on")
	}
	got := make([]verdict, len(all))
	var group sync.WaitGroup
	slots := make(chan struct{}, 20)
	for i, one := range all {
		slots <- struct{}{}
		group.Go(func() { got[i] = f(one); <-slots })
	}
	group.Wait()
	worst := got[0]
	for _, v := range got {
		if v.outcome == "fell" {
			return v
		}
		if v.outcome != "held" {
			worst = v
		}
	}
	if len(all) > 1 && worst.outcome == "held" {
		worst.happened = fmt.Sprintf("%d of %d refused; the first: %s", len(all), len(all), worst.happened)
	}
	return worst
}

// relay passes connections on, as a program of the sandbox may.
func relay(to string) (addr string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer a.Close()
				b, err := net.DialTimeout("tcp", to, wait)
				if err != nil {
					return
				}
				defer b.Close()
				go func() { _, _ = io.Copy(b, a) }()
				_, _ = io.Copy(a, b)
			}()
		}
	}()
	return l.Addr().String(), func() { l.Close() }, nil
}

func (t *try) relayed() verdict {
	addr, stop, err := relay(t.random() + ":80")
	if err != nil {
		return untried("no relay: %v", err)
	}
	defer stop()
	return t.plain(addr, t.random())
}

// mixed makes 200 connections, half of them to what is allowed; the other half
// must be refused each.
func (t *try) mixed() verdict {
	n := make([]int, 200)
	for i := range n {
		n[i] = i
	}
	v := each(n, func(i int) verdict {
		if i%2 == 0 {
			if c, err := net.DialTimeout("tcp", t.plan.Allowed+":80", wait); err == nil {
				_, _ = io.WriteString(c, t.request(t.plan.Allowed))
				c.Close()
			}
			return held("was an allowed one")
		}
		return t.plain(t.random()+":80", t.random())
	})
	if v.outcome == "held" {
		v.happened = "100 connections to a name that no rule allows were refused, each, amid 100 to one that is allowed"
	}
	return v
}

func (t *try) upstream() string {
	host, _, _ := net.SplitHostPort(t.plan.Upstream)
	return host
}

// named speaks TLS to the upstream with a name of its own choice. Only the
// gateway's word is a refusal: an upstream that isn't there proves nothing.
func (t *try) named(sni string) verdict {
	v := t.secure(t.plan.Upstream, sni, t.upstream())
	if v.outcome == "held" && !strings.Contains(v.happened, "policy.") {
		return untried("the upstream may not be there: %s", v.happened)
	}
	return v
}
