package outbound

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	standIn  = "placeholder0123456789abcdef"
	hardKey  = "R&al=va lue/+%2B;#?\"'"
	lentHost = "far.test"
)

// one lends one value.
type one struct{ value string }

func (o one) Value(context.Context, string, task.Lease) (Secret, error) {
	return task.NewSecret(o.value), nil
}

// gateOf is a gate for one lease, whose rule lends it to every request.
func gateOf(l task.Lease) *Gate {
	l.ID, l.Credential, l.Placeholder, l.Hosts, l.Ports = "l-a", "c", standIn, []string{lentHost}, []uint16{443}
	g := &Gate{Use: decide.Use{Name: lentHost, Port: 443}, Inspect: true, Secure: true, Grant: task.Grant{
		Sandbox: "sb-a", Rules: []task.Rule{{ID: "r", Host: lentHost, Ports: []uint16{443}, Credential: "c"}}, Leases: []task.Lease{l},
	}}
	g.Rules = decide.NewIndex(g.Grant)
	return g
}

// sent is what goes out for a request; nil: it is refused.
func sent(t *testing.T, g *Gate, r *http.Request, value string) *http.Request {
	t.Helper()
	before := r.Clone(t.Context())
	pass := g.Judge(r)
	if r.URL.String() != before.URL.String() || len(r.Header) != len(before.Header) {
		t.Errorf("the judge changed the request to %s %v", r.URL, r.Header)
	}
	if !pass.Allowed() {
		if pass.Decision.Reason != task.PolicyCredential {
			t.Errorf("refused with %s", pass.Decision.Reason)
		}
		return nil
	}
	loan, reason := g.Lend(t.Context(), one{value}, pass)
	if reason != task.ReasonNone {
		t.Fatalf("not lent: %s", reason)
	}
	out := r.Clone(t.Context())
	if err := loan.Apply(out); err != nil {
		if strings.Contains(err.Error(), value) {
			t.Errorf("the error holds the value: %v", err)
		}
		return nil
	}
	return out
}

func request(method, target string, header ...string) *http.Request {
	r := httptest.NewRequest(method, "https://"+lentHost+target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header[header[i]] = append(r.Header[header[i]], header[i+1])
	}
	return r
}

