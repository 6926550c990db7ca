package egress

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// webKind is a kind that stands in requests, as a program inside uses it.
type webKind struct {
	kind, as string
	lease    task.Lease // without what it is bound to
	value    string     // that the control plane lends
	real     []string   // texts of it that no server may see where it is not lent
	once     bool       // it is made for each request
	path     string     // with its query, of a request that it is lent to
	other    string     // of one that it is not
	paths    string     // pattern of the first
	put      func(t *testing.T, r *http.Request)
}

const (
	webValue = "real-value-0123456789abcdef"
	webPlace = "placeholder-0123456789abcdef"
	webPath  = "/v1/x?q=1"
	gitPath  = "/o/r.git/info/refs?service=git-upload-pack"
)

// webKinds are all of them.
func webKinds() []webKind {
	carried := func(kind, as, header, prefix string) webKind {
		return webKind{
			kind: kind, as: as, lease: task.Lease{Header: header, Prefix: prefix}, value: webValue, path: webPath, other: "/v2/x", paths: "/v1/**",
			put: func(_ *testing.T, r *http.Request) { r.Header.Set(header, prefix+webPlace) },
		}
	}
	basic := func(kind, as, path, other, paths string, settings map[string]string) webKind {
		return webKind{
			kind: kind, as: as, lease: task.Lease{Settings: settings}, value: webValue, path: path, other: other, paths: paths,
			put: func(_ *testing.T, r *http.Request) { r.SetBasicAuth(settings[task.SettingUser], webPlace) },
		}
	}
	git := func(kind, as string) webKind {
		return basic(kind, as, gitPath, "/o/other/info/refs?service=git-upload-pack", "/o/r.git/**", map[string]string{
			task.SettingUser: "x-access-token", task.SettingRepository: "o/r", task.SettingPush: "no", task.SettingCarry: task.CarryGit,
		})
	}
	query := webKind{
		kind: task.KindQuery, lease: task.Lease{Settings: map[string]string{task.SettingParameter: "key"}}, value: webValue,
		path: webPath, other: "/v2/x?q=1", paths: "/v1/**",
		put: func(_ *testing.T, r *http.Request) { r.URL.RawQuery += "&key=" + webPlace },
	}
	signed := func(kind string) webKind {
		return webKind{
			kind: kind, value: awsReal, real: strings.Split(awsReal, ":"), path: "/b/v1/x?q=1", other: "/b/v2/x", paths: "/b/v1/**",
			lease: task.Lease{Placeholder: awsStandIn, Settings: map[string]string{task.SettingRegion: "us-east-1", task.SettingServices: "s3,sts"}},
			put:   func(t *testing.T, r *http.Request) { t.Helper(); awsSigned(t, r, "sts", nil) },
		}
	}
	oidc := carried(task.KindOIDC, "", "Authorization", "Bearer ")
	oidc.once, oidc.lease.Settings = true, map[string]string{task.SettingAudience: "https://vault.example"}
	codex := carried(task.KindCodexLogin, "", "Authorization", "Bearer ")
	codex.lease.Settings = map[string]string{task.SettingAccount: "an-account"}
	all := []webKind{
		carried(task.KindHeader, "", "X-Api-Key", ""), query,
		basic(task.KindBasic, "", webPath, "/v2/x", "/v1/**", map[string]string{task.SettingUser: "robot"}),
		git(task.KindGit, ""), git(task.KindGitHubApp, " as git"), carried(task.KindGitHubApp, "", "Authorization", "token "),
		carried(task.KindOAuth, "", "Authorization", "Bearer "), carried(task.KindExchange, "", "Authorization", "Bearer "),
		signed(task.KindAWS), signed(task.KindAWSWeb), oidc, codex, carried(task.KindClaudeLogin, "", "Authorization", "Bearer "),
	}
	for i := range all {
		k := &all[i]
		k.lease.ID, k.lease.Credential, k.lease.Kind = leaseID, "lent", k.kind
		if k.lease.Placeholder == "" {
			k.lease.Placeholder, k.real = webPlace, []string{webValue}
		}
	}
	return all
}

