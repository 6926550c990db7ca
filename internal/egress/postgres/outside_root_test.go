//go:build root

package postgres

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// heard writes down what a server says.
type heard struct {
	io.ReadWriter
	said bytes.Buffer
}

func (h *heard) Read(b []byte) (int, error) {
	n, err := h.ReadWriter.Read(b)
	h.said.Write(b[:n])
	return n, err
}

// TestLoginAtAServer logs in at a real server in every way. With
// COFFERDAM_RECORD=1 it writes down in testdata what the server says, for the
// tests that need no root.
func TestLoginAtAServer(t *testing.T) {
	far := egresstest.NewFar(t)
	cert := far.Certificate(t, "db.test", time.Now().Add(time.Hour))
	server := egresstest.NewPostgres(t, &cert,
		"hostssl all old 127.0.0.1/32 md5", "hostssl all plain 127.0.0.1/32 password", "hostssl all open 127.0.0.1/32 trust",
		"hostssl orders,gone app_ro 127.0.0.1/32 scram-sha-256")
	server.SQL("create role app_ro login password '" + realPassword + "'; create role plain login password '" + realPassword +
		"'; create role open login; create database orders; set password_encryption = md5; create role old login password '" + realPassword + "';")
	record := os.Getenv("COFFERDAM_RECORD") == "1"
	for _, c := range []struct{ name, user, database, password, state string }{
		{"bound", "app_ro", "orders", realPassword, ""},
		{"unbound", "app_ro", "orders", realPassword, ""},
		{"another", "app_ro", "orders", "another password", "28P01"},
		{"md5", "old", "orders", realPassword, "28000"},
		{"cleartext", "plain", "orders", realPassword, "28000"},
		{"open", "open", "orders", realPassword, "28000"},
		{"database", "app_ro", "gone", realPassword, "3D000"},
		{"nobody", "app_ro", "postgres", realPassword, "28000"},
	} {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.Port))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		secure, err := Secure(t.Context(), conn, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: "db.test", RootCAs: far.Roots})
		if err != nil {
			t.Fatal(err)
		}
		h := &heard{ReadWriter: secure}
		l := &login{conn: h, certificate: secure.ConnectionState().PeerCertificates[0], random: &counting{}, password: func() (task.Secret, error) {
			return task.NewSecret(c.password), nil
		}}
		if c.name == "unbound" {
			l.certificate = &x509.Certificate{SignatureAlgorithm: x509.PureEd25519}
		}
		g, err := l.run(Startup{User: c.user, Database: c.database})
		var r *Refusal
		if c.state == "" && (err != nil || g.Key == nil) || c.state != "" && (!errors.As(err, &r) || r.State != c.state) {
			t.Errorf("%s: %+v, %v", c.name, g, err)
		}
		if record {
			if err := os.WriteFile(filepath.Join("testdata", c.name), h.said.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if record {
		if err := os.WriteFile("testdata/certificate.der", cert.Certificate[0], 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