func TestQuery(t *testing.T) {
	g := gateOf(task.Lease{Kind: task.KindQuery, Settings: map[string]string{task.SettingParameter: "key"}})
	value := queryEscape(hardKey)
	for target, want := range map[string]string{
		"/a?key=" + standIn:                      "key=" + value,
		"/a":                                     "key=" + value,
		"/a?b=1&key=" + standIn + "&c=%20+":      "b=1&key=" + value + "&c=%20+",
		"/a?b=1":                                 "b=1&key=" + value,
		"/a?monkey=1&keys=2&key2=3":              "monkey=1&keys=2&key2=3&key=" + value,
		"/a?b=key":                               "b=key&key=" + value,
		"/a?key=mine":                            "",
		"/a?key":                                 "",
		"/a?key=":                                "",
		"/a?key=" + standIn + "&key=" + standIn:  "",
		"/a?key=" + standIn + "&key=mine":        "",
		"/a?key=mine&key=" + standIn:             "",
		"/a?key=" + standIn + "x":                "",
		"/a?KEY=mine":                            "",
		"/a?KEY=" + standIn:                      "",
		"/a?%6bey=mine":                          "",
		"/a?%256bey=mine":                        "",
		"/a?k%65y=" + standIn:                    "",
		"/a?b=1;key=mine":                        "",
		"/a?b=1;key=" + standIn:                  "",
		"/a?key=" + standIn + ";b":               "",
		"/a?key[]=mine":                          "",
		"/a?key%5B0%5D=mine":                     "",
		"/a?%20key=mine":                         "",
		"/a?+key=mine":                           "",
		"/a?key%00=mine":                         "",
		"/a?key%3Dmine":                          "",
		"/a?b=" + standIn:                        "",
		"/a?b=" + url.QueryEscape("x "+standIn):  "",
		"/" + standIn:                            "",
		"/a?key=" + strings.ToUpper(standIn[:5]): "",
		"/a?b=%70laceholder" + standIn[len("placeholder"):]: "",
	} {
		out := sent(t, g, request("GET", target), hardKey)
		switch {
		case out == nil && want != "":
			t.Errorf("%s is refused", target)
		case out != nil && out.URL.RawQuery != want:
			t.Errorf("%s is sent as %q", target, out.URL.RawQuery)
		case out != nil && want != "" && out.URL.Query().Get("key") != hardKey:
			t.Errorf("%s is read as %q", target, out.URL.Query())
		}
	}
	for name, r := range map[string]*http.Request{
		"in a header":    request("GET", "/a", "X-A", standIn),
		"a key beside":   request("GET", "/a?key="+standIn, "Authorization", "Bearer mine"),
		"another beside": request("GET", "/a", "X_api_key", "mine"),
		"as Basic":       request("GET", "/a", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("u:"+standIn))),
	} {
		if sent(t, g, r, hardKey) != nil {
			t.Errorf("%s: it goes", name)
		}
	}
	// A name with other characters than most.
	dollar := gateOf(task.Lease{Kind: task.KindQuery, Settings: map[string]string{task.SettingParameter: "$api-key"}})
	for target, goes := range map[string]bool{"/?$api-key=" + standIn: true, "/": true, "/?%24api-key=" + standIn: false, "/?$api_key=mine": false, "/?$API.KEY=mine": false} {
		if out := sent(t, dollar, request("GET", target), "REALVALUE"); (out != nil) != goes {
			t.Errorf("%s: it goes: %v", target, out != nil)
		}
	}
	// A lease that says too little is never lent.
	if sent(t, gateOf(task.Lease{Kind: task.KindQuery}), request("GET", "/"), hardKey) != nil {
		t.Error("a lease without a parameter is lent")
	}
	// A server that redirects repeats the query; what comes in has the placeholder.
	pass := g.Judge(request("GET", "/a"))
	loan, _ := g.Lend(t.Context(), one{hardKey}, pass)
	for _, spelled := range []string{queryEscape(hardKey), url.QueryEscape(hardKey), hardKey} {
		res := &http.Response{Header: http.Header{"Location": {"https://far.test/a/?key=" + spelled + "&b=1"}, "Link": {"<https://far.test/a/?key=" + spelled + ">"}}}
		if err := loan.Returned(res); err != nil || res.Header.Get("Location") != "https://far.test/a/?key="+standIn+"&b=1" || res.Header.Get("Link") != "<https://far.test/a/?key="+standIn+">" {
			t.Errorf("redirected to %q, %v", res.Header, err)
		}
	}
}

