package postgres

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Secure asks a server for TLS and verifies it by the configuration, which names
// the server. A server that speaks none is refused: nothing goes to it in the
// clear but the question.
func Secure(ctx context.Context, conn net.Conn, config *tls.Config) (*tls.Conn, error) {
	if _, err := conn.Write(appendCode(nil, codeTLS)); err != nil {
		return nil, err
	}
	// One byte: what a server sent before TLS is not taken for what it says within.
	answer := make([]byte, 1)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return nil, err
	}
	if answer[0] != 'S' {
		return nil, &Refusal{State: "28000", Reason: task.EgressUntrusted, Text: "the server does not speak TLS, and no password is proved to it without"}
	}
	config = config.Clone()
	config.NextProtos = []string{alpn}
	client := tls.Client(conn, config)
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return client, nil
}

// Greeting is what a server says between the login and being ready.
type Greeting struct {
	Key      *Key // of the session; nil: it can't be cancelled
	messages []message
}

// Login logs in at a server and reads until it is ready. password is asked for
// once the server wants it proved by SCRAM; its errors are given as they are.
// What a server refuses is a *Refusal without a reason.
func Login(conn *tls.Conn, s Startup, password func() (task.Secret, error)) (Greeting, error) {
	state := conn.ConnectionState()
	if len(state.PeerCertificates) == 0 || len(state.VerifiedChains) == 0 {
		return Greeting{}, errors.New("TLS is not verified")
	}
	return (&login{conn: conn, certificate: state.PeerCertificates[0], random: rand.Reader, password: password}).run(s)
}

type login struct {
	conn        io.ReadWriter
	certificate *x509.Certificate
	random      io.Reader
	password    func() (task.Secret, error)
	secret      task.Secret
}

func (l *login) run(s Startup) (Greeting, error) {
	if _, err := l.conn.Write(s.append(nil)); err != nil {
		return Greeting{}, err
	}
	offer, err := l.expect(authSASL)
	if err != nil {
		return Greeting{}, err
	}
	exchange, err := l.choose(offer)
	if err != nil {
		return Greeting{}, err
	}
	if l.secret, err = l.password(); err != nil {
		return Greeting{}, err
	}
	if err := l.prove(exchange); err != nil {
		return Greeting{}, err
	}
	return l.greeting()
}

// expect reads the next authentication request and refuses any other than the
// one that is wanted.
func (l *login) expect(want uint32) ([]byte, error) {
	for range 16 {
		m, err := readMessage(l.conn, farMax)
		if err != nil {
			return nil, err
		}
		switch m.kind {
		case 'N': // a notice: nobody is there yet to read it
			continue
		case 'E':
			return nil, l.refusal(m.body)
		case 'R':
		default:
			return nil, fmt.Errorf("%w: message %q before the login", ErrMalformed, m.kind)
		}
		request, rest, err := readAuthentication(m.body)
		switch {
		case err != nil:
			return nil, err
		case request != want:
			return nil, &Refusal{State: "28000", Reason: task.PolicyCredential, Text: unwanted(request)}
		}
		return rest, nil
	}
	return nil, fmt.Errorf("%w: too many notices", ErrMalformed)
}

// unwanted says why a way to log in is not gone.
func unwanted(request uint32) string {
	names := map[uint32]string{2: "Kerberos V5", 3: "a cleartext password", 5: "an MD5 password", 6: "SCM credentials", 7: "GSSAPI", 9: "SSPI"}
	switch name := names[request]; {
	case request == authOK:
		return "the server let us in without a proof of the password, so it proves nothing either; set scram-sha-256 for this role in its pg_hba.conf"
	case name != "":
		return "the server asks for " + name + ", and the password is proved by SCRAM-SHA-256 alone; set scram-sha-256 for this role in its pg_hba.conf"
	}
	return fmt.Sprintf("the server asks for an authentication (%d) that is out of turn or not known; only SCRAM-SHA-256 is", request)
}

