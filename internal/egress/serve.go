package egress

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const headerMax = 256 << 10 // of a request of HTTP/1

// bounds are what a connection of HTTP/2 inside may make us hold: what was sent
// and is not taken outside, and the requests that wait. A sandbox has hundreds
// of connections, so only as many as may grow have the larger ones.
type bounds struct{ streams, stream, conn, header int }

func boundsOf(grow bool) bounds {
	if grow {
		return bounds{streams: 100, stream: 1 << 20, conn: 2 << 20, header: 64 << 10}
	}
	return bounds{streams: 16, stream: 64 << 10, conn: 256 << 10, header: 32 << 10}
}

// serveOne serves HTTP on one connection until notice, which stands beneath it,
// is closed. A connection of TLS that agreed on HTTP/2 is served that, within b.
func serveOne(ctx context.Context, conn net.Conn, notice *noticed, header time.Duration, b bounds, h http.Handler) {
	l := &single{conn: make(chan net.Conn, 1), closed: notice.closed, addr: conn.LocalAddr()}
	l.conn <- conn
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: header, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: b.header,
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

// noticed tells when its connection is closed.
type noticed struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func newNoticed(c net.Conn) *noticed { return &noticed{Conn: c, closed: make(chan struct{})} }

func (n *noticed) Close() error {
	err := n.Conn.Close()
	n.once.Do(func() { close(n.closed) })
	return err
}

// CloseWrite lets the server end a response that has no length before it has
// read the whole request.
func (n *noticed) CloseWrite() error {
	if h, ok := n.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return nil
}
