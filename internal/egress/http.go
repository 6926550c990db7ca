package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

const requestWait = time.Minute // for a request's header

// serveHTTP polices plain HTTP/1: each request must name the host that the
// connection was allowed for, and goes to the very address that was dialled.
func (c *connection) serveHTTP(conn *prefixed) {
	c.saw("http", "", "")
	transport := &http.Transport{
		DialContext:         c.redial(),
		DisableCompression:  true,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     time.Minute,
		// The protocols are named so that nothing negotiates HTTP/2.
		Protocols: http1(),
	}
	defer transport.CloseIdleConnections()
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", c.dialled.String()
			r.Out.URL.RawQuery = r.In.URL.RawQuery
			r.Out.Host = r.In.Host
		},
		Transport:     transport,
		FlushInterval: -1,
		BufferPool:    &c.way.gateway.pump,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			c.way.log.Debug("request", "conn", c.id, "error", err)
			c.writeProblem(w, task.EgressUnreachable)
		},
	}
	serveOne(c.ctx, conn, requestWait, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := c.judgeRequest(r); reason != task.ReasonNone {
			c.deniedRequest(r, reason)
			c.writeProblem(w, reason)
			return
		}
		c.saw("http", "", r.Host)
		proxy.ServeHTTP(w, r)
	}))
}

func http1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// judgeRequest says why a request must not pass.
func (c *connection) judgeRequest(r *http.Request) task.Reason {
	switch {
	case r.Method == http.MethodConnect, r.ProtoMajor != 1:
		return task.PolicyProtocol
	case r.URL.Scheme != "" && r.URL.Scheme != "http":
		return task.PolicyProtocol
	case !c.sameHost(r.Host), r.URL.Host != "" && !c.sameHost(r.URL.Host):
		return task.PolicyNameMismatch
	}
	for _, v := range r.Header.Values("Upgrade") {
		for p := range strings.SplitSeq(v, ",") {
			// Both would carry requests that are not looked at.
			if p = strings.ToLower(strings.TrimSpace(p)); strings.HasPrefix(p, "h2c") || strings.HasPrefix(p, "tls/") || strings.HasPrefix(p, "http/") {
				return task.PolicyProtocol
			}
		}
	}
	return task.ReasonNone
}

// deniedRequest records one refused request; the connection's own last record
// says the reason too.
func (c *connection) deniedRequest(r *http.Request, reason task.Reason) {
	rec := c.record()
	rec.HostName, rec.Verdict, rec.Reason = clip(r.Host), task.Denied.String(), reason
	c.way.records.Deny(rec)
	c.mismatch(reason)
}

// clip bounds what a client chose and a record repeats.
func clip(s string) string { return s[:min(len(s), 300)] }

// redial gives the transport the connection that was dialled, and when that is
// used up another one to the same address, which is recorded again.
func (c *connection) redial() func(context.Context, string, string) (net.Conn, error) {
	var mu sync.Mutex
	first := true
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		if first {
			first = false
			return c.upstream, nil
		}
		if c.ctx.Err() != nil {
			return nil, errors.New("cut")
		}
		ctx, cancel := context.WithTimeout(ctx, dialWait)
		defer cancel()
		if err := c.dial(ctx, c.dialled); err != nil {
			return nil, err
		}
		return c.upstream, nil
	}
}
