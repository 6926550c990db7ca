package postgres

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/cofferdam/cofferdam/internal/task"
)

// alpn is what PostgreSQL's clients and servers call their protocol in TLS.
const alpn = "postgresql"

// handshakeRecord is the first byte of TLS that nobody asked for first
// (sslnegotiation=direct); no packet begins with it.
const handshakeRecord = 22

// Guest is the program inside, once it has said what it wants. Exactly one of
// Startup and Cancel is set.
type Guest struct {
	Startup *Startup
	Cancel  *Key
	// Name is the server name of its TLS; empty where it sent none.
	Name string

	// Conn carries what comes after; TLS, but for a request to cancel, which old
	// clients send in the clear.
	Conn    net.Conn
	binding []byte
	proof   []byte // ours, to be sent once the session is there
}

// Meet reads a connection's beginning up to the start-up or the request to
// cancel. TLS ends under the certificate; a start-up in the clear is refused.
// Errors that are a *Refusal were told to the program.
func Meet(ctx context.Context, conn net.Conn, certificate func() (*tls.Certificate, error)) (*Guest, error) {
	g := &Guest{Conn: conn}
	err := g.meet(ctx, certificate)
	var refused *Refusal
	if errors.As(err, &refused) {
		_ = refused.Refuse(g.Conn)
	}
	return g, err
}

func (g *Guest) meet(ctx context.Context, certificate func() (*tls.Certificate, error)) error {
	var asked packet // once each
	for {
		first := make([]byte, 1)
		if _, err := g.Conn.Read(first); err != nil {
			return err
		}
		if first[0] == handshakeRecord {
			return g.encrypt(ctx, &begun{Conn: g.Conn, first: first}, certificate, true)
		}
		p, err := readPacket(g.Conn, first)
		switch {
		case err != nil:
			return err
		case p.cancel != nil:
			g.Cancel = p.cancel
			return nil
		case p.gss && !asked.gss:
			asked.gss = true
			if _, err := g.Conn.Write([]byte{'N'}); err != nil {
				return err
			}
		case p.tls:
			if _, err := g.Conn.Write([]byte{'S'}); err != nil {
				return err
			}
			return g.encrypt(ctx, g.Conn, certificate, false)
		case p.startup != nil:
			return &Refusal{State: "28000", Reason: task.PolicyProtocol, Text: "connect with TLS: sslmode=verify-full, or at least require"}
		default:
			return ErrMalformed
		}
	}
}

// encrypt ends TLS and reads the packet within it.
func (g *Guest) encrypt(ctx context.Context, conn net.Conn, certificate func() (*tls.Certificate, error), direct bool) error {
	server := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{alpn},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, err := certificate()
			if err != nil {
				return nil, err
			}
			if len(c.Certificate) == 0 || len(c.Certificate[0]) == 0 {
				return nil, errors.New("no certificate")
			}
			// Our authority signs with SHA-256, so that is the hash (RFC 5929 §4.1).
			hash := sha256.Sum256(c.Certificate[0])
			g.binding = hash[:]
			return c, nil
		},
	})
	if err := server.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("handshake inside: %w", err)
	}
	state := server.ConnectionState()
	if direct && state.NegotiatedProtocol != alpn {
		return fmt.Errorf("%w: TLS that is for another protocol", ErrMalformed)
	}
	g.Conn, g.Name = server, state.ServerName
	p, err := readPacket(server, nil)
	switch {
	case err != nil:
		return err
	case p.startup == nil && p.cancel == nil:
		return fmt.Errorf("%w: encryption within TLS", ErrMalformed)
	}
	g.Startup, g.Cancel = p.startup, p.cancel
	return nil
}

// begun is a connection whose first byte was read.
type begun struct {
	net.Conn
	first []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.Conn.Read(p)
}

// Authenticate has the program prove the verifier's password by SCRAM; it is
// asked for in no other way. The program is not told yet that it succeeded. An
// error that is a *Refusal is still to be told.
func (g *Guest) Authenticate(v *Verifier) error {
	if err := g.negotiate(); err != nil {
		return err
	}
	offer := []byte(scramPlus + "\x00" + scram + "\x00\x00")
	if _, err := g.Conn.Write(authentication(authSASL, offer).append(nil)); err != nil {
		return err
	}
	m, err := readMessage(g.Conn, saslMax)
	if err != nil {
		return err
	}
	mechanism, in, err := initial(m)
	if err != nil {
		return err
	}
	s := &serving{verifier: v, binding: g.binding, random: rand.Reader}
	out, err := s.begin(mechanism, in)
	if err != nil {
		return g.refused(err)
	}
	if _, err := g.Conn.Write(authentication(authContinue, out).append(nil)); err != nil {
		return err
	}
	if m, err = readMessage(g.Conn, saslMax); err != nil {
		return err
	}
	if m.kind != 'p' {
		return ErrMalformed
	}
	if g.proof, err = s.finish(m.body); err != nil {
		return g.refused(err)
	}
	return nil
}

// End ends TLS as servers do before the connection is closed: without it what
// came last, be it nothing, may have been cut.
func (g *Guest) End() {
	if secure, ok := g.Conn.(*tls.Conn); ok {
		_ = secure.CloseWrite() // who is gone does not need it
	}
}

// negotiate says that neither a later minor version nor an extension of the
// protocol is spoken, to who asked for one.
func (g *Guest) negotiate() error {
	if g.Startup.Minor == 0 && len(g.Startup.Unknown) == 0 {
		return nil
	}
	body := binary.BigEndian.AppendUint32(nil, version3)
	body = binary.BigEndian.AppendUint32(body, uint32(len(g.Startup.Unknown))) //nolint:gosec // bounded by the packet
	for _, name := range g.Startup.Unknown {
		body = append(append(body, name...), 0)
	}
	_, err := g.Conn.Write(message{'v', body}.append(nil))
	return err
}

// initial reads the message that chooses a mechanism (SASLInitialResponse).
func initial(m message) (mechanism string, in []byte, err error) {
	name, rest, ok := bytes.Cut(m.body, []byte{0})
	if m.kind != 'p' || !ok || len(rest) < 4 || int64(binary.BigEndian.Uint32(rest)) != int64(len(rest)-4) {
		return "", nil, ErrMalformed
	}
	return string(name), rest[4:], nil
}

func (g *Guest) refused(err error) error {
	switch {
	case errors.Is(err, errPassword):
		return &Refusal{
			State: "28P01", Reason: task.PolicyCredential,
			Text: fmt.Sprintf("password authentication failed for user %s; send the placeholder that PGPASSWORD has", quoted(g.Startup.User)),
		}
	case errors.Is(err, errBinding):
		return &Refusal{State: "28000", Reason: task.PolicyProtocol, Text: "the channel binding is for another certificate, or was not offered to the client"}
	case errors.Is(err, errScram):
		return &Refusal{State: "08P01", Reason: task.PolicyProtocol, Text: "malformed message of SCRAM"}
	}
	return err
}

// Admit tells the program that its session is there, with what the server said
// of it. key stands for the server's own, in the place where that one was.
func (g *Guest) Admit(greeting Greeting, key Key) error {
	out := authentication(authFinal, g.proof).append(nil)
	out = authentication(authOK, nil).append(out)
	for _, m := range greeting.messages {
		if m.kind == 'K' {
			m.body = slices.Concat(binary.BigEndian.AppendUint32(nil, key.Process), binary.BigEndian.AppendUint32(nil, key.Secret))
		}
		out = m.append(out)
	}
	_, err := g.Conn.Write(out)
	return err
}