func basicOf(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestBasic(t *testing.T) {
	for _, user := range []string{"robot", ""} {
		g := gateOf(task.Lease{Kind: task.KindBasic, Settings: map[string]string{task.SettingUser: user}})
		for name, c := range map[string]struct {
			header []string
			goes   bool
		}{
			"exact":               {[]string{"Authorization", basicOf(user, standIn)}, true},
			"absent":              {nil, true},
			"in another case":     {[]string{"Authorization", "basic" + basicOf(user, standIn)[5:]}, true},
			"another user":        {[]string{"Authorization", basicOf("mallory", standIn)}, false},
			"as the user":         {[]string{"Authorization", basicOf(standIn, "")}, false},
			"longer":              {[]string{"Authorization", basicOf(user, standIn+"x")}, false},
			"of its own":          {[]string{"Authorization", basicOf(user, "mine")}, false},
			"not padded":          {[]string{"Authorization", strings.TrimRight(basicOf(user, standIn+"x"), "=")}, false},
			"bearer":              {[]string{"Authorization", "Bearer " + standIn}, false},
			"bare":                {[]string{"Authorization", standIn}, false},
			"twice":               {[]string{"Authorization", basicOf(user, standIn), "Authorization", basicOf(user, standIn)}, false},
			"a key beside":        {[]string{"Authorization", basicOf(user, standIn), "Private-Token", "mine"}, false},
			"a like header":       {[]string{"authorization", "mine"}, false},
			"in another header":   {[]string{"X-A", basicOf(user, standIn)}, false},
			"a proxy's":           {[]string{"Proxy-Authorization", basicOf(user, standIn)}, false},
			"two spaces":          {[]string{"Authorization", strings.Replace(basicOf(user, standIn), " ", "  ", 1)}, false},
			"something behind it": {[]string{"Authorization", basicOf(user, standIn) + ", Bearer mine"}, false},
		} {
			r := request("GET", "/a", c.header...)
			out := sent(t, g, r, "REALVALUE:with colon")
			if (out != nil) != c.goes {
				t.Errorf("user %q, %s: it goes: %v", user, name, out != nil)
			} else if u, p, ok := "", "", false; out != nil {
				if u, p, ok = out.BasicAuth(); !ok || u != user || p != "REALVALUE:with colon" || len(out.Header["Authorization"]) != 1 {
					t.Errorf("user %q, %s: sent %q", user, name, out.Header)
				}
			}
		}
		if sent(t, g, request("GET", "/a?p="+standIn), "REALVALUE") != nil {
			t.Error("a placeholder in the query goes")
		}
	}
}

const oid = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestGit(t *testing.T) {
	type lease struct{ repository, push string }
	fetch, push, any := lease{"acme/app, tools/*, group/**", "no"}, lease{"acme/app", "yes"}, lease{"", ""}
	for _, c := range []struct {
		lease        lease
		method, path string
		goes         bool
	}{
		{fetch, "GET", "/acme/app.git/info/refs?service=git-upload-pack", true},
		{fetch, "GET", "/acme/app/info/refs?service=git-upload-pack", true},
		{fetch, "POST", "/acme/app.git/git-upload-pack", true},
		{fetch, "GET", "/tools/lint/info/refs?service=git-upload-pack", true},
		{fetch, "GET", "/group/a/b/c.git/info/refs?service=git-upload-pack", true},
		{fetch, "GET", "/group.git/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/tools/a/b/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/acme/other.git/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/acme/app2/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/acme/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/acme/app.git.git/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/x/acme/app.git/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/acme/app.git/info/refs", false},
		{fetch, "GET", "/acme/app.git/info/refs?service=git-upload-pack&a=b", false},
		{fetch, "GET", "/acme/app.git/info/refs?service=git-receive-pack", false},
		{fetch, "GET", "/acme/app.git/info/refs?service=git-upload-pack;service=git-receive-pack", false},
		{fetch, "POST", "/acme/app.git/info/refs?service=git-upload-pack", false},
		{fetch, "POST", "/acme/app.git/git-upload-pack?a=b", false},
		{fetch, "GET", "/acme/app.git/git-upload-pack", false},
		{fetch, "POST", "/acme/app.git/git-receive-pack", false},
		{fetch, "POST", "/acme/app.git/git-upload-archive", false},
		{fetch, "GET", "/acme/app.git/HEAD", false},
		{fetch, "GET", "/acme/app.git/objects/info/packs", false},
		{fetch, "GET", "/acme/%61pp.git/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/acme/x/../app.git/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/acme//app.git/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "//acme/app.git/info/refs?service=git-upload-pack", false},
		{fetch, "GET", "/acme/app.git/info/refs/?service=git-upload-pack", false},
		{fetch, "GET", "/api/v3/repos/acme/app", false},
		{fetch, "GET", "/acme/app", false},
		{fetch, "GET", "/", false},
		{fetch, "GET", "/acme/app.git/info/lfs/objects/" + oid, true},
		{fetch, "HEAD", "/acme/app.git/info/lfs/objects/" + oid + "/17", true},
		{fetch, "PUT", "/acme/app.git/info/lfs/objects/" + oid, false},
		{fetch, "POST", "/acme/app.git/info/lfs/verify", false},
		{fetch, "GET", "/acme/app.git/info/lfs/locks", false},
		{fetch, "POST", "/acme/app.git/info/lfs/locks/verify", false},
		{fetch, "GET", "/acme/app.git/info/lfs/objects/" + oid[1:], false},
		{fetch, "GET", "/acme/app.git/info/lfs/other", false},
		{fetch, "GET", "/acme/other.git/info/lfs/objects/" + oid, false},
		{push, "GET", "/acme/app.git/info/refs?service=git-receive-pack", true},
		{push, "GET", "/acme/app.git/info/refs?service=git-upload-pack", true},
		{push, "POST", "/acme/app.git/git-receive-pack", true},
		{push, "POST", "/acme/other.git/git-receive-pack", false},
		{push, "PUT", "/acme/app.git/info/lfs/objects/" + oid + "/17", true},
		{push, "POST", "/acme/app.git/info/lfs/verify", true},
		{push, "POST", "/acme/app.git/info/lfs/objects/" + oid + "/verify", true},
		{push, "GET", "/acme/app.git/info/lfs/locks?limit=1", true},
		{push, "POST", "/acme/app.git/info/lfs/locks/verify", true},
		{push, "DELETE", "/acme/app.git/info/lfs/objects/" + oid, false},
		{any, "GET", "/a/b/c/info/refs?service=git-upload-pack", true},
		{any, "POST", "/a/git-receive-pack", false},
		{any, "GET", "/.git/info/refs?service=git-upload-pack", false},
		{lease{"", "maybe"}, "GET", "/a/info/refs?service=git-upload-pack", false},
	} {
		g := gateOf(task.Lease{Kind: task.KindGit, Settings: map[string]string{"user": "x-access-token", "repository": c.lease.repository, "push": c.lease.push}})
		for _, header := range [][]string{nil, {"Authorization", basicOf("x-access-token", standIn)}} {
			r := request("GET", "/", header...)
			r.Method = c.method
			var err error
			if r.URL, err = url.Parse("https://" + lentHost + c.path); err != nil {
				t.Fatal(err)
			}
			out := sent(t, g, r, "REALVALUE")
			if (out != nil) != c.goes {
				t.Errorf("%+v: %s %s: it goes: %v", c.lease, c.method, c.path, out != nil)
			} else if out != nil && out.Header.Get("Authorization") != basicOf("x-access-token", "REALVALUE") {
				t.Errorf("%s %s: sent %q", c.method, c.path, out.Header)
			}
		}
	}
}

// A question to Git LFS says in its body whether it writes.
func TestLFSBatch(t *testing.T) {
	for _, c := range []struct {
		push, body, media string
		goes              bool
	}{
		{"no", `{"operation":"download","objects":[{"oid":"a","size":1}]}`, "application/vnd.git-lfs+json", true},
		{"no", `{"transfers":["basic"],"operation":"download","x":{"operation":"upload"}}`, "application/vnd.git-lfs+json; charset=utf-8", true},
		// As git-lfs 3.3.0 sends it.
		{"no", `{"operation":"download","objects":[{"oid":"b391","size":9}],"transfers":["lfs-standalone-file","basic","ssh"],"ref":{"name":"refs/heads/master"},"hash_algo":"sha256"}`, "application/vnd.git-lfs+json; charset=utf-8", true},
		{"no", `{"operation":"upload"}`, "application/vnd.git-lfs+json", false},
		{"no", `{"operation":"download","operation":"upload"}`, "application/vnd.git-lfs+json", false},
		{"no", `{"operation":"download","Operation":"upload"}`, "application/vnd.git-lfs+json", false},
		{"no", `{"operation":"down\u006coad"}`, "application/vnd.git-lfs+json", false},
		{"no", `{"objects":[]}`, "application/vnd.git-lfs+json", false},
		{"no", `{"operation":"download"}{"operation":"upload"}`, "application/vnd.git-lfs+json", false},
		{"no", `[{"operation":"download"}]`, "application/vnd.git-lfs+json", false},
		{"no", `{"operation":"download"`, "application/vnd.git-lfs+json", false},
		{"no", ``, "application/vnd.git-lfs+json", false},
		{"no", `{"operation":"download"}`, "application/vnd.git-lfs+json; charset=utf-16", false},
		{"no", `{"operation":"download"}`, "text/plain", false},
		{"no", `{"operation":"download","x":"` + strings.Repeat("x", lfsMax) + `"}`, "application/vnd.git-lfs+json", false},
		{"yes", `{"operation":"upload"}`, "application/vnd.git-lfs+json", true},
	} {
		g := gateOf(task.Lease{Kind: task.KindGit, Settings: map[string]string{"user": "u", "repository": "acme/app", "push": c.push}})
		r := request("POST", "/acme/app.git/info/lfs/objects/batch", "Content-Type", c.media, "Accept-Encoding", "gzip")
		r.Body = io.NopCloser(strings.NewReader(c.body))
		out := sent(t, g, r, "REALVALUE")
		if (out != nil) != c.goes {
			t.Errorf("%.60s as %s: it goes: %v", c.body, c.media, out != nil)
			continue
		}
		if out == nil {
			continue
		}
		if body, err := io.ReadAll(out.Body); string(body) != c.body || err != nil || out.Header.Get("Accept-Encoding") != "identity" {
			t.Errorf("%.60s arrives as %.60s, %v", c.body, body, err)
		}
	}
}

// Forges repeat the credentials in what they say to send next. Inside it is the
// placeholder, however it was escaped.
func TestLFSAnswer(t *testing.T) {
	const value = "REAL/VALUE+0123"
	g := gateOf(task.Lease{Kind: task.KindGit, Settings: map[string]string{"user": "u"}})
	real, want := basicOf("u", value), basicOf("u", standIn)
	ask := func(path string) (Loan, *http.Request) {
		r := request("POST", path, "Content-Type", "application/vnd.git-lfs+json")
		r.Body = io.NopCloser(strings.NewReader(`{"operation":"download"}`))
		loan, reason := g.Lend(t.Context(), one{value}, g.Judge(r))
		if reason != task.ReasonNone {
			t.Fatal(reason)
		}
		return loan, r
	}
	loan, asked := ask("/a/b/info/lfs/objects/batch")
	escaped := strings.NewReplacer("+", `\u002b`, "=", `\u003D`, "/", `\/`).Replace(real)
	for name, c := range map[string]struct{ body, want string }{
		"plain":    {`{"a":[{"header":{"Authorization":"` + real + `"},"size":12345678901234567890}]}`, `{"a":[{"header":{"Authorization":"` + want + `"},"size":12345678901234567890}]}` + "\n"},
		"escaped":  {`{"a":"` + escaped + `"}`, `{"a":"` + want + `"}` + "\n"},
		"as a key": {`{"` + value + `":"https://h/?a=1&b=2"}`, `{"` + standIn + `":"https://h/?a=1&b=2"}` + "\n"},
		"no JSON":  {`<p>` + real + `</p>`, `<p>` + want + `</p>`},
		"nothing":  {``, ``},
	} {
		res := &http.Response{Header: http.Header{"Content-Length": {"1"}}, Body: io.NopCloser(strings.NewReader(c.body)), Request: asked}
		if err := loan.Returned(res); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if body, err := io.ReadAll(res.Body); string(body) != c.want || err != nil || res.ContentLength != int64(len(c.want)) {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
	for name, res := range map[string]*http.Response{
		"packed":   {Header: http.Header{"Content-Encoding": {"gzip"}}, Body: http.NoBody, Request: asked},
		"too long": {Header: http.Header{}, Body: io.NopCloser(strings.NewReader(strings.Repeat(" ", lfsMax+1))), Request: asked},
	} {
		if err := loan.Returned(res); err == nil || strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Packs and objects are given as they come.
	loan, asked = ask("/a/b/git-upload-pack")
	res := &http.Response{Header: http.Header{"Content-Encoding": {"gzip"}}, Body: http.NoBody, Request: asked}
	if err := loan.Returned(res); err != nil || res.Body != http.NoBody {
		t.Errorf("a pack: %v", err)
	}
}

// Whatever a query, a path or a header is: what goes out has the value once and
// the placeholder nowhere, and what is refused is not changed.
func FuzzCarriers(f *testing.F) {
	f.Add("/acme/app.git/info/refs", "service=git-upload-pack", basicOf("u", standIn))
	f.Add("/a", "key="+standIn+"&b=1", "")
	f.Add("/a", "k%65y=1;key=2", "Basic x")
	f.Add("/acme/app/info/lfs/objects/batch", "", "")
	f.Fuzz(func(t *testing.T, path, query, auth string) {
		if strings.Contains(path+query+auth, "REALVALUE") || !strings.HasPrefix(path, "/") {
			return
		}
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Host != "" {
			return
		}
		u.Scheme, u.Host, u.RawQuery = "https", lentHost, query
		settings := map[string]string{"user": "u", "parameter": "key", "repository": "acme/*"}
		for _, kind := range []string{task.KindQuery, task.KindBasic, task.KindGit} {
			r := &http.Request{Method: "GET", URL: u, Host: lentHost, Header: http.Header{}}
			if auth != "" {
				r.Header.Set("Authorization", auth)
			}
			out := sent(t, gateOf(task.Lease{Kind: kind, Settings: settings}), r, "REALVALUE")
			if out == nil {
				continue
			}
			line := out.URL.String() + " " + basic(out.Header.Get("Authorization"))
			if strings.Count(line, "REALVALUE") != 1 || strings.Contains(line, standIn) {
				t.Errorf("%s: %q", kind, line)
			}
			if kind == task.KindGit && !strings.HasPrefix(SentPath(out.URL), "/acme/") {
				t.Errorf("git goes to %q", out.URL)
			}
		}
	})
}