func (k webKind) row() tableRow {
	try := func(f func(s *stand)) cell {
		return cell{run: func(t *testing.T) {
			s := newStand(t, k)
			s.goes("at first")
			f(s)
		}}
	}
	return tableRow{k.kind, k.as, map[string]cell{
		"wrong host": try(wrongHost), "wrong port": try(wrongPort), "method": try(wrongMethod), "path": try(wrongPath), "plain http": try(plainHTTP),
		"redirect": try(redirected), "kept-alive switch": try(keptAlive), "h2 :authority": try(authorityOfAnother), "spoofed Host": try(spoofedHost),
		"bad certificate": try(badCertificate), "expired": try(expired), "revoked while streaming": try(revokedWhileStreaming), "control plane away": try(controlPlaneAway),
	}}
}

func wrongHost(s *stand) {
	s.refused("a host without a rule", "GET", "https://no.test"+s.kind.path, nil, 403, task.PolicyDenied)
	s.grant(nil, task.Rule{ID: "second", Host: "second.test", Ports: []uint16{s.second.port}, Credential: "lent", Private: true})
	s.refused("a rule beyond the binding", "GET", s.elsewhere(), nil, 403, task.PolicyCredential)
	s.grant(nil, task.Rule{ID: "second", Host: "second.test", Ports: []uint16{s.second.port}, Methods: []string{"GET"}, Private: true})
	s.refused("a host where nothing is lent", "GET", s.elsewhere(), nil, 403, task.PolicyCredential)
}

func wrongPort(s *stand) {
	s.refused("a port without a rule", "GET", "https://ok.test"+s.kind.path, nil, 403, task.PolicyDenied)
	s.grant(nil, task.Rule{ID: "second", Host: "ok.test", Ports: []uint16{s.second.port}, Credential: "lent", Private: true})
	s.refused("a rule beyond the binding", "GET", fmt.Sprintf("https://ok.test:%d%s", s.second.port, s.kind.path), nil, 403, task.PolicyCredential)
}

func wrongMethod(s *stand) {
	s.refused("a method without a rule", "DELETE", s.url(s.kind.path), nil, 403, task.PolicyDenied)
	s.grant(func(l *task.Lease) { l.Methods = []string{"GET"} }, s.wide())
	s.refused("a rule beyond the binding", "DELETE", s.url(s.kind.path), nil, 403, task.PolicyCredential)
}

func wrongPath(s *stand) {
	s.refused("a path without a rule", "GET", s.url(s.kind.other), nil, 403, task.PolicyDenied)
	s.grant(func(l *task.Lease) { l.Paths = []string{s.kind.paths} }, s.wide())
	s.refused("a rule beyond the binding", "GET", s.url(s.kind.other), nil, 403, task.PolicyCredential)
}

func plainHTTP(s *stand) {
	s.grant(func(l *task.Lease) { l.Ports = append(l.Ports, s.plain.port) },
		task.Rule{ID: "plain", Host: "ok.test", Ports: []uint16{s.plain.port}, Credential: "lent", Private: true})
	s.refused("plain http", "GET", fmt.Sprintf("http://ok.test:%d%s", s.plain.port, s.kind.path), nil, 403, task.PolicyCredential)
	if n := s.plain.bytes.Load(); n > 0 {
		s.t.Errorf("%d bytes went out in the clear", n)
	}
}

// redirected: a far side that repeats what it was sent in the address to go on
// with, and a program that follows with all it has.
func redirected(s *stand) {
	s.grant(nil, task.Rule{ID: "second", Host: "second.test", Ports: []uint16{s.second.port}, Methods: []string{"GET"}, Private: true})
	s.answers(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", fmt.Sprintf("https://second.test:%d%s", s.second.port, r.RequestURI))
		w.WriteHeader(http.StatusFound)
	})
	c := s.inside(true)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, _ := s.do(c, s.asks("GET", s.url(s.kind.path), nil))
	to := res.Header.Get("Location")
	if res.StatusCode != http.StatusFound || !strings.HasPrefix(to, "https://second.test") || s.holdsReal(to) {
		s.t.Fatalf("%s, to %q", res.Status, to)
	}
	s.far.take()
	follow := s.request("GET", to, nil)
	if s.kind.kind != task.KindQuery { // which the address has already
		s.kind.put(s.t, follow)
	}
	s.refusal("followed with all it has", c, follow, 403, task.PolicyCredential)
	// A program that follows by itself takes along what its library does.
	res, err := s.inside(true).Do(s.asks("GET", s.url(s.kind.path), nil))
	if err != nil {
		s.t.Fatal(err)
	}
	res.Body.Close()
	if got := s.second.take(); s.sawReal(got) {
		s.t.Errorf("the host that a redirect leads to saw %+v", got)
	}
	s.far.take()
}

