package apart

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/attack"
)

// Far are the servers outside: they keep what arrived that must not have, and
// repeat what they were sent.
type Far struct {
	PEM     []byte // the authority of their certificates
	Names   string // HOST:PORT of the resolver that knows their names
	Ports   attack.Far
	Values  [4]string // of the key, the query's, the password and git's
	nonce   string
	closers []func() error

	mu    sync.Mutex
	fell  map[string]string // by check: what arrived
	right map[string]bool   // by value: it arrived where it belongs
	asked int
}

// NewFar starts them on the loopback.
func NewFar(nonce string) (f *Far, err error) {
	f = &Far{nonce: nonce, fell: map[string]string{}, right: map[string]bool{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	f.Ports.Begins = "cfdreal" + strings.ToLower(rand.Text()[:20])
	for i := range f.Values {
		f.Values[i] = f.Ports.Begins + rand.Text()
	}
	certs, err := f.certificates(attack.FarName, attack.ElseName)
	if err != nil {
		return f, err
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, Certificates: certs}
	for _, s := range []struct {
		port *int
		tls  *tls.Config
	}{{&f.Ports.Bound, secure}, {&f.Ports.Other, secure}, {&f.Ports.Plain, nil}} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return f, err
		}
		*s.port = l.Addr().(*net.TCPAddr).Port
		if s.tls != nil {
			l = tls.NewListener(l, s.tls)
		}
		server := &http.Server{Handler: f.at(*s.port), ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)}
		go func() { _ = server.Serve(&watched{l, f}) }()
		f.closers = append(f.closers, server.Close)
	}
	return f, f.resolve()
}

// certificates makes an authority and a certificate of it for each name. The
// first is for whoever asks for another name.
func (f *Far) certificates(names ...string) ([]tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "attack"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return nil, err
	}
	f.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	var all []tls.Certificate
	for i, name := range names {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, err
		}
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 2), NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, DNSNames: []string{name},
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, own.Public(), key)
		if err != nil {
			return nil, err
		}
		all = append(all, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: own})
	}
	return all, nil
}

// resolve answers for names: those of the servers are on the loopback, and there
// are no others.
func (f *Far) resolve() error {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f.Names, f.closers = u.LocalAddr().String(), append(f.closers, u.Close)
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			if a := answer(b[:n]); a != nil {
				_, _ = u.WriteTo(a, from)
			}
		}
	}()
	return nil
}

// answer makes the answer to a question (RFC 1035 §4); nil: it is none.
func answer(q []byte) []byte {
	if len(q) < 17 || q[2]&0x80 != 0 || q[4] != 0 || q[5] != 1 {
		return nil
	}
	var labels []string
	at := 12
	for at < len(q) && q[at] != 0 {
		n := int(q[at])
		if n > 63 || at+1+n > len(q) {
			return nil
		}
		labels = append(labels, strings.ToLower(string(q[at+1:at+1+n])))
		at += 1 + n
	}
	end := at + 5
	if end > len(q) {
		return nil
	}
	known := slices.Contains([]string{attack.FarName, attack.ElseName, attack.FalseName}, strings.Join(labels, "."))
	a := append([]byte{q[0], q[1], 0x84 | q[2]&1, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, q[12:end]...)
	switch {
	case !known:
		a[3] |= 3 // there is no such name
	case q[at+1] == 0 && q[at+2] == 1:
		a[7] = 1
		a = append(a, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, 127, 0, 0, 1)
	}
	return a
}

// Close ends them.
func (f *Far) Close() error {
	var errs []error
	for _, c := range f.closers {
		if err := c(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Fell says what arrived of checks that must not have; Right whether each value
// arrived where it belongs, without which nothing is proved.
func (f *Far) Fell() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[string]string{}
	for id, what := range f.fell {
		all[id] = what
	}
	return all
}

// Right says how many of the values arrived where they belong, and how many
// requests came in all.
func (f *Far) Right() (values, requests int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.right), f.asked
}

func (f *Far) note(id, what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fell[id] == "" {
		f.fell[id] = what
	}
}

// marked finds the check whose mark follows a word in a text; empty: none.
func (f *Far) marked(text, word string) string {
	_, rest, ok := strings.Cut(text, "/"+word+"/"+f.nonce+"/")
	if !ok {
		return ""
	}
	end := strings.IndexFunc(rest, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.') })
	if end >= 0 {
		rest = rest[:end]
	}
	return strings.TrimSuffix(rest, ".git")
}

// watched is a listener whose connections are looked at as they come: what the
// server would not take for a request has arrived all the same.
type watched struct {
	net.Listener
	far *Far
}

func (w *watched) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &looked{Conn: c, far: w.far}, nil
}

type looked struct {
	net.Conn
	far  *Far
	tail []byte
}

func (l *looked) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	text := append(l.tail, p[:n]...)
	if id := l.far.marked(string(text), attack.Must); id != "" {
		l.far.note(id, "it arrived at the server on "+l.LocalAddr().String())
	}
	// A mark may come in two pieces.
	l.tail = bytes.Clone(text[max(0, len(text)-200):])
	return n, err
}

var _ io.Reader = (*looked)(nil)
