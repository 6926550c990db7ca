package postgres

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/task"
)

const placeholder = "placeholderabcdefghijklmnop"

// doorway is a listener behind which a Guest is met.
type doorway struct {
	net.Listener
	roots *x509.CertPool
	met   chan error
}

// open meets whoever comes, logs them in by the placeholder and admits them.
func open(t *testing.T) *doorway {
	t.Helper()
	far := egresstest.NewFar(t)
	cert := far.Certificate(t, "db.test", time.Now().Add(time.Hour))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	d := &doorway{Listener: l, roots: far.Roots, met: make(chan error, 100)}
	v, err := NewVerifier(placeholder)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(time.Minute))
				d.met <- welcome(t.Context(), conn, &cert, v)
			}()
		}
	}()
	return d
}

func welcome(ctx context.Context, conn net.Conn, cert *tls.Certificate, v *Verifier) error {
	g, err := Meet(ctx, conn, func() (*tls.Certificate, error) { return cert, nil })
	if err != nil || g.Cancel != nil {
		return err
	}
	defer g.Conn.Close()
	var r *Refusal
	if err := g.Authenticate(v); err != nil {
		if errors.As(err, &r) {
			_ = r.Refuse(g.Conn)
		}
		return err
	}
	greeting := Greeting{Key: &Key{1, 2}, messages: []message{
		{'S', []byte("server_version\x0015.0\x00")}, {'K', make([]byte, 8)}, {'Z', []byte("I")},
	}}
	if err := g.Admit(greeting, Key{77, 88}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, g.Conn)
	return err
}

func (d *doorway) config(t *testing.T, password string) *pgconn.Config {
	t.Helper()
	config, err := pgconn.ParseConfig(fmt.Sprintf("postgresql://app_ro:%s@%s/orders?sslmode=require", password, d.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	config.TLSConfig = &tls.Config{RootCAs: d.roots, ServerName: "db.test"}
	return config
}

// pgx's own SCRAM is the judge of ours.
func TestPgxIsMet(t *testing.T) {
	d := open(t)
	for _, binding := range []string{"", "require", "disable"} {
		config := d.config(t, placeholder)
		if binding != "" {
			config.ChannelBinding = binding
		}
		c, err := pgconn.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Errorf("%q: %v", binding, err)
			continue
		}
		if c.PID() != 77 || !bytes.Equal(c.SecretKey(), []byte{0, 0, 0, 88}) || c.ParameterStatus("server_version") != "15.0" {
			t.Errorf("%d, %v", c.PID(), c.SecretKey())
		}
		c.Close(t.Context())
		if err := <-d.met; err != nil {
			t.Error(err)
		}
	}
	var failed *pgconn.PgError
	_, err := pgconn.ConnectConfig(t.Context(), d.config(t, "another"))
	if !errors.As(err, &failed) || failed.Code != "28P01" || !strings.Contains(failed.Message, "(policy.credential)") {
		t.Errorf("another password: %v", err)
	}
	<-d.met
	config := d.config(t, placeholder)
	config.TLSConfig = nil
	if _, err := pgconn.ConnectConfig(t.Context(), config); !errors.As(err, &failed) || failed.Code != "28000" || !strings.Contains(failed.Message, "(policy.protocol)") {
		t.Errorf("without TLS: %v", err)
	}
	<-d.met
	config = d.config(t, placeholder)
	config.RuntimeParams["replication"] = "database"
	if _, err := pgconn.ConnectConfig(t.Context(), config); !errors.As(err, &failed) || failed.Code != "28000" {
		t.Errorf("replication: %v", err)
	}
}

// dial begins a connection and sends bytes.
func (d *doorway) dial(t *testing.T, b []byte) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(b); err != nil {
		t.Fatal(err)
	}
	return conn
}

func (d *doorway) secure(t *testing.T, conn net.Conn, protocols ...string) *tls.Conn {
	t.Helper()
	return tls.Client(conn, &tls.Config{RootCAs: d.roots, ServerName: "db.test", NextProtos: protocols})
}

