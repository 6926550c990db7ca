package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/answer"
	"github.com/cofferdam/cofferdam/internal/egress/sigv4"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Sizes of what a far side may make us hold.
const (
	headerMax    = 256 << 10
	streamWindow = 1 << 20 // of one stream of HTTP/2
	connWindow   = 4 << 20 // of all streams of a connection
	smallStream  = 64 << 10
	smallConn    = 256 << 10
)

// WireOptions make a wire.
type WireOptions struct {
	Dial     func(ctx context.Context, network, address string) (net.Conn, error)
	Roots    *x509.CertPool         // nil: the system's
	Sessions tls.ClientSessionCache // nil: nothing is resumed
	Name     string                 // that certificates are verified for; empty: the host of each URL
	Plain    bool                   // for plain HTTP/1 only
	Small    bool                   // one of very many: a far side may make it hold little
}

// NewWire makes a transport that dials by o.Dial only, verifies certificates
// always, and neither follows a proxy, compresses nor asks for compression.
func NewWire(o WireOptions) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!o.Plain)
	stream, conn := streamWindow, connWindow
	if o.Small {
		stream, conn = smallStream, smallConn
	}
	return &http.Transport{
		DialContext:            o.Dial,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.Name, RootCAs: o.Roots, ClientSessionCache: o.Sessions},
		TLSHandshakeTimeout:    15 * time.Second,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    16,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  2 * time.Second,
		MaxResponseHeaderBytes: headerMax,
		Protocols:              protocols,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: stream, MaxReceiveBufferPerConnection: conn,
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second,
		},
		WriteBufferSize: 32 << 10, ReadBufferSize: 32 << 10,
	}
}

// Fault is the reason for an error of a wire.
func Fault(err error) task.Reason {
	var cert *tls.CertificateVerificationError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	if Why(err) != "" {
		return task.PolicyCredential
	}
	if errors.As(err, &cert) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid) {
		return task.EgressUntrusted
	}
	return task.EgressUnreachable
}

// Why says what was wrong with a request that was broken off while it was being
// sent, or with an answer that can't be given, for the program inside; empty where
// nothing was.
func Why(err error) string {
	var unreadable *answer.Unreadable
	if errors.As(err, &unreadable) {
		return unreadable.Error()
	}
	var refusal *sigv4.Refusal
	if errors.As(err, &refusal) {
		return refusal.Error()
	}
	return ""
}

// Counted is a connection outside whose bytes are counted, and whose first
// close is told.
type Counted struct {
	net.Conn // not the TCP connection itself, whose ReadFrom would count nothing
	tcp      *net.TCPConn
	in, out  *atomic.Int64
	closed   func()
	once     sync.Once
}

// NewCounted counts what arrives into in and what leaves into out. closed is
// called once, when the connection was closed; it may be nil.
func NewCounted(conn *net.TCPConn, in, out *atomic.Int64, closed func()) *Counted {
	return &Counted{Conn: conn, tcp: conn, in: in, out: out, closed: closed}
}

// Read counts what arrives.
func (c *Counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.Add(int64(n))
	return n, err
}

// Write counts what leaves.
func (c *Counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.out.Add(int64(n))
	return n, err
}

// CloseWrite ends what leaves.
func (c *Counted) CloseWrite() error { return c.tcp.CloseWrite() }

// Close closes the connection and tells, once.
func (c *Counted) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		if c.closed != nil {
			c.closed()
		}
	})
	return err
}
