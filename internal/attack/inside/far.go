package inside

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/attack"
)

// The ways to speak with a server outside.
const (
	clear1  = ""
	secure1 = "http/1.1"
	secure2 = "h2"
)

// marker is what the command's own servers say, and nobody else.
func (t *try) marker() string { return "far-side " + t.plan.Nonce }

// no is a path below base at which nothing of this check may arrive, may is one
// at which it may, without a value.
func (t *try) no(base string) string  { return base + "/" + attack.Must + "/" + t.mark() }
func (t *try) may(base string) string { return base + "/" + attack.May + "/" + t.mark() }

// placeholder is what stands for a credential here; empty: none is lent.
func placeholder(variable string) string { return os.Getenv(variable) }

// open connects to one of the command's servers.
func open(name string, port int, how string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(name, strconv.Itoa(port)), wait)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(2 * wait))
	if how == clear1 {
		return c, nil
	}
	s := tls.Client(c, &tls.Config{ServerName: name, NextProtos: []string{how}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}) //nolint:gosec // G402: the attacker trusts anybody
	if err := s.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return s, nil
}

// hear says a text and gives what is answered, until the end, the deadline, or
// as soon as enough says so; nil: never.
func hear(c net.Conn, text string, enough func(string) bool) (string, error) {
	if _, err := io.WriteString(c, text); err != nil {
		return "", err
	}
	var said strings.Builder
	b := make([]byte, 16<<10)
	for said.Len() < 1<<20 {
		n, err := c.Read(b)
		said.Write(b[:n])
		if err != nil {
			return said.String(), err
		}
		if enough != nil && enough(said.String()) {
			break
		}
	}
	return said.String(), nil
}

// code is the reason that the gateway gave; empty: it refused nothing.
func code(answer string) string {
	_, rest, ok := strings.Cut(answer, `"code":"`)
	if !ok {
		return ""
	}
	c, _, _ := strings.Cut(rest, `"`)
	return c
}

// request is one request of HTTP/1.
type request struct {
	name         string // of the server
	port         int
	how          string
	method, path string // empty: GET
	host         string // empty: the server's
	fields       []string
	body         string
}

func (q request) text() string {
	if q.method == "" {
		q.method = "GET"
	}
	if q.host == "" {
		q.host = net.JoinHostPort(q.name, strconv.Itoa(q.port))
	}
	lines := []string{q.method + " " + q.path + " HTTP/1.1", "Host: " + q.host}
	lines = append(lines, q.fields...)
	if q.body != "" {
		lines = append(lines, "Content-Length: "+strconv.Itoa(len(q.body)))
	}
	return strings.Join(append(lines, "Connection: close", "", ""), "\r\n") + q.body
}

// send sends it and gives the answer, which is empty where there was none.
func (q request) send() (string, error) {
	c, err := open(q.name, q.port, q.how)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return hear(c, q.text(), nil)
}

// refused judges what must not have arrived. Only the gateway's own word is a
// refusal; what arrived all the same is counted at the server, too.
func (t *try) refused(what, answer string, err error) verdict {
	switch c := code(answer); {
	case strings.Contains(answer, t.marker()):
		return fell("%s: the far side answered", what)
	case strings.HasPrefix(c, "policy."):
		return held("%s: refused with %s", what, c)
	case strings.HasPrefix(answer, "HTTP/1.1 4"):
		line, _, _ := strings.Cut(answer, "\r\n")
		return held("%s: refused with %s", what, line)
	case strings.HasPrefix(c, "egress."):
		return fell("%s: the gateway let it through: %s", what, c)
	default:
		return untried("%s: nothing was said: %q, %v", what, answer, err)
	}
}

// forbidden sends what must be refused.
func (t *try) forbidden(q request) verdict {
	answer, err := q.send()
	return t.refused(q.method+" "+q.path, answer, err)
}

// frame is a frame of HTTP/2 (RFC 9113 §4.1).
func frame(kind, flags byte, stream uint32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body))<<8|uint32(kind))
	b = append(b, flags)
	return append(binary.BigEndian.AppendUint32(b, stream), body...)
}

// fields are a header block that names nothing by number (RFC 7541 §6.2.2).
func fields(all [][2]string) []byte {
	var b []byte
	str := func(s string) {
		// Lengths of 127 and more go on in sevens of bits.
		n := len(s)
		if n < 127 {
			b = append(b, byte(n))
		} else {
			b = append(b, 127)
			for n -= 127; n >= 128; n >>= 7 {
				b = append(b, byte(n)|128)
			}
			b = append(b, byte(n))
		}
		b = append(b, s...)
	}
	for _, f := range all {
		b = append(b, 0)
		str(f[0])
		str(f[1])
	}
	return b
}

// second asks over HTTP/2 and gives all that came, as it came, and whether the
// stream or the connection was ended by an error.
func second(name string, port int, all [][2]string, body string) (answer string, ended bool, err error) {
	c, err := open(name, port, secure2)
	if err != nil {
		return "", false, err
	}
	defer c.Close()
	flags := byte(4) // END_HEADERS
	if body == "" {
		flags |= 1 // END_STREAM
	}
	out := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...)
	out = append(out, frame(1, flags, 1, fields(all))...)
	if body != "" {
		out = append(out, frame(0, 1, 1, []byte(body))...)
	}
	answer, err = hear(c, string(out), func(said string) bool { ended = ended || reset(said); return ended || finished(said) })
	return answer, ended || reset(answer), err
}

// frames calls f with each whole frame that is not about the connection's state.
func frames(said string, f func(kind, flags byte, body string)) {
	for len(said) >= 9 {
		n := int(said[0])<<16 | int(said[1])<<8 | int(said[2])
		if len(said) < 9+n {
			return
		}
		f(said[3], said[4], said[9:9+n])
		said = said[9+n:]
	}
}

// reset says whether the stream or the connection was ended.
func reset(said string) (is bool) {
	frames(said, func(kind, _ byte, _ string) { is = is || kind == 3 || kind == 7 })
	return is
}

// badRequest says whether the answer is 400 or 404, which have numbers of their own
// (RFC 7541, appendix A).
func badRequest(said string) (is bool) {
	frames(said, func(kind, _ byte, body string) {
		is = is || kind == 1 && body != "" && (body[0] == 0x8c || body[0] == 0x8d)
	})
	return is
}

// finished says whether an answer is whole.
func finished(said string) (is bool) {
	frames(said, func(kind, flags byte, _ string) { is = is || kind <= 1 && flags&1 != 0 })
	return is
}
