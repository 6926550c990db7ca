package decide

import (
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern string
		use     Use
		want    bool
	}{
		{"*.example.com", Use{Name: "a.example.com"}, true},
		{"*.example.com", Use{Name: "A.Example.Com."}, true},
		{"*.example.com", Use{Name: "b.a.example.com"}, false},
		{"*.example.com", Use{Name: "example.com"}, false},
		{"*.example.com", Use{Name: ".example.com"}, false},
		{"*.example.com", Use{Name: "xexample.com"}, false},
		{"*.example.com", Use{Name: "a.example.com.evil.test"}, false},
		{"*.example.com", Use{Name: "a/b.example.com"}, false},
		{"*.example.com", Use{Name: "a b.example.com"}, false},
		{"*.example.com", Use{Name: "*.example.com"}, false},
		{"**.example.com", Use{Name: "a.example.com"}, true},
		{"**.example.com", Use{Name: "c.b.a.example.com"}, true},
		{"**.example.com", Use{Name: "example.com"}, false},
		{"**.example.com", Use{Name: "a..example.com"}, false},
		{"**.example.com", Use{Name: ".a.example.com"}, false},
		{"*", Use{Name: "a"}, false},
		{"**", Use{Name: "a.test"}, false},
		{"*.", Use{Name: "a."}, false},
		{"*.*.test", Use{Name: "a.b.test"}, false},
		{"***.test", Use{Name: "a.test"}, false},
		{"a*.test", Use{Name: "ab.test"}, false},
		{"**.2.7", Use{Address: "192.0.2.7"}, false},
		{"**.2.7", Use{Name: "192.0.2.7"}, false},
		{"*.1", Use{Name: "127.1"}, false},
		{"**.db8::1", Use{Address: "2001:db8::1"}, false},
	} {
		c.use.Port = 443
		grant := task.Grant{Rules: []task.Rule{{ID: "r", Host: c.pattern, Ports: []uint16{443}}}}
		if got := Decide(grant, c.use); (got.Verdict == task.Allowed) != c.want {
			t.Errorf("%s and %+v: %+v, want allowed %t", c.pattern, c.use, got, c.want)
		}
		if got := NewIndex(grant).Decide(c.use); (got.Verdict == task.Allowed) != c.want {
			t.Errorf("index: %s and %+v: %+v, want allowed %t", c.pattern, c.use, got, c.want)
		}
	}
}

func TestDecideMergesRules(t *testing.T) {
	p := []uint16{443}
	for _, c := range []struct {
		name      string
		rules     []task.Rule
		inspect   bool
		protocols []string
	}{
		{"open", []task.Rule{{ID: "a", Host: "a.test", Ports: p}}, false, nil},
		{"tls", []task.Rule{{ID: "a", Host: "a.test", Ports: p, Protocol: "tls"}}, false, []string{"tls"}},
		{"methods say http", []task.Rule{{ID: "a", Host: "a.test", Ports: p, Methods: []string{"GET"}}}, true, []string{"http"}},
		{"any rule about requests inspects", []task.Rule{
			{ID: "a", Host: "a.test", Ports: p, Protocol: "tcp"},
			{ID: "b", Host: "a.test", Ports: p, Credential: "c"},
		}, true, []string{"http", "tcp"}},
		{"any open rule opens", []task.Rule{
			{ID: "a", Host: "a.test", Ports: p, Protocol: "http"},
			{ID: "b", Host: "*.a.test", Ports: p},
			{ID: "c", Host: "a.test", Ports: p},
		}, true, nil},
		{"another port's rule has no say", []task.Rule{
			{ID: "a", Host: "a.test", Ports: p, Protocol: "tls"},
			{ID: "b", Host: "a.test", Ports: []uint16{80}, Paths: []string{"/"}},
		}, false, []string{"tls"}},
		{"a login is alone", []task.Rule{
			{ID: "b", Host: "*.test", Ports: p},
			{ID: "a", Host: "a.test", Ports: p, Protocol: "postgres", Credential: "k"},
			{ID: "c", Host: "a.test", Ports: p, Methods: []string{"GET"}},
			{ID: "d", Host: "a.test", Ports: p, Protocol: "tcp"},
		}, false, []string{"postgres"}},
	} {
		got := Decide(task.Grant{Rules: c.rules}, Use{Name: "a.test", Port: 443})
		if got.Verdict != task.Allowed || got.Rule != "a" || got.Inspect != c.inspect || !slices.Equal(got.Protocols, c.protocols) {
			t.Errorf("%s: %+v, want inspect %t and protocols %v", c.name, got, c.inspect, c.protocols)
		}
	}
	if got := Decide(task.Grant{}, Use{Name: "a.test", Port: 443}); got.Inspect || got.Private || got.Protocols != nil {
		t.Errorf("a denial carries what is for allowed uses: %+v", got)
	}
}

