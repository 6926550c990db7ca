// Package selftest proves for each lease of a sandbox's grant, before anything
// of a stage runs, that its value is lent and put in place of its placeholder,
// and that it does not come back.
//
// Words. A trial is one lease tried: a request with the placeholder, as a
// program inside would send it, over TLS under the sandbox's authority, served as
// the sandbox's own connections are, to a far side that is this package. Nothing
// is dialled and no name is looked up. The trial's grant has the lease bound to
// Host, and the others beside it.
//
// Not promised: that the real far side takes the value, or that the sandbox's
// device and programs work. Of a kind whose requests need a client of their own
// only the lending is tried; tokens of the run itself are minted a request and
// not tried.
package selftest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
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

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/egress/authority"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Host is the name that trials are for: one of the gateway's own.
const Host = "self-test." + task.Reserved

const (
	patience  = 20 * time.Second // for all trials of a grant
	atOnce    = 4
	answerMax = 64 << 10
)

// Serve serves a connection of a sandbox to Host under a grant, and sends its
// requests on over a wire with the given options. It returns when the connection
// has ended.
type Serve func(ctx context.Context, grant task.Grant, inside net.Conn, outside outbound.WireOptions)

// Options are what trials need. All are required.
type Options struct {
	Lender  outbound.Lender
	Trusted []byte // the sandbox's authority, PEM
	Serve   Serve
}

// Run tries every lease of the grant. The error is a *task.Failure that names
// the first one that failed, and holds no value: task.InfraSelfTest where the
// value is not put in place or comes back, else why it was refused or not lent.
func Run(ctx context.Context, grant task.Grant, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	far, err := newFar()
	if err != nil {
		return task.Fail(task.InfraSelfTest, "the self-test's far side can't be made", err)
	}
	errs := make([]error, len(grant.Leases))
	slots := make(chan struct{}, atOnce)
	done := make(chan struct{})
	for i := range grant.Leases {
		go func() {
			slots <- struct{}{}
			errs[i] = try(ctx, grant, i, o, far)
			<-slots
			done <- struct{}{}
		}()
	}
	for range grant.Leases {
		<-done
	}
	i := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if i < 0 {
		return nil
	}
	l := grant.Leases[i]
	reason, text, cause := task.InfraSelfTest, "", errs[i]
	if f, ok := errors.AsType[*task.Failure](errs[i]); ok {
		reason, text, cause = f.Reason, f.Text, f.Err
	}
	if text == "" {
		text = "it was refused"
	}
	return task.Fail(reason, fmt.Sprintf("the credential %q failed its self-test before the stage began: %s", l.Credential, text), cause)
}

func failed(text string, cause error) error { return task.Fail(task.InfraSelfTest, text, cause) }

// try tries one lease.
func try(ctx context.Context, grant task.Grant, i int, o Options, far *far) error {
	l := grant.Leases[i]
	if l.Kind == task.KindOIDC {
		return nil
	}
	if o.Lender == nil {
		return task.Fail(task.InfraControlAway, "nobody lends here", nil)
	}
	value, err := o.Lender.Value(ctx, grant.Sandbox, l)
	if err != nil {
		return err
	}
	if value.Empty() {
		return failed("what is lent is empty", nil)
	}
	r := sample(l)
	if r == nil {
		return nil
	}
	trial := grant
	trial.Rules = []task.Rule{{ID: "self-test", Host: Host, Ports: []uint16{443}, Protocol: task.ProtocolHTTP, Credential: l.Credential}}
	trial.Leases = slices.Clone(grant.Leases)
	trial.Leases[i].Hosts, trial.Leases[i].Ports, trial.Leases[i].Methods, trial.Leases[i].Paths = []string{Host}, []uint16{443}, nil, nil

	arrived := make(chan bool, 1)
	outside := far.wire(ctx, func(w http.ResponseWriter, r *http.Request) {
		select {
		case arrived <- shows(l, r, value.Reveal()) && !holds(r, l.Placeholder):
		default:
		}
		w.Header().Set("Location", "https://"+Host+r.URL.RequestURI()) // as servers repeat what they were asked
	})
	inside, ours, err := pair()
	if err != nil {
		return failed("no connection for it", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		o.Serve(ctx, trial, ours, outside)
	}()
	answer, reason, err := ask(ctx, inside, o.Trusted, r)
	_ = inside.Close() // it has said all
	<-served
	select {
	case ok := <-arrived:
		if !ok {
			return failed("its placeholder reached the far side, or the value did not", nil)
		}
	default:
		if reason != task.ReasonNone {
			return task.Fail(reason, "", err)
		}
		return failed("its request did not reach the far side", err)
	}
	if err != nil {
		return failed("the answer did not come back", err)
	}
	for _, form := range forms(l, value.Reveal()) {
		if bytes.Contains(answer, []byte(form)) {
			return failed("the value comes back into the sandbox", nil)
		}
	}
	return nil
}

// ask sends the request as a program inside does and gives all that came back,
// and the reason where the gateway refused it.
func ask(ctx context.Context, conn net.Conn, trusted []byte, r *http.Request) ([]byte, task.Reason, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, task.ReasonNone, err
	}
	client := tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS12, ServerName: Host, RootCAs: roots, NextProtos: []string{"http/1.1"}})
	if err := client.HandshakeContext(ctx); err != nil {
		return nil, task.ReasonNone, err
	}
	if err := r.Write(client); err != nil {
		return nil, task.ReasonNone, err
	}
	var all bytes.Buffer
	res, err := http.ReadResponse(bufio.NewReader(io.TeeReader(io.LimitReader(client, answerMax), &all)), r)
	if err != nil {
		return all.Bytes(), task.ReasonNone, err
	}
	body, err := io.ReadAll(res.Body)
	var p struct {
		Code task.Reason `json:"code"`
	}
	_ = json.Unmarshal(body, &p) // what is none has no code
	return all.Bytes(), p.Code, errors.Join(err, res.Body.Close())
}