// choose takes a mechanism of those that the server offers.
func (l *login) choose(offer []byte) (*asking, error) {
	offered, err := texts(offer)
	if err != nil {
		return nil, err
	}
	a := &asking{random: l.random}
	if slices.Contains(offered, scramPlus) {
		a.binding = bindingOf(l.certificate)
	}
	if !slices.Contains(offered, a.mechanism()) {
		return nil, &Refusal{State: "28000", Reason: task.PolicyCredential, Text: "the server offers " + quoted(strings.Join(offered, ", ")) + ", and the password is proved by SCRAM-SHA-256 alone"}
	}
	return a, nil
}

// bindingOf is what a server of the certificate binds its channel to (RFC 5929
// §4.1); nil where its signature has no hash of its own.
func bindingOf(c *x509.Certificate) []byte {
	var hash crypto.Hash
	switch c.SignatureAlgorithm {
	case x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.MD5WithRSA, x509.SHA256WithRSA, x509.ECDSAWithSHA256:
		hash = crypto.SHA256
	case x509.SHA384WithRSA, x509.ECDSAWithSHA384:
		hash = crypto.SHA384
	case x509.SHA512WithRSA, x509.ECDSAWithSHA512:
		hash = crypto.SHA512
	default:
		return nil
	}
	h := hash.New()
	h.Write(c.Raw)
	return h.Sum(nil)
}

// prove goes through SCRAM up to the server's yes.
func (l *login) prove(a *asking) error {
	first, err := a.begin()
	if err != nil {
		return err
	}
	body := append([]byte(a.mechanism()), 0)
	body = append(binary.BigEndian.AppendUint32(body, uint32(len(first))), first...)
	if _, err := l.conn.Write(message{'p', body}.append(nil)); err != nil {
		return err
	}
	in, err := l.expect(authContinue)
	if err != nil {
		return err
	}
	out, err := a.answer(in, l.secret.Reveal())
	if err != nil {
		return untrusted(err)
	}
	if _, err := l.conn.Write(message{'p', out}.append(nil)); err != nil {
		return err
	}
	if in, err = l.expect(authFinal); err != nil {
		return err
	}
	if err := a.verify(in); err != nil {
		return untrusted(err)
	}
	_, err = l.expect(authOK)
	return err
}

// untrusted is a server that does not prove that it knows the password.
func untrusted(err error) error {
	text := "the server does not prove that it knows the password"
	if errors.Is(err, errScram) {
		text = "the server's part of SCRAM can't be taken: " + err.Error()
	}
	return &Refusal{State: "28000", Reason: task.EgressUntrusted, Text: text}
}

// greeting reads until the server is ready for statements.
func (l *login) greeting() (Greeting, error) {
	var g Greeting
	size := 0
	for size <= greetingMax {
		m, err := readMessage(l.conn, farMax)
		if err != nil {
			return g, err
		}
		size += len(m.body) + 5
		switch m.kind {
		case 'E':
			return g, l.refusal(m.body)
		case 'K':
			if len(m.body) != 8 || g.Key != nil {
				return g, fmt.Errorf("%w: the session's key", ErrMalformed)
			}
			g.Key = &Key{binary.BigEndian.Uint32(m.body), binary.BigEndian.Uint32(m.body[4:])}
		case 'S', 'N', 'Z':
		default:
			return g, fmt.Errorf("%w: message %q before the session is ready", ErrMalformed, m.kind)
		}
		if g.messages = append(g.messages, m); m.kind == 'Z' {
			return g, nil
		}
	}
	return g, fmt.Errorf("%w: more than %d bytes before the session is ready", ErrMalformed, greetingMax)
}

// refusal reads what a server refuses. Should it hold the password, which the
// server was never sent, that is taken out.
func (l *login) refusal(body []byte) error {
	r, err := parseError(body)
	if err != nil {
		return err
	}
	if !l.secret.Empty() {
		r.Text = strings.ReplaceAll(r.Text, l.secret.Reveal(), l.secret.String())
	}
	r.Text = "the server says: " + r.Text
	return r
}

// Cancel asks a server to cancel what runs in the session of the key, and waits
// until it has taken the request.
func Cancel(conn net.Conn, k Key) error {
	if _, err := conn.Write(appendCode(nil, codeCancel, k.Process, k.Secret)); err != nil {
		return err
	}
	// A server answers nothing and closes.
	_, err := io.Copy(io.Discard, io.LimitReader(conn, farMax))
	return err
}