func TestDecideRequest(t *testing.T) {
	p := []uint16{443}
	grant := task.Grant{Rules: []task.Rule{
		{ID: "read", Host: "api.test", Ports: p, Methods: []string{"GET", "HEAD"}},
		{ID: "one", Host: "api.test", Ports: p, Methods: []string{"POST"}, Paths: []string{"/v1/items", "/v1/*/notes"}},
		{ID: "key", Host: "api.test", Ports: p, Methods: []string{"GET"}, Paths: []string{"/v1/me/**"}, Credential: "k"},
		{ID: "open", Host: "open.test", Ports: p},
		{ID: "spliced", Host: "tls.test", Ports: p, Protocol: "tls"},
		{ID: "bytes", Host: "tcp.test", Ports: p, Protocol: "tcp"},
	}}
	for _, c := range []struct {
		host, method, path string
		rule, credential   string
	}{
		{"api.test", "GET", "/", "read", ""},
		{"api.test", "get", "/", "", ""},
		{"api.test", "DELETE", "/", "", ""},
		{"api.test", "POST", "/v1/items", "one", ""},
		{"api.test", "POST", "/v1/items/", "", ""},
		{"api.test", "POST", "/v1/items/3", "", ""},
		{"api.test", "POST", "/v1/7/notes", "one", ""},
		{"api.test", "POST", "/v1//notes", "", ""},
		{"api.test", "POST", "/v1/a/b/notes", "", ""},
		{"api.test", "GET", "/v1/me/x/y", "key", "k"},
		{"api.test", "GET", "/v1/me/", "key", "k"},
		{"api.test", "GET", "/v1/me", "read", ""},
		{"api.test", "HEAD", "/v1/me/x", "read", ""},
		{"open.test", "DELETE", "/any//../thing", "open", ""},
		{"open.test", "CONNECT", "x:1", "", ""},
		{"open.test", "", "/", "", ""},
		{"open.test", "GE T", "/", "", ""},
		{"tls.test", "GET", "/", "", ""},
		{"tcp.test", "GET", "/", "", ""},
		{"other.test", "GET", "/", "", ""},
	} {
		use, q := Use{Name: c.host, Port: 443}, Request{Method: c.method, Path: c.path}
		got := DecideRequest(grant, use, q)
		if (got.Verdict == task.Allowed) != (c.rule != "") || got.Rule != c.rule || got.Credential != c.credential {
			t.Errorf("%s %s%s: %+v, want rule %q, credential %q", c.method, c.host, c.path, got, c.rule, c.credential)
		}
		if got.Verdict == task.Denied && got.Reason != task.PolicyDenied {
			t.Errorf("%s %s%s is denied without a reason", c.method, c.host, c.path)
		}
		if i := NewIndex(grant).DecideRequest(use, q); i.Rule != got.Rule || i.Verdict != got.Verdict || i.Credential != got.Credential {
			t.Errorf("%s %s%s: the index says %+v, the rules %+v", c.method, c.host, c.path, i, got)
		}
	}
}

