package egress

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	lenders "github.com/cofferdam/cofferdam/internal/egress/lender"
	"github.com/cofferdam/cofferdam/internal/task"
)

// whyRefused is what may be told inside of a refusal.
const whyRefused = "Who mints the credential deploy refuses (401)."

// controlPlane lends over HTTP, and can refuse or be away.
type controlPlane struct {
	value string
	once  bool

	mu   sync.Mutex
	mode string // "lends", "refuses", "away"
	now  time.Time
}

func (p *controlPlane) say(mode string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
}

func (p *controlPlane) refuses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode == "refuses"
}

// later has time go by, for the lender.
func (p *controlPlane) later(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(by)
}

func (p *controlPlane) clock() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *controlPlane) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	mode := p.mode
	p.mu.Unlock()
	switch mode {
	case "lends":
		seconds := 60
		if p.once {
			seconds = 0
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"value": p.value, "expiresAt": p.clock(), "seconds": seconds, "once": p.once})
	case "refuses":
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprintf(w, `{"code":%q,"detail":%q}`, task.PolicyCredential, whyRefused)
	default:
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			c.Close()
		}
	}
}

// impatient is the real lender, for which nobody waits long while the control
// plane is away.
type impatient struct {
	*lenders.Lender
	plane *controlPlane
}

func (l impatient) Value(ctx context.Context, sandbox string, lease task.Lease) (task.Secret, error) {
	l.plane.mu.Lock()
	away := l.plane.mode == "away"
	l.plane.mu.Unlock()
	if away {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
	}
	return l.Lender.Value(ctx, sandbox, lease)
}

// lending is the real lender before such a control plane.
func lending(t *testing.T, p *controlPlane) impatient {
	t.Helper()
	p.mode, p.now = "lends", time.Now()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("cfd_of-the-gateway"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := lenders.New(lenders.Options{Control: server.URL, TokenFile: token, Now: p.clock})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return impatient{l, p}
}

// stand is a sandbox that is lent one credential of a kind, and the servers
// outside: the one that it is bound to, another, and one without TLS.
type stand struct {
	*within
	kind          webKind
	plane         *controlPlane
	second, plain *far
	told          chan task.Grant // what the lender was told to keep

	mu     sync.Mutex
	answer http.HandlerFunc // of the one that it is bound to
}

func newStand(t *testing.T, k webKind) *stand {
	t.Helper()
	s := &stand{kind: k, plane: &controlPlane{value: k.value, once: k.once}, answer: hello}
	s.within = &within{authority: egresstest.NewFar(t)}
	l := lending(t, s.plane)
	s.told = make(chan task.Grant, 64)
	s.rig = newRig(t, nil, func(o *Options) {
		o.Roots, o.Lender = s.authority.Roots, l
		o.Granted = func(g task.Grant) {
			l.Granted(g)
			select {
			case s.told <- g:
			default:
			}
		}
	})
	soon := time.Now().Add(time.Hour)
	s.within.far = s.serve(s.authority.Certificate(t, "ok.test", soon), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		f := s.answer
		s.mu.Unlock()
		f(w, r)
	}))
	s.port = s.far.port
	s.second = s.serve(s.authority.Certificate(t, "second.test", soon), http.HandlerFunc(hello))
	s.plain = &far{upstream: listen(t)}
	clear := &httptest.Server{Listener: s.plain, Config: &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s.plain.keep(r) })}}
	clear.Start()
	t.Cleanup(clear.Close)
	for _, name := range []string{"second.test", "bad.test"} {
		s.resolver.set(name, addrs("127.0.0.1"))
	}
	s.grant(nil)
	return s
}

// serve has a server outside that keeps what it sees.
func (s *stand) serve(cert tls.Certificate, h http.Handler) *far {
	s.t.Helper()
	f := &far{upstream: listen(s.t)}
	egresstest.Serve(s.t, f, cert, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.keep(r)
		h.ServeHTTP(w, r)
	}))
	return f
}

