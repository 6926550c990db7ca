package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/task"
)

// seen is what the front remembers of one request.
type seen struct {
	id   string
	user string
}

type seenKey struct{}

// requestID is the request's id in the log.
func requestID(ctx context.Context) string {
	if s, ok := ctx.Value(seenKey{}).(*seen); ok {
		return s.id
	}
	return ""
}

// front is what every request passes first: it gets an id, is logged, a panic
// within becomes a problem, and requests that a browser was tricked into
// sending are refused.
func (s *Server) front(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var raw [8]byte
		_, _ = rand.Read(raw[:])
		note := &seen{id: hex.EncodeToString(raw[:])}
		r = r.WithContext(context.WithValue(r.Context(), seenKey{}, note))
		w := paced.NewAnswer(rw, r)
		h := w.Header()
		h.Set("Cofferdam-Request", note.id)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		start := time.Now()
		defer func() {
			p := recover()
			if p != nil && p != http.ErrAbortHandler { //nolint:errorlint // a recovered value, as net/http compares it
				s.log.ErrorContext(r.Context(), "panic in a handler", "request", note.id, "panic", p, "stack", string(debug.Stack()))
				if w.Status() == 0 {
					s.writeProblem(w, r, problem.Refuse(errors.New("panic")))
					p = nil
				} else {
					p = http.ErrAbortHandler
				}
			}
			s.log.InfoContext(r.Context(), "request", "request", note.id, "method", r.Method, "path", r.URL.Path,
				"status", w.Status(), "bytes", w.Bytes(), "user", note.user, "took", time.Since(start).Round(time.Microsecond), "broken", p != nil)
			if p != nil {
				panic(p)
			}
		}()
		if err := s.trusted(r); err != nil {
			s.writeProblem(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// trusted refuses what only a browser tricked by a foreign page sends: a Host
// that is not ours (a name rebound to our address) or a foreign Origin.
func (s *Server) trusted(r *http.Request) error {
	if !s.ourHost(r.Host) {
		return problem.Refuse(task.Fail(task.PolicyDenied, "the Host header "+problem.Quote(r.Host)+" is not a name of this server; add it to the allowed hosts if it is", nil))
	}
	foreign := problem.Refuse(task.Fail(task.PolicyDenied, "requests from other origins are refused", nil))
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return foreign
	}
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(u.Host, r.Host) || (u.Scheme != "http" && u.Scheme != "https") {
			return foreign
		}
	}
	return nil
}

func (s *Server) ourHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if host == "localhost" || s.hosts[host] {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// writeProblem answers outside of huma.
func (s *Server) writeProblem(w http.ResponseWriter, r *http.Request, err error) {
	p := *problem.Of(err)
	p.Request = requestID(r.Context())
	w.Header().Set("Content-Type", api.ProblemType)
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", challenge)
	}
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(&p)
}

const challenge = `Bearer realm="cofferdam"`