func TestBeginnings(t *testing.T) {
	d := open(t)
	ask, gss := appendCode(nil, codeTLS), appendCode(nil, codeGSS)
	user := Startup{User: "u", Database: "d"}.append(nil)

	t.Run("GSS, then TLS", func(t *testing.T) {
		conn := d.dial(t, gss)
		answer := make([]byte, 1)
		if _, err := io.ReadFull(conn, answer); err != nil || answer[0] != 'N' {
			t.Fatalf("%q, %v", answer, err)
		}
		_, _ = conn.Write(ask)
		if _, err := io.ReadFull(conn, answer); err != nil || answer[0] != 'S' {
			t.Fatalf("%q, %v", answer, err)
		}
		if err := d.secure(t, conn).Handshake(); err != nil {
			t.Error(err)
		}
	})
	t.Run("TLS at once", func(t *testing.T) {
		for _, c := range []struct {
			protocols []string
			ok        bool
		}{{[]string{"postgresql"}, true}, {[]string{"http/1.1", "postgresql"}, true}, {[]string{"h2"}, false}, {nil, false}} {
			s := d.secure(t, d.dial(t, nil), c.protocols...)
			m := byte(0)
			if err := s.Handshake(); err == nil {
				_, _ = s.Write(user)
				if got, err := readMessage(s, 1024); err == nil {
					m = got.kind
				}
			}
			if (m == 'R') != c.ok {
				t.Errorf("%v: %q", c.protocols, m)
			}
			s.Close()
		}
	})
	t.Run("later versions", func(t *testing.T) {
		conn := d.dial(t, ask)
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		s := d.secure(t, conn)
		body := begin("\x00\x03\x00\x02", "user", "u", "_pq_.grease", "1")
		_, _ = s.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+4)), body...))
		m, err := readMessage(s, 1024)
		if err != nil || m.kind != 'v' || string(m.body) != "\x00\x03\x00\x00\x00\x00\x00\x01_pq_.grease\x00" {
			t.Fatalf("%c %q, %v", m.kind, m.body, err)
		}
		if m, err = readMessage(s, 1024); err != nil || m.kind != 'R' {
			t.Errorf("%c, %v", m.kind, err)
		}
	})
	for name, b := range map[string][]byte{
		"GSS twice":           append(bytes.Clone(gss), gss...),
		"bytes before TLS":    append(bytes.Clone(ask), user...), // CVE-2021-23214
		"HTTP":                []byte("GET / HTTP/1.1\r\n\r\n"),
		"a huge packet":       []byte("\x7f\xff\xff\xff\x00\x03\x00\x00"),
		"no packet":           []byte("\x00\x00\x00\x04"),
		"an unknown code":     appendCode(nil, 1234<<16|9999),
		"a message of SQL":    []byte("Q\x00\x00\x00\x0dselect 1\x00"),
		"a record of garbage": []byte("\x16\x03\x01\x00\x05hello"),
	} {
		conn := d.dial(t, b)
		_ = conn.(*net.TCPConn).CloseWrite()
		answer, _ := io.ReadAll(conn)
		if bytes.ContainsAny(answer, "RZ") && !bytes.HasPrefix(answer, []byte("E")) {
			t.Errorf("%s: %q", name, answer)
		}
	}
	for name, b := range map[string][]byte{"TLS within": ask, "GSS within": gss, "garbage within": []byte("\x00\x00\x00\x09\x00\x09\x00\x00x")} {
		conn := d.dial(t, ask)
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		s := d.secure(t, conn)
		_, _ = s.Write(b)
		if answer, _ := io.ReadAll(s); len(answer) > 0 {
			t.Errorf("%s: %q", name, answer)
		}
	}
}

// What a program says in place of SCRAM's messages is refused.
func TestHostilePrograms(t *testing.T) {
	d := open(t)
	for len(d.met) > 0 {
		<-d.met
	}
	for name, c := range map[string]struct {
		messages []byte
		want     string
	}{
		"a password":        {says(message{'p', []byte(placeholder + "\x00")}), "not a message"},
		"a query":           {says(message{'Q', []byte("select 1\x00")}), "not a message"},
		"another mechanism": {says(initialMessage("PLAIN", "\x00u\x00"+placeholder)), "08P01"},
		"a wrong length":    {says(message{'p', []byte("SCRAM-SHA-256\x00\x00\x00\x00\x09n,,")}), "not a message"},
		"no data":           {says(message{'p', []byte("SCRAM-SHA-256\x00\xff\xff\xff\xff")}), "not a message"},
		"a long message":    {says(message{'p', make([]byte, 2000)}), "not a message"},
		"no binding":        {says(initialMessage("SCRAM-SHA-256", "y,,n=,r=abc")), "28000"},
		"a proof at once":   {says(initialMessage("SCRAM-SHA-256", "c=biws,r=abc,p=AAAA")), "08P01"},
		"a query for a proof": {
			says(initialMessage("SCRAM-SHA-256", "n,,n=,r=abc"), message{'Q', []byte("select 1\x00")}), "not a message",
		},
		"no proof": {says(initialMessage("SCRAM-SHA-256", "n,,n=,r=abc"), message{'p', []byte("c=biws,r=abc")}), "08P01"},
	} {
		conn := d.dial(t, appendCode(nil, codeTLS))
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		s := d.secure(t, conn)
		_, _ = s.Write(append(Startup{User: "u", Database: "d"}.append(nil), c.messages...))
		err := <-d.met
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		s.Close()
	}
}

func initialMessage(mechanism, text string) message {
	body := append([]byte(mechanism), 0)
	body = binary.BigEndian.AppendUint32(body, uint32(len(text)))
	return message{'p', append(body, text...)}
}

// What we refuse is what pgx reads.
func TestRefusalsAreRead(t *testing.T) {
	var b bytes.Buffer
	if err := (&Refusal{State: "28000", Reason: task.PolicyDenied, Text: "no\nrule\x00\xff"}).Refuse(&b); err != nil {
		t.Fatal(err)
	}
	m, err := pgproto3.NewFrontend(&b, nil).Receive()
	e, ok := m.(*pgproto3.ErrorResponse)
	if err != nil || !ok || e.Code != "28000" || e.Severity != "FATAL" || e.SeverityUnlocalized != "FATAL" || e.Message != "Cofferdam: no rule   (policy.denied)" {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestKeys(t *testing.T) {
	var k Keys
	if _, ok := k.Find(Key{}); ok {
		t.Error("a key of nobody's")
	}
	one, two := k.Add(Session{Name: "a"}), k.Add(Session{Name: "b"})
	if s, ok := k.Find(one); !ok || s.Name != "a" || one == two {
		t.Errorf("%+v, %+v", one, s)
	}
	k.Remove(one)
	if _, ok := k.Find(one); ok {
		t.Error("it lasts")
	}
	if s, ok := k.Find(two); !ok || s.Name != "b" {
		t.Error("the other is gone")
	}
}