func (s *stand) answers(f http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// wide is a rule that lends for every request to the host.
func (s *stand) wide() task.Rule {
	return task.Rule{ID: "wide", Host: "ok.test", Ports: []uint16{s.port}, Credential: "lent", Private: true}
}

// granted is the grant of the one rule that lends, and more.
func (s *stand) granted(change func(*task.Lease), more ...task.Rule) task.Grant {
	g := grantOf(append([]task.Rule{
		{ID: "lends", Host: "ok.test", Ports: []uint16{s.port}, Methods: []string{"GET"}, Paths: []string{s.kind.paths}, Credential: "lent", Private: true},
	}, more...)...)
	l := s.kind.lease
	l.Hosts, l.Ports = []string{"ok.test"}, []uint16{s.port}
	if change != nil {
		change(&l)
	}
	g.Leases = []task.Lease{l}
	return g
}

func (s *stand) grant(change func(*task.Lease), more ...task.Rule) {
	s.t.Helper()
	if err := s.gateway.SetGrant(s.granted(change, more...)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stand) elsewhere() string {
	return fmt.Sprintf("https://second.test:%d%s", s.second.port, s.kind.path)
}

// asks is a request with the placeholder where the kind has it.
func (s *stand) asks(method, url string, edit func(*http.Request)) *http.Request {
	s.t.Helper()
	r := s.request(method, url, edit)
	s.kind.put(s.t, r)
	return r
}

// goes says that a request which is lent the credential arrives with it.
func (s *stand) goes(what string) {
	s.t.Helper()
	s.goesBy(what, s.inside(true))
}

func (s *stand) goesBy(what string, c *http.Client) {
	s.t.Helper()
	res, body := s.do(c, s.asks("GET", s.url(s.kind.path), nil))
	if got := s.far.take(); res.StatusCode != 200 || len(got) != 1 || !s.sawReal(got) {
		s.t.Fatalf("%s: %d %s, the far side saw %+v", what, res.StatusCode, body, got)
	}
}

// refused says that a request is refused for a reason, and reaches nobody.
func (s *stand) refused(what, method, url string, edit func(*http.Request), status int, reason task.Reason) {
	s.t.Helper()
	for _, h2 := range []bool{false, true} {
		s.refusal(fmt.Sprintf("%s, h2 %v", what, h2), s.inside(h2), s.asks(method, url, edit), status, reason)
	}
}

func (s *stand) refusal(what string, c *http.Client, r *http.Request, status int, reason task.Reason) {
	s.t.Helper()
	res, body := s.do(c, r)
	if res.StatusCode != status || code(s.t, body) != reason {
		s.t.Errorf("%s: %d %s, want %d %s", what, res.StatusCode, body, status, reason)
	}
	if s.plane.refuses() && reason == task.PolicyCredential && !strings.Contains(body, whyRefused) {
		s.t.Errorf("%s: the inside was not told why: %s", what, body)
	}
	if s.holdsReal(body) || s.holdsReal(fmt.Sprint(res.Header)) {
		s.t.Errorf("%s: the inside was told the value: %s", what, body)
	}
	for _, f := range []*far{s.far, s.second, s.plain} {
		if got := f.take(); len(got) > 0 {
			s.t.Errorf("%s: a server outside saw %+v", what, got)
		}
	}
}

// sawReal says whether a server was sent any part of the value.
func (s *stand) sawReal(all []seen) bool {
	for _, one := range all {
		text := fmt.Sprint(one)
		for _, v := range one.header["Authorization"] {
			if scheme, rest, _ := strings.Cut(v, " "); strings.EqualFold(scheme, "Basic") {
				plain, _ := base64.StdEncoding.DecodeString(rest)
				text += string(plain)
			}
		}
		if s.holdsReal(text) {
			return true
		}
	}
	return false
}

func (s *stand) holdsReal(text string) bool {
	for _, real := range s.kind.real {
		if strings.Contains(text, real) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(real))) {
			return true
		}
	}
	return false
}