// pair are the two ends of a connection that nobody else can reach.
func pair() (one, other net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	conns := make([]net.Conn, 2)
	var errs []error
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "self-test")
		conn, err := net.FileConn(file)
		if errs = append(errs, err, file.Close()); err == nil {
			conns[i] = conn
		}
	}
	if err := errors.Join(errs...); err != nil {
		for _, c := range conns {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
		return nil, nil, err
	}
	return conns[0], conns[1], nil
}

// sample is a request of a program inside: what the kind says, made without the
// code that puts the value in. It is nil for a kind that needs a client of its own.
func sample(l task.Lease) *http.Request {
	path, query := "/", ""
	header := http.Header{}
	switch l.Carried() {
	case task.KindHeader, task.KindCodexLogin:
		header.Set(l.Header, l.Prefix+l.Placeholder)
	case task.KindQuery:
		query = l.Settings[task.SettingParameter] + "=" + l.Placeholder
	case task.KindGit:
		path, query = "/"+repository(l)+".git/info/refs", "service=git-upload-pack"
		fallthrough
	case task.KindBasic:
		header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(l.Settings[task.SettingUser]+":"+l.Placeholder)))
	case task.KindAWS:
		return sampleAWS(l, time.Now())
	default:
		return nil
	}
	return &http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: "https", Host: Host, Path: path, RawQuery: query}, Host: Host, Header: header}
}

// repository is one that a lease for git is for.
func repository(l task.Lease) string {
	first, _, _ := strings.Cut(l.Settings[task.SettingRepository], ",")
	if first = strings.TrimSpace(first); first == "" {
		return "self/test"
	}
	segments := strings.Split(first, "/")
	for i, s := range segments {
		if s == "*" || s == "**" {
			segments[i] = "self-test"
		}
	}
	return strings.Join(segments, "/")
}

// shows says whether a request that arrived has the value where its kind says.
func shows(l task.Lease, r *http.Request, value string) bool {
	switch l.Carried() {
	case task.KindAWS:
		return showsAWS(l, r, value)
	case task.KindQuery:
		got := r.URL.Query()[l.Settings[task.SettingParameter]]
		return len(got) == 1 && got[0] == value
	case task.KindBasic, task.KindGit:
		user, password, ok := r.BasicAuth()
		return ok && len(r.Header["Authorization"]) == 1 && user == l.Settings[task.SettingUser] && password == value
	}
	got := r.Header.Values(l.Header)
	return len(got) == 1 && got[0] == l.Prefix+value
}

// holds says whether the placeholder stands anywhere in a request.
func holds(r *http.Request, placeholder string) bool {
	_, password, _ := r.BasicAuth()
	text := fmt.Sprint(r.URL, r.Host, r.Header, password)
	return placeholder == "" || slices.ContainsFunc(task.AWSTexts(placeholder), func(part string) bool { return strings.Contains(text, part) })
}

// forms are how the value could come back.
func forms(l task.Lease, value string) []string {
	if l.Carried() == task.KindAWS {
		return task.AWSTexts(value)
	}
	return []string{value, url.QueryEscape(value), strings.ReplaceAll(url.QueryEscape(value), "+", "%20"), base64.StdEncoding.EncodeToString([]byte(l.Settings[task.SettingUser] + ":" + value))}
}

// far is the far side of trials, with an authority of its own.
type far struct {
	authority *authority.Authority
	roots     *x509.CertPool
}

func newFar() (*far, error) {
	a, err := authority.New("self-test", time.Now())
	if err != nil {
		return nil, err
	}
	f := &far{authority: a, roots: x509.NewCertPool()}
	f.roots.AppendCertsFromPEM(a.PEM())
	return f, nil
}

// wire are options of a wire whose connections end at the handler.
func (f *far) wire(ctx context.Context, h http.HandlerFunc) outbound.WireOptions {
	return outbound.WireOptions{Name: Host, Roots: f.roots, Small: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		leaf, err := f.authority.Leaf(Host, time.Now())
		if err != nil {
			return nil, err
		}
		outside, ours, err := pair()
		if err != nil {
			return nil, err
		}
		go serveOnce(ctx, tls.Server(ours, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*leaf}}), h)
		return outside, nil
	}}
}

// serveOnce answers one request.
func serveOnce(ctx context.Context, conn *tls.Conn, h http.HandlerFunc) {
	defer func() { _ = conn.Close() }() // it was answered, or broke
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if conn.HandshakeContext(ctx) != nil {
		return
	}
	r, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	w := &answered{header: http.Header{"Content-Length": {"0"}, "Connection": {"close"}}}
	h(w, r)
	res := &http.Response{StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Header: w.header, Body: http.NoBody}
	_ = res.Write(conn)
}

// answered is an answer without a body.
type answered struct{ header http.Header }

func (a *answered) Header() http.Header         { return a.header }
func (a *answered) Write(b []byte) (int, error) { return len(b), nil }
func (a *answered) WriteHeader(int)             {}
