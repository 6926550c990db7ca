// Package plane asks the control plane, for the gateway: one question, one
// answer, with a token of role gateway that is read again each time.
//
// Words. An answer is what came back, whatever its status; a refusal is one
// with a reason code of ours, which nothing in between can invent. Values go
// over https, or over plain http to this very machine.
package plane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	maxAnswer = 64 << 10
	maxText   = 300 // of a refusal
	maxToken  = 4 << 10
)

// Client is the control plane as a gateway asks it. It is safe for concurrent
// use.
type Client struct {
	url       string
	tokenFile string
	client    *http.Client
}

// New returns the control plane at a URL. Nothing is asked.
func New(control, tokenFile string) (*Client, error) {
	u, err := url.Parse(control)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("control plane %q: not http:// or https:// and a host", control)
	}
	if u.Scheme == "http" && !here(u.Hostname()) {
		return nil, fmt.Errorf("control plane %q: plain http to another machine would show values to the network; use https", control)
	}
	if tokenFile == "" {
		return nil, errors.New("control plane: no file with the gateway's token")
	}
	return &Client{url: strings.TrimRight(u.String(), "/"), tokenFile: tokenFile, client: &http.Client{
		Transport: &http.Transport{ // no proxy, whatever the environment says
			DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second,
			MaxIdleConnsPerHost: 8, IdleConnTimeout: 30 * time.Second, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		},
		// A redirect would carry the token to another place.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// here says whether a host is this machine: what is sent to it leaves by no
// wire.
func here(host string) bool {
	ip := net.ParseIP(host)
	if ip == nil || ip.IsLoopback() {
		return host == "localhost" || ip != nil
	}
	own, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(ip)
	})
}

// Refused is an answer that is none.
type Refused struct {
	Status int
	Reason task.Reason // empty: the answer is not one of the control plane's own
	Text   string      // what may be told inside; mostly empty
}

// Error tells what was answered.
func (r *Refused) Error() string {
	switch {
	case r.Reason != "":
		return fmt.Sprintf("the control plane answered %d %s", r.Status, r.Reason)
	case r.Status == http.StatusUnauthorized:
		return "the control plane does not accept the gateway's token"
	}
	return fmt.Sprintf("the control plane answered %d", r.Status)
}

// Ask asks one question and gives the answer's bytes, which the caller may
// overwrite. An answer that is none is a *Refused.
func (p *Client) Ask(ctx context.Context, path string, question any) ([]byte, error) {
	token, err := readToken(p.tokenFile)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token.Reveal())
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		err = fmt.Errorf("answer: %w", err)
	case len(data) > maxAnswer:
		err = errors.New("answer: too long")
	case resp.StatusCode != http.StatusOK:
		err = refusedBy(resp, data)
	default:
		return data, nil
	}
	clear(data)
	return nil, err
}

// refusedBy tells what an answer that is none says. Only a refusal with the
// code of one counts as such: anything else may come from something in between.
func refusedBy(resp *http.Response, data []byte) error {
	r := &Refused{Status: resp.StatusCode}
	var p struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind == "application/problem+json" && json.Unmarshal(data, &p) == nil {
		r.Reason, r.Text = task.Reason(p.Code), p.Detail[:min(len(p.Detail), maxText)]
	}
	return r
}

// Close ends connections that are idle.
func (p *Client) Close() { p.client.CloseIdleConnections() }

func readToken(path string) (task.Secret, error) {
	f, err := os.Open(path)
	if err != nil {
		return task.Secret{}, fmt.Errorf("the gateway's token: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return task.Secret{}, fmt.Errorf("the gateway's token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsAny(token, " \t\r\n\x00") {
		return task.Secret{}, errors.New("the gateway's token: the file holds none")
	}
	return task.NewSecret(token), nil
}
