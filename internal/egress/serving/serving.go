// Package serving serves HTTP on one connection that is there already.
package serving

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// HeaderMax bounds the header of a request of HTTP/1 where there is one at a time,
// in bytes.
const HeaderMax = 256 << 10

// Bounds are what a connection of HTTP/2 inside may make us hold: what was sent
// and is not taken outside, and the requests that wait. A sandbox has hundreds
// of connections, so only as many as may grow have the larger ones.
type Bounds struct{ streams, stream, conn, Header int }

// BoundsOf gives those of a connection that may grow, or may not.
func BoundsOf(grow bool) Bounds {
	if grow {
		return Bounds{streams: 100, stream: 1 << 20, conn: 2 << 20, Header: 64 << 10}
	}
	return Bounds{streams: 16, stream: 64 << 10, conn: 256 << 10, Header: 32 << 10}
}

// One serves HTTP on one connection until notice, which stands beneath it,
// is closed. A connection of TLS that agreed on HTTP/2 is served that, within b.
func One(ctx context.Context, conn net.Conn, notice *Noticed, header time.Duration, b Bounds, h http.Handler) {
	l := &single{conn: make(chan net.Conn, 1), closed: notice.closed, addr: conn.LocalAddr()}
	l.conn <- conn
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: header, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: b.Header,
		Protocols: protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: b.streams, MaxReceiveBufferPerStream: b.stream, MaxReceiveBufferPerConnection: b.conn,
		},
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	_ = server.Serve(l)
}

// single is a listener of one connection: it gives it out and then waits for
// its end.
type single struct {
	conn   chan net.Conn
	closed <-chan struct{}
	addr   net.Addr
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	default:
	}
	<-l.closed
	return nil, net.ErrClosed
}

// Close does nothing: the connection's end is what ends the listener.
func (l *single) Close() error   { return nil }
func (l *single) Addr() net.Addr { return l.addr }

// Noticed tells when its connection is closed.
type Noticed struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

// Notice watches a connection.
func Notice(c net.Conn) *Noticed { return &Noticed{Conn: c, closed: make(chan struct{})} }

// Close closes the connection and tells.
func (n *Noticed) Close() error {
	err := n.Conn.Close()
	n.once.Do(func() { close(n.closed) })
	return err
}

// CloseWrite lets the server end a response that has no length before it has
// read the whole request.
func (n *Noticed) CloseWrite() error {
	if h, ok := n.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
