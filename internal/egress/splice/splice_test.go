package splice

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// capture gives the first bytes that Go's own TLS client sends.
func capture(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		tls.Client(client, config).Handshake()
		client.Close()
	}()
	server.SetDeadline(time.Now().Add(10 * time.Second))
	head := make([]byte, 5)
	if _, err := io.ReadFull(server, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(head[3:]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	return append(head, body...)
}

func message(hello []byte) []byte { return hello[5:] }

// records spreads a handshake message over records of the given size.
func records(message []byte, size int) []byte {
	var out []byte
	for len(message) > 0 {
		n := min(size, len(message))
		out = append(out, 22, 3, 1, byte(n>>8), byte(n))
		out = append(out, message[:n]...)
		message = message[n:]
	}
	return out
}

func TestServerNameOfRealClients(t *testing.T) {
	for _, config := range []*tls.Config{
		{ServerName: "Example.COM"},
		{ServerName: "example.com", MaxVersion: tls.VersionTLS12},
		{ServerName: "example.com", NextProtos: []string{"h2", "http/1.1"}},
	} {
		hello := capture(t, config)
		if name, err := ServerName(hello); name != "example.com" || err != nil {
			t.Errorf("%q, %v", name, err)
		}
		for _, size := range []int{50, 100, 1000} {
			if name, err := ServerName(records(message(hello), size)); name != "example.com" || err != nil {
				t.Errorf("in records of %d: %q, %v", size, name, err)
			}
		}
		for i := range hello {
			if o := Look(hello[:i]); o.Kind != Unknown {
				t.Fatalf("the first %d of %d bytes: %+v", i, len(hello), o)
			}
		}
	}
	hello := capture(t, &tls.Config{ServerName: "192.0.2.1", InsecureSkipVerify: true})
	if name, err := ServerName(hello); name != "" || err != nil {
		t.Errorf("for an address: %q, %v", name, err)
	}
}

func TestAmbiguousHellosAreRefused(t *testing.T) {
	good := capture(t, &tls.Config{ServerName: "ok.test", MaxVersion: tls.VersionTLS12})
	i := bytes.Index(good, []byte("ok.test"))
	// The extension begins nine bytes before the name: type, length, list length, kind, name length.
	extension := bytes.Clone(good[i-9 : i+7])
	twice := append(bytes.Clone(message(good)), extension...)
	binary.BigEndian.PutUint16(twice[2:], uint16(len(twice)-4))
	at := extensionsAt(twice)
	binary.BigEndian.PutUint16(twice[at:], binary.BigEndian.Uint16(twice[at:])+uint16(len(extension)))

	mutate := func(f func(b []byte)) []byte { b := bytes.Clone(good); f(b); return b }
	for what, data := range map[string][]byte{
		"name twice":            records(twice, 16000),
		"bytes after":           records(append(bytes.Clone(message(good)), 0), 16000),
		"not a hello":           mutate(func(b []byte) { b[5] = 2 }),
		"kind of name":          mutate(func(b []byte) { b[i-3] = 1 }),
		"name too long":         mutate(func(b []byte) { b[i-1]++ }),
		"name too short":        mutate(func(b []byte) { b[i-1]-- }),
		"control byte in name":  mutate(func(b []byte) { b[i] = 0 }),
		"version of the record": mutate(func(b []byte) { b[1] = 2 }),
		"empty record":          {22, 3, 1, 0, 0},
		"huge":                  {22, 3, 1, 0, 4, 1, 255, 255, 255},
		"no handshake":          {22, 3, 1, 0, 1, 1, 23, 3, 1},
	} {
		if name, err := ServerName(data); !errors.Is(err, ErrHello) {
			t.Errorf("%s: %q, %v, want ErrHello", what, name, err)
		}
		if o := Look(data); o.Kind != Refusing {
			t.Errorf("%s: %+v", what, o)
		}
	}
}

// extensionsAt finds the length of the extensions in a message.
func extensionsAt(m []byte) int {
	at := 4 + 2 + 32
	at += 1 + int(m[at])
	at += 2 + int(binary.BigEndian.Uint16(m[at:]))
	return at + 1 + int(m[at])
}

func TestLook(t *testing.T) {
	for in, want := range map[string]Kind{
		"":                                       Unknown,
		"\x16":                                   Unknown,
		"GET":                                    Unknown,
		"GET /":                                  Unknown,
		"GET / HTTP/1.1\r":                       Unknown,
		"GET / HTTP/1.1\r\n":                     HTTP,
		"\r\nGET / HTTP/1.1\r\n":                 HTTP,
		"\r\n":                                   Unknown,
		"FOO\thttp://x HTTP/1.1\n":               HTTP,
		"get / http/1.0\n":                       HTTP,
		"GET /\r\n":                              Refusing,
		"PRI * HTTP/2.0\r\n":                     Refusing,
		strings.Repeat("\r\n", 20):               Refusing,
		"GET /" + strings.Repeat("a", lineMax):   Refusing,
		"SSH-2.0-OpenSSH_9.6\r\n":                Other,
		"HELO me\r\n":                            Other,
		"\x00\x00\x00\x08\x04\xd2\x16\x2f":       Other,
		"*1\r\n$4\r\nPING\r\n":                   Other,
		strings.Repeat("A", methodMax+1) + " x ": Other,
	} {
		if got := Look([]byte(in)).Kind; got != want {
			t.Errorf("%.40q: kind %d, want %d", in, got, want)
		}
	}
}

func TestCopyClosesHalf(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c) // ends only when the other side closes its half
		c.Write(bytes.ToUpper(all))
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := new(Pump).Copy(c.(*net.TCPConn), strings.NewReader("some bytes")); err != nil {
		t.Fatal(err)
	}
	back, err := io.ReadAll(c)
	if string(back) != "SOME BYTES" || err != nil {
		t.Errorf("%q, %v", back, err)
	}
}

func FuzzLook(f *testing.F) {
	f.Add(capture(f, &tls.Config{ServerName: "ok.test"}))
	f.Add(capture(f, &tls.Config{ServerName: "ok.test", MaxVersion: tls.VersionTLS12}))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		o := Look(data)
		if o.Kind == Unknown && len(data) > 2*HelloMax+lineMax {
			t.Fatalf("%d bytes and still undecided", len(data))
		}
		// Go's own parser must agree about the name of what we accept.
		if o.Kind != TLS {
			return
		}
		var seen string
		got := false
		conn := &bufferConn{Reader: bytes.NewReader(data)}
		tls.Server(conn, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			seen, got = h.ServerName, true
			return nil, errors.New("enough")
		}}).Handshake()
		if got && !strings.EqualFold(seen, strings.TrimSuffix(o.SNI, ".")) && !strings.EqualFold(seen, o.SNI) {
			t.Fatalf("we read %q, crypto/tls %q", o.SNI, seen)
		}
	})
}

// bufferConn is a connection that only gives what it holds.
type bufferConn struct {
	*bytes.Reader
	net.Conn
}

func (c *bufferConn) Read(b []byte) (int, error)       { return c.Reader.Read(b) }
func (c *bufferConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c *bufferConn) Close() error                     { return nil }
func (c *bufferConn) SetDeadline(time.Time) error      { return nil }
func (c *bufferConn) SetReadDeadline(time.Time) error  { return nil }
func (c *bufferConn) SetWriteDeadline(time.Time) error { return nil }
