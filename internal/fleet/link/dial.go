package link

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Worker is the worker's end: it keeps one session to cofferdamd for as long as
// it runs, and serves Handler on it.
type Worker struct {
	Server  string                 // base URL of cofferdamd, http or https
	Token   func() (string, error) // asked before each attempt, so that a token may be replaced
	Handler http.Handler
	TLS     *tls.Config   // for https; nil: the system's authorities
	Tuning  Tuning        // zero: production's
	Backoff time.Duration // the longest pause between attempts; 0: 2 s
	Log     *slog.Logger

	// Tried, when set, is called after each attempt with its outcome: nil when the
	// session stands, an error when it could not be made.
	Tried func(error)
}

// ErrRefused is wrapped when cofferdamd answers the attempt with something else
// than a session.
var ErrRefused = errors.New("refused by the control plane")

const firstBackoff = 50 * time.Millisecond

// Keep connects, serves, and connects again until ctx ends. A control plane that
// is away or refuses is no reason to stop: sandboxes go on meanwhile.
func (w *Worker) Keep(ctx context.Context) {
	longest := w.Backoff
	if longest <= 0 {
		longest = 2 * time.Second
	}
	pause := min(firstBackoff, longest)
	var last string
	for ctx.Err() == nil {
		began := time.Now()
		session, err := w.dial(ctx)
		if w.Tried != nil {
			w.Tried(err)
		}
		if err == nil {
			w.Log.Info("connected to the control plane", "server", w.Server)
			w.serve(ctx, session)
			last = ""
			if ctx.Err() == nil {
				w.Log.Warn("connection to the control plane ended", "server", w.Server)
			}
			// A session that did not last is as good as a failed attempt: two
			// workers with one id would otherwise push each other out without pause.
			if time.Since(began) > longest {
				pause = min(firstBackoff, longest)
			}
		} else if text := err.Error(); text != last && ctx.Err() == nil {
			w.Log.Warn("the control plane can't be reached; trying again", "server", w.Server, "error", err)
			last = text
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause/2 + rand.N(pause/2+1)):
		}
		pause = min(2*pause, longest)
	}
}

// serve answers requests until the session or ctx ends. When it returns, the
// context of every request has ended: a handler that is still running must
// not begin an effect any more.
func (w *Worker) serve(ctx context.Context, s *Session) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler:        w.Handler,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		MaxHeaderBytes: 64 << 10,
		ErrorLog:       slog.NewLogLogger(w.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(s) // Ends with the session; what it says then is not news.
	}()
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	cancel()
	s.Close()
	server.Close()
	<-served
}

func (w *Worker) dial(ctx context.Context) (*Session, error) {
	base, err := url.Parse(w.Server)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("server %q: not an http or https URL", w.Server)
	}
	token, err := w.Token()
	if err != nil {
		return nil, fmt.Errorf("worker token: %w", err)
	}
	if token == "" || strings.ContainsAny(token, "\r\n ") {
		return nil, errors.New("worker token: not a token")
	}
	t := w.Tuning.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	conn, err := w.connect(ctx, base)
	if err != nil {
		return nil, err
	}
	// The handshake obeys ctx through the connection's end.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	in, err := upgrade(conn, base, token)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	s, err := serve(&bufferedConn{conn, in}, t, w.Log)
	if err != nil {
		conn.Close()
	}
	return s, err
}

func (w *Worker) connect(ctx context.Context, base *url.URL) (net.Conn, error) {
	port := base.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[base.Scheme]
	}
	address := net.JoinHostPort(base.Hostname(), port)
	if base.Scheme == "http" {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
	config := &tls.Config{}
	if w.TLS != nil {
		config = w.TLS.Clone()
	}
	config.NextProtos = []string{"http/1.1"}
	return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
}

func upgrade(conn net.Conn, base *url.URL, token string) (*bufio.Reader, error) {
	target := *base
	target.Path = strings.TrimSuffix(base.Path, "/") + ConnectPath
	req := &http.Request{
		Method: http.MethodPost, URL: &target, Host: base.Host,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			"Authorization": {"Bearer " + token},
			"Connection":    {"Upgrade"},
			"Upgrade":       {Protocol},
		},
	}
	if err := req.Write(conn); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, req) //nolint:bodyclose // after the switch of protocols there is no body
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get("Upgrade"), Protocol) {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return nil, fmt.Errorf("connect: status %d, %q: %w", resp.StatusCode, strings.TrimSpace(string(text)), ErrRefused)
	}
	return in, nil
}