// A path that two readers could read differently is refused where any rule of
// the connection names paths, also when another rule would allow everything.
func TestPathsThatMeanTwoThings(t *testing.T) {
	grant := task.Grant{Rules: []task.Rule{
		{ID: "any", Host: "a.test", Ports: []uint16{443}},
		{ID: "path", Host: "a.test", Ports: []uint16{443}, Paths: []string{"/pub/**"}, Credential: "k"},
	}}
	for _, path := range []string{
		"", "*", "pub/x", "/pub/../x", "/pub/./x", "/pub/..", "/pub//x", "//pub/x", "/pub/%2e%2e/x", "/pub/%2E./x", "/pub/a%2fb", "/pub/a%2Fb",
		"/pub/a%5cb", "/pub/a\\b", "/pub/%00", "/pub/%252e%252e/x", "/pub/%252fx", "/pub/%25252fx", "/pub/..;/x", "/pub/..;a=b/x", "/pub/;x", "/pub/..%3bx",
		"/pub/a%3fb", "/pub/a%23b", "/pub/a%253Fb", "/pub/a%0d%0ab", "/pub/a%0Ab", "/pub/a%09b", "/pub/a%1fb", "/pub/a%7fb", "/pub/a%250ab",
		"/pub/%c0%ae%c0%ae/x", "/pub/a%c0%afb", "/pub/a%e0%80%afb", "/pub/a%ffb", "/pub/%u002e/x",
		"/pub/%", "/pub/%2", "/pub/%zz", "/pub/a b", "/pub/\x00", "/pub/\x7f", "/pub/ä", "/pub/x?y", "/pub/x#y", "/pub/\r\nx",
	} {
		if got := DecideRequest(grant, Use{Name: "a.test", Port: 443}, Request{Method: "GET", Path: path}); got.Verdict != task.Denied {
			t.Errorf("%q: %+v, want denied", path, got)
		}
	}
	for path, rule := range map[string]string{
		"/": "any", "/pub": "any", "/pub/x": "path", "/pub/": "path", "/pub/x%20y": "path", "/pub/100%25": "path", "/pub/...": "path",
		"/pub/.git": "path", "/pub/a;b": "path", "/pub/@scope%2Bx": "path", "/pub/~x": "path", "/%70ub/x": "any",
	} {
		if got := DecideRequest(grant, Use{Name: "a.test", Port: 443}, Request{Method: "GET", Path: path}); got.Rule != rule {
			t.Errorf("%q: %+v, want rule %s", path, got, rule)
		}
	}
}

func TestCovers(t *testing.T) {
	lease := task.Lease{Hosts: []string{"*.a.test", "b.test"}, Ports: []uint16{443}, Methods: []string{"GET"}, Paths: []string{"/x/**"}}
	for _, c := range []struct {
		lease task.Lease
		use   Use
		q     Request
		want  bool
	}{
		{lease, Use{Name: "k.a.test", Port: 443}, Request{Method: "GET", Path: "/x/1"}, true},
		{lease, Use{Name: "B.test.", Port: 443}, Request{Method: "GET", Path: "/x/1"}, true},
		{lease, Use{Name: "a.test", Port: 443}, Request{Method: "GET", Path: "/x/1"}, false},
		{lease, Use{Name: "b.test", Port: 80}, Request{Method: "GET", Path: "/x/1"}, false},
		{lease, Use{Name: "b.test", Port: 443}, Request{Method: "POST", Path: "/x/1"}, false},
		{lease, Use{Name: "b.test", Port: 443}, Request{Method: "GET", Path: "/y"}, false},
		{lease, Use{Name: "b.test", Port: 443}, Request{Method: "GET", Path: "/x/../y"}, false},
		{task.Lease{}, Use{Name: "b.test", Port: 443}, Request{Method: "GET", Path: "/"}, false},
		{task.Lease{Hosts: []string{"b.test"}}, Use{Name: "b.test", Port: 443}, Request{Method: "GET", Path: "/"}, false},
		{task.Lease{Ports: []uint16{443}}, Use{Name: "b.test", Port: 443}, Request{Method: "GET", Path: "/"}, false},
		{task.Lease{Hosts: []string{"b.test"}, Ports: []uint16{443}}, Use{Name: "b.test", Port: 443}, Request{Method: "PUT", Path: "/any"}, true},
	} {
		if got := Covers(c.lease, c.use, c.q); got != c.want {
			t.Errorf("Covers(%+v, %+v, %+v) = %t", c.lease, c.use, c.q, got)
		}
	}
}
