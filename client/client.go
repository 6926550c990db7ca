// Package client speaks the HTTP API of a Cofferdam server: one method an
// operation, with the types of package api. Every failure that the server told
// is an *api.Problem, whose Code says why.
//
// A server that is away for a moment (restarted, not ready) is waited for, up
// to a bound, wherever repeating the request is safe; streams go on from where
// they were cut. So a killed and restarted server loses a caller nothing: each
// event and each byte of output is delivered once and in order.
//
// Not promised: that two clients see an event at the same moment, or that a
// request which was cut by a cancelled context was not carried out.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// Client speaks to one server as the owner of one token. It is safe for
// concurrent use.
type Client struct {
	base     *url.URL
	token    secret
	http     *http.Client
	patience time.Duration
	silence  time.Duration
	plain    bool
}

// secret is a token that printing a Client does not show: fmt follows no
// pointer within a struct.
type secret struct{ text *string }

// Option changes how a client behaves.
type Option func(*Client)

// WithPatience sets how long a server that is away is waited for before a call
// fails; the default is 30 seconds. Zero fails at once.
func WithPatience(d time.Duration) Option { return func(c *Client) { c.patience = d } }

// WithPlainHTTP allows sending the token unencrypted to a host that is not
// this machine.
func WithPlainHTTP() Option { return func(c *Client) { c.plain = true } }

// WithTransport sets what carries the requests, such as one with its own TLS
// roots.
func WithTransport(rt http.RoundTripper) Option { return func(c *Client) { c.http.Transport = rt } }

// New returns a client of the server at base, such as http://127.0.0.1:7070.
// token may be empty; then only Health works.
func New(base, token string, opts ...Option) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("server URL %q: not http:// or https:// and a host", base)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("server URL: must not hold a user, a query or a fragment")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	c := &Client{
		base: u, token: secret{new(strings.TrimSpace(token))}, patience: 30 * time.Second, silence: 45 * time.Second,
		http: &http.Client{
			Transport: &http.Transport{
				DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
				MaxIdleConnsPerHost:   64,
				IdleConnTimeout:       60 * time.Second,
				TLSHandshakeTimeout:   10 * time.Second,
				ExpectContinueTimeout: time.Second,
				DisableCompression:    true,
			},
			// A redirect would carry the token to another place.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	for _, o := range opts {
		o(c)
	}
	if u.Scheme == "http" && !c.plain && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("server URL %q: plain http to another machine would show the token to the network; use https", base)
	}
	return c, nil
}

// URL is the server's address.
func (c *Client) URL() string { return c.base.String() }

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// call is one request. body, when set, is called for each try.
type call struct {
	method string
	path   string // escaped, after the base
	query  url.Values
	header http.Header
	body   func() (io.Reader, error)
	size   int64  // of the body; -1 unknown
	kind   string // the body's media type
	once   bool   // repeat only when the server was not reached at all
}

// send makes the request and returns an answer of class 2xx. Anything else is
// an error. The caller closes the answer's body.
func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
	p := c.pace(ctx)
	for {
		resp, err := c.try(ctx, k)
		if err == nil {
			return resp, nil
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s %s: %w", k.method, k.path, ctx.Err())
		}
		if !worthRetry(err, k.once) || !p.wait() {
			return nil, err
		}
	}
}

func (c *Client) try(ctx context.Context, k call) (*http.Response, error) {
	u := *c.base
	raw := u.EscapedPath() + k.path
	path, err := url.PathUnescape(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", k.path, err)
	}
	u.Path, u.RawPath, u.RawQuery = path, raw, k.query.Encode()
	var body io.Reader
	if k.body != nil {
		if body, err = k.body(); err != nil {
			return nil, &bodyError{err}
		}
	}
	req, err := http.NewRequestWithContext(ctx, k.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", k.method, k.path, err)
	}
	maps.Copy(req.Header, k.header)
	if k.body != nil {
		req.ContentLength = k.size
		req.Header.Set("Content-Type", k.kind)
	}
	if *c.token.text != "" {
		req.Header.Set("Authorization", "Bearer "+*c.token.text)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", k.method, k.path, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return resp, nil
}

// problemOf reads a failure. An answer that is not a problem document (a proxy
// in between) becomes one.
func problemOf(resp *http.Response) error {
	data, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	p := &api.Problem{}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind == api.ProblemType && json.Unmarshal(data, p) == nil && p.Code != "" {
		p.Status = resp.StatusCode
		return p
	}
	code := "infra.internal"
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		code = "input.unauthorized"
	case resp.StatusCode >= 502 && resp.StatusCode <= 504:
		code = "infra.control_plane_away"
	case resp.StatusCode/100 == 4:
		code = "input.invalid"
	}
	return &api.Problem{
		Type: "about:blank", Title: http.StatusText(resp.StatusCode), Status: resp.StatusCode, Code: code,
		Detail: fmt.Sprintf("the server at %s answered %s without saying why", resp.Request.URL.Host, resp.Status),
	}
}

// bodyError is a failure to read what was to be sent; repeating won't help.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }

// worthRetry says whether the same request may succeed in a moment.
func worthRetry(err error, once bool) bool {
	if _, ok := errors.AsType[*bodyError](err); ok {
		return false
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return !once && p.Status >= 502 && p.Status <= 504
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		var dns *net.DNSError
		return !errors.As(err, &dns) || dns.IsTemporary
	}
	return !once
}

// json makes a request with a JSON body (none when in is nil) and decodes the
// answer into out (unless nil). It returns the status.
func (c *Client) json(ctx context.Context, k call, in, out any) (int, error) {
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return 0, fmt.Errorf("%s %s: %w", k.method, k.path, err)
		}
		k.kind, k.size = "application/json", int64(len(data))
		k.body = func() (io.Reader, error) { return bytes.NewReader(data), nil }
	}
	resp, err := c.send(ctx, k)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if out == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		return resp.StatusCode, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: answer: %w", k.method, k.path, err)
	}
	// Read to the end so that the connection can be used again.
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	return resp.StatusCode, nil
}

// get fetches JSON.
func (c *Client) get(ctx context.Context, path string, query url.Values, out any) error {
	_, err := c.json(ctx, call{method: http.MethodGet, path: path, query: query}, nil, out)
	return err
}

// pathf joins escaped path segments.
func pathf(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// pace spaces tries: quick at first, then slower, until patience is used up.
type pace struct {
	ctx      context.Context
	step     time.Duration
	patience time.Duration
	deadline time.Time
}

func (c *Client) pace(ctx context.Context) *pace {
	p := &pace{ctx: ctx, patience: c.patience}
	p.reset()
	return p
}

// reset is called after progress.
func (p *pace) reset() {
	p.step = 50 * time.Millisecond
	p.deadline = time.Now().Add(p.patience)
}

// wait returns false when patience is used up or the context ended.
func (p *pace) wait() bool {
	if time.Now().Add(p.step).After(p.deadline) {
		return false
	}
	t := time.NewTimer(p.step)
	defer t.Stop()
	p.step = min(p.step*2, time.Second)
	select {
	case <-p.ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