func keptAlive(s *stand) {
	c := s.inside(false)
	s.goesBy("on a connection", c)
	again := false
	r := s.asks("GET", s.url(s.kind.path), func(r *http.Request) { r.Host = fmt.Sprintf("second.test:%d", s.port) })
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { again = i.Reused }}))
	s.refusal("another host on the same connection", c, r, 403, task.PolicyNameMismatch)
	if !again {
		s.t.Error("it was another connection")
	}
}

func authorityOfAnother(s *stand) {
	c := s.inside(true)
	s.goesBy("over HTTP/2", c)
	for _, name := range []string{"second.test", fmt.Sprintf("ok.test:%d", s.second.port)} {
		r := s.asks("GET", s.url(s.kind.path), func(r *http.Request) { r.Host = name })
		s.refusal(":authority "+name, c, r, 403, task.PolicyNameMismatch)
	}
	s.goesBy("after it", c)
}

func spoofedHost(s *stand) {
	for _, name := range []string{"second.test", "ok.test.no.test", fmt.Sprintf("ok.test:%d", s.second.port)} {
		s.refused("Host: "+name, "GET", s.url(s.kind.path), func(r *http.Request) { r.Host = name }, 403, task.PolicyNameMismatch)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.pem)
	c := s.http(&tls.Config{RootCAs: roots, ServerName: "second.test"})
	s.refusal("the name of TLS", c, s.asks("GET", s.url(s.kind.path), nil), 403, task.PolicyNameMismatch)
}

func badCertificate(s *stand) {
	other := egresstest.NewFar(s.t)
	soon := time.Now().Add(time.Hour)
	for what, cert := range map[string]tls.Certificate{
		"of another name": s.authority.Certificate(s.t, "no.test", soon), "that ended": s.authority.Certificate(s.t, "bad.test", time.Now().Add(-time.Hour)),
		"of an authority nobody knows": other.Certificate(s.t, "bad.test", soon),
	} {
		bad := s.serve(cert, http.HandlerFunc(hello))
		s.grant(func(l *task.Lease) { l.Hosts, l.Ports = []string{"bad.test"}, []uint16{bad.port} },
			task.Rule{ID: "bad", Host: "bad.test", Ports: []uint16{bad.port}, Credential: "lent", Private: true})
		s.refused(what, "GET", fmt.Sprintf("https://bad.test:%d%s", bad.port, s.kind.path), nil, 502, task.EgressUntrusted)
		if got := bad.take(); len(got) > 0 {
			s.t.Errorf("%s: it saw %+v", what, got)
		}
	}
}

// expired: what was lent is over, and the lease is not lent again.
func expired(s *stand) {
	s.plane.say("refuses")
	if !s.kind.once {
		s.goes("while the minute lasts")
	}
	s.plane.later(2 * time.Minute)
	s.refused("a lease that ended", "GET", s.url(s.kind.path), nil, 403, task.PolicyCredential)
	s.plane.say("lends")
	s.plane.later(2 * time.Minute)
	s.goes("lent again")
}

func revokedWhileStreaming(s *stand) {
	for _, h2 := range []bool{false, true} {
		over := make(chan struct{})
		s.answers(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "first")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(over)
		})
		c := s.inside(h2)
		res, err := c.Do(s.asks("GET", s.url(s.kind.path), nil))
		if err != nil {
			s.t.Fatal(err)
		}
		if _, err := io.ReadFull(res.Body, make([]byte, len("first"))); err != nil {
			s.t.Fatal(err)
		}
		g := s.granted(nil)
		g.Leases = nil
		if err := s.gateway.SetGrant(g); err != nil {
			s.t.Fatal(err)
		}
		if rest, err := io.ReadAll(res.Body); err == nil || len(rest) > 0 {
			s.t.Errorf("h2 %v: the stream ended with %q, %v", h2, rest, err)
		}
		res.Body.Close()
		<-over
		s.far.take()
		s.refused("after it", "GET", s.url(s.kind.path), nil, 403, task.PolicyCredential)
		s.answers(hello)
		s.grant(nil)
		s.goes("lent anew")
	}
}

func controlPlaneAway(s *stand) {
	s.plane.say("away")
	if !s.kind.once {
		s.goes("what is held")
	}
	s.plane.later(2 * time.Minute)
	s.refused("what is not held", "GET", s.url(s.kind.path), nil, 503, task.InfraControlAway)
	s.plane.say("lends")
	s.goes("when it is back")
}
