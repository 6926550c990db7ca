package link

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/hashicorp/yamux"
)

// Tuning sets the tunnel's times. The zero value is what production uses.
type Tuning struct {
	KeepAlive time.Duration // between two probes; default 5 s
	Timeout   time.Duration // for an answer to a probe, and for a write; default 5 s
}

func (t Tuning) withDefaults() Tuning {
	if t.KeepAlive <= 0 {
		t.KeepAlive = 5 * time.Second
	}
	if t.Timeout <= 0 {
		t.Timeout = 5 * time.Second
	}
	return t
}

// window is how many bytes of one stream may be under way. A reader that does
// not read costs this much memory at most.
const window = 2 << 20

func (t Tuning) config(log *slog.Logger) *yamux.Config {
	t = t.withDefaults()
	c := yamux.DefaultConfig()
	c.AcceptBacklog = 256
	c.KeepAliveInterval = t.KeepAlive
	c.ConnectionWriteTimeout = t.Timeout
	c.MaxStreamWindowSize = window
	c.StreamOpenTimeout = 2 * t.Timeout
	c.StreamCloseTimeout = 30 * time.Second
	c.LogOutput = nil
	c.Logger = muxLog{log}
	return c
}

// Session is one connection between cofferdamd and a worker. On the worker's
// side it is a net.Listener for an http.Server.
type Session struct {
	*yamux.Session
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.CloseChan() }

// Client returns an HTTP client whose connections are streams of the session.
// Streams are kept for the next request, so that a request costs no set-up.
func (s *Session) Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				return s.Open()
			},
			DisableCompression:     true,
			MaxIdleConns:           64,
			MaxIdleConnsPerHost:    64,
			IdleConnTimeout:        5 * time.Minute,
			MaxResponseHeaderBytes: 64 << 10,
			WriteBufferSize:        32 << 10,
			ReadBufferSize:         32 << 10,
		},
		// A worker has no business sending cofferdamd anywhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// control opens cofferdamd's end. It refuses streams that the worker opens.
func control(conn net.Conn, t Tuning, log *slog.Logger) (*Session, error) {
	mux, err := yamux.Client(newFrameConn(conn), t.config(log))
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	if err := mux.GoAway(); err != nil {
		mux.Close()
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	return &Session{mux}, nil
}

// serve opens the worker's end.
func serve(conn net.Conn, t Tuning, log *slog.Logger) (*Session, error) {
	mux, err := yamux.Server(newFrameConn(conn), t.config(log))
	if err != nil {
		return nil, fmt.Errorf("tunnel: %w", err)
	}
	return &Session{mux}, nil
}

// frameConn writes a multiplexer's header together with the body that follows it, in
// one system call instead of two. Only the multiplexer's sending goroutine
// writes.
type frameConn struct {
	net.Conn
	out  net.Conn // writes go here: a *net.TCPConn takes header and body in one call
	held []byte
}

func newFrameConn(conn net.Conn) *frameConn {
	if b, ok := conn.(*bufferedConn); ok {
		return &frameConn{Conn: conn, out: b.Conn}
	}
	return &frameConn{Conn: conn, out: conn}
}

// muxHeader is the size of a header: version, type, flags (2), stream (4),
// length (4); type 0 is data, whose body follows as the very next write.
const muxHeader = 12

func (c *frameConn) Write(b []byte) (int, error) {
	if len(c.held) == 0 {
		if len(b) == muxHeader && b[1] == 0 && binary.BigEndian.Uint32(b[8:]) > 0 {
			c.held = append(c.held[:0], b...)
			return len(b), nil
		}
		return c.out.Write(b)
	}
	parts := net.Buffers{c.held, b}
	n, err := parts.WriteTo(c.out)
	c.held = c.held[:0]
	return max(0, int(n)-muxHeader), err
}

// bufferedConn gives first what was read ahead of the upgrade.
type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) {
	if c.r != nil {
		if c.r.Buffered() > 0 {
			return c.r.Read(b)
		}
		c.r = nil
	}
	return c.Conn.Read(b)
}

// muxLog passes the multiplexer's messages on at a level where a connection that
// breaks is no news.
type muxLog struct{ log *slog.Logger }

func (l muxLog) Print(v ...any)            { l.say(fmt.Sprint(v...)) }
func (l muxLog) Printf(f string, v ...any) { l.say(fmt.Sprintf(f, v...)) }
func (l muxLog) Println(v ...any)          { l.say(fmt.Sprint(v...)) }

func (l muxLog) say(text string) {
	l.log.Debug("tunnel", "message", strings.TrimSpace(text))
}
