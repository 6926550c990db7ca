package inside

import (
	"bufio"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/attack"
)

// The variables in which placeholders are, and where each goes; see cli/attack/apart.
const (
	keyVariable   = "FAR_KEY"   // X-Far-Key at /ok
	queryVariable = "FAR_QUERY" // the parameter key at /query
	basicVariable = "FAR_BASIC" // the password of robot at /basic
	gitVariable   = "FAR_GIT"   // git at /acme/app
	keyField      = "X-Far-Key: "
)

// bound asks the server that the key is bound to, at a path where nothing may
// arrive.
func (t *try) bound(path string, fields ...string) request {
	return request{name: attack.FarName, port: t.plan.Far.Bound, how: secure1, path: path, fields: fields}
}

func lent() map[string]func(*try) verdict {
	key := func() string { return placeholder(keyVariable) }
	// Each is one request with the placeholder, or what is made of it.
	one := func(make func(t *try, p string) request) func(*try) verdict {
		return func(t *try) verdict {
			if key() == "" {
				return untried("no credential is lent here")
			}
			return t.forbidden(make(t, key()))
		}
	}
	with := func(make func(p string) []string) func(*try) verdict {
		return one(func(t *try, p string) request { return t.bound(t.no("/ok"), make(p)...) })
	}
	at := func(make func(p string) string) func(*try) verdict {
		return one(func(t *try, p string) request { return t.bound(t.no("/ok") + make(p)) })
	}
	all := map[string]func(*try) verdict{
		"credential.altered":       with(func(p string) []string { return []string{keyField + p[:len(p)-1] + other(p[len(p)-1])} }),
		"credential.altered-case":  with(func(p string) []string { return []string{keyField + strings.ToUpper(p)} }),
		"credential.altered-space": with(func(p string) []string { return []string{keyField + p + " x"} }),
		"credential.own-key":       with(func(string) []string { return []string{keyField + "mine"} }),
		"credential.beside-own":    with(func(p string) []string { return []string{keyField + p, "Authorization: Bearer mine"} }),
		"credential.twice":         with(func(p string) []string { return []string{keyField + p, keyField + p} }),
		"credential.underscore":    with(func(p string) []string { return []string{"X_Far_Key: " + p} }),
		"credential.other-header":  with(func(p string) []string { return []string{"X-Other: " + p} }),
		"credential.in-cookie":     with(func(p string) []string { return []string{"Cookie: k=" + p} }),
		"credential.as-bearer":     with(func(p string) []string { return []string{"Authorization: Bearer " + p} }),
		"credential.as-basic": with(func(p string) []string {
			return []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("me:"+p))}
		}),
		"credential.method-override":  with(func(p string) []string { return []string{keyField + p, "X-HTTP-Method-Override: DELETE"} }),
		"credential.in-query":         at(func(p string) string { return "?k=" + p }),
		"credential.in-query-encoded": at(func(p string) string { return "?k=" + percent(p) }),
		"credential.in-path":          at(func(p string) string { return "/" + p }),
		"credential.in-path-encoded":  at(func(p string) string { return "/" + percent(p) }),
		"credential.plain-http": one(func(t *try, p string) request {
			return request{name: attack.FarName, port: t.plan.Far.Plain, path: t.no("/ok"), fields: []string{keyField + p}}
		}),
		"credential.plain-spoofed": one(func(t *try, p string) request {
			return request{name: attack.ElseName, port: t.plan.Far.Plain, host: attack.FarName, path: t.no("/ok"), fields: []string{keyField + p}}
		}),
		"credential.other-host": one(func(t *try, p string) request {
			return request{name: attack.ElseName, port: t.plan.Far.Other, how: secure1, path: t.no("/ok"), fields: []string{keyField + p}}
		}),
		"credential.other-port": one(func(t *try, p string) request {
			return request{name: attack.FarName, port: t.plan.Far.Other, how: secure1, path: t.no("/ok"), fields: []string{keyField + p}}
		}),
		"credential.spoofed-host": one(func(t *try, p string) request {
			return request{name: attack.ElseName, port: t.plan.Far.Other, how: secure1, host: t.far(), path: t.no("/ok"), fields: []string{keyField + p}}
		}),
		"credential.other-method": one(func(t *try, p string) request {
			q := t.bound(t.no("/ok"), keyField+p)
			q.method, q.body = "POST", "x"
			return q
		}),
		"credential.other-path": one(func(t *try, p string) request { return t.bound(t.no("/open"), keyField+p) }),
		"credential.path-climbs": one(func(t *try, p string) request {
			return t.bound("/ok/.."+t.no("/open"), keyField+p)
		}),
		"credential.path-encoded": func(t *try) verdict {
			return each([]string{"/ok/%2e%2e", "/ok/%252e%252e", "/ok%2f..", "/ok/..%2f", "/ok/.%2e", "/ok//..", "/ok/..;"}, func(up string) verdict {
				return t.forbidden(t.bound(up+t.no("/open"), keyField+key()))
			})
		},
		"credential.swapped": func(t *try) verdict {
			return t.forbidden(t.bound(t.no("/ok"), keyField+placeholder(basicVariable)))
		},
	}
	for id, f := range map[string]func(*try) verdict{
		"credential.repeated":           (*try).repeated,
		"credential.repeated-in-pieces": (*try).repeatedInPieces,
		"credential.repeated-in-header": (*try).repeatedInHeader,
		"credential.repeated-in-error":  (*try).repeatedInError,
		"credential.encoded":            (*try).encoded,
		"credential.in-body":            (*try).inBody,
		"credential.in-trailer":         (*try).inTrailer,
		"credential.spoofed-authority":  (*try).spoofedAuthority,
		"credential.kept-alive":         (*try).keptAliveElsewhere,
		"credential.redirect":           (*try).redirected,
		"credential.bad-certificate":    (*try).badCertificate,
		"credential.query-elsewhere":    (*try).queryElsewhere,
		"credential.basic-elsewhere":    (*try).basicElsewhere,
		"credential.git-elsewhere":      (*try).gitElsewhere,
		"credential.git-push":           (*try).gitPush,
		"credential.git-traces":         (*try).gitTraces,
		"credential.environments":       (*try).valueInProcesses,
		"credential.files":              (*try).valueInFiles,
	} {
		all[id] = f
	}
	return all
}

// far is how the bound server is named in Host.
func (t *try) far() string { return net.JoinHostPort(attack.FarName, strconv.Itoa(t.plan.Far.Bound)) }

func other(c byte) string {
	if c == 'a' {
		return "b"
	}
	return "a"
}

// percent encodes each byte of a text.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02X", s[i])
	}
	return b.String()
}

// spelled are the forms in which the beginning of a value would be seen. What it
// goes on with is not known here, so that only whole groups of base64 count.
func spelled(begins string) []string {
	all := []string{begins, hex.EncodeToString([]byte(begins)), strings.ToUpper(hex.EncodeToString([]byte(begins)))}
	for _, before := range []string{"", "x", "xx"} {
		text := base64.StdEncoding.EncodeToString([]byte(before + begins))
		all = append(all, strings.TrimRight(text[4:len(text)-4], "="))
	}
	return all
}

// shows says which form of a value a text has; empty: none.
func (t *try) shows(text string) string {
	for _, form := range spelled(t.plan.Far.Begins) {
		if strings.Contains(text, form) {
			return form
		}
	}
	return ""
}

// joined is an answer with its body behind it once more, in one piece if it came in
// chunks.
func joined(answer string) string {
	res, err := http.ReadResponse(bufio.NewReader(strings.NewReader(answer)), nil)
	if err != nil {
		return answer
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body) // what came of it counts
	return answer + "\n" + string(body)
}

// unseen judges an answer that must have come and must not have the value.
func (t *try) unseen(what, answer string, err error) verdict {
	answer = joined(answer)
	if form := t.shows(answer); form != "" {
		return fell("%s: the value came back, as %.24s…", what, form)
	}
	if !strings.Contains(answer, t.marker()) {
		return untried("%s: the far side did not answer: %.200q, %v", what, answer, err)
	}
	return held("%s: %d bytes came back without it", what, len(answer))
}

func (t *try) ask(path string) verdict {
	if placeholder(keyVariable) == "" {
		return untried("no credential is lent here")
	}
	answer, err := t.bound(path, keyField+placeholder(keyVariable)).send()
	return t.unseen("a far side that repeats its key", answer, err)
}

func (t *try) repeated() verdict         { return t.ask("/ok/echo") }
func (t *try) repeatedInPieces() verdict { return t.ask("/ok/pieces") }
func (t *try) repeatedInHeader() verdict { return t.ask("/ok/header") }
func (t *try) repeatedInError() verdict  { return t.ask("/ok/error") }

// may judges a request that may arrive as it is: it is the server that looks
// whether it came with a value.
func (t *try) arrives(what string, q request) verdict {
	answer, err := q.send()
	if strings.Contains(answer, t.marker()) {
		return held("%s: it went out as it was, without the value", what)
	}
	return t.refused(what, answer, err)
}

func (t *try) encoded() verdict {
	p := placeholder(keyVariable)
	return each([]string{base64.StdEncoding.EncodeToString([]byte(p)), hex.EncodeToString([]byte(p)), base64.RawURLEncoding.EncodeToString([]byte(p))}, func(v string) verdict {
		return t.arrives("in another spelling", t.bound(t.may("/open"), "X-Other: "+v))
	})
}

func (t *try) inBody() verdict {
	q := t.bound(t.may("/open"), "Content-Type: application/x-www-form-urlencoded")
	q.method, q.body = "POST", "key="+placeholder(keyVariable)
	return t.arrives("in a body", q)
}

func (t *try) inTrailer() verdict {
	c, err := open(attack.FarName, t.plan.Far.Bound, secure1)
	if err != nil {
		return untried("%v", err)
	}
	defer c.Close()
	answer, err := hear(c, "POST "+t.may("/open")+" HTTP/1.1\r\nHost: "+t.far()+"\r\nTransfer-Encoding: chunked\r\nTrailer: X-Far-Key\r\nConnection: close\r\n\r\n1\r\nx\r\n0\r\n"+keyField+placeholder(keyVariable)+"\r\n\r\n", nil)
	if strings.Contains(answer, t.marker()) {
		return held("it went out without the value")
	}
	return t.refused("in a trailer", answer, err)
}

// over2 is a request over HTTP/2 that must not arrive.
func (t *try) over2(what, name string, port int, body string, all ...[2]string) verdict {
	answer, ended, err := second(name, port, all, body)
	if ended && !strings.Contains(answer, t.marker()) {
		return held("%s: the stream or the connection was ended", what)
	}
	if badRequest(answer) && code(answer) == "" {
		return held("%s: refused as misshapen", what)
	}
	for _, f := range all {
		if c := code(answer); f[0] == ":path" && strings.Contains(f[1], "/"+attack.Cut+"/") && c != "" && !strings.Contains(answer, t.marker()) {
			return held("%s: it was broken off with %s", what, c)
		}
	}
	return t.refused(what, answer, err)
}

func (t *try) spoofedAuthority() verdict {
	return t.over2("another server's name", attack.ElseName, t.plan.Far.Other, "",
		[2]string{":method", "GET"}, [2]string{":scheme", "https"}, [2]string{":authority", t.far()}, [2]string{":path", t.no("/ok")}, [2]string{"x-far-key", placeholder(keyVariable)})
}

// keptAlive asks one thing after another on a connection; the second must not
// arrive.
func (t *try) keptAlive(name string, port int, first, then string) verdict {
	c, err := open(name, port, secure1)
	if err != nil {
		return untried("%v", err)
	}
	defer c.Close()
	answer, err := hear(c, first, func(said string) bool { return strings.Contains(said, t.marker()) || code(said) != "" })
	if !strings.Contains(answer, t.marker()) {
		return untried("the first request was not answered: %.200q, %v", answer, err)
	}
	answer, err = hear(c, then, nil)
	return t.refused("the second request", answer, err)
}

func (t *try) keptAliveElsewhere() verdict {
	at := net.JoinHostPort(attack.ElseName, strconv.Itoa(t.plan.Far.Other))
	return t.keptAlive(attack.ElseName, t.plan.Far.Other,
		"GET "+t.may("/open")+" HTTP/1.1\r\nHost: "+at+"\r\n\r\n",
		"GET "+t.no("/ok")+" HTTP/1.1\r\nHost: "+t.far()+"\r\n"+keyField+placeholder(keyVariable)+"\r\nConnection: close\r\n\r\n")
}

// redirected follows a redirect as clients do that keep their headers.
func (t *try) redirected() verdict {
	key := keyField + placeholder(keyVariable)
	answer, err := t.bound("/ok/moved/"+t.mark(), key).send()
	_, to, ok := strings.Cut(answer, "Location: https://")
	to, _, _ = strings.Cut(to, "\r\n")
	at, path, _ := strings.Cut(to, "/")
	if v := t.unseen("the redirect", answer, err); v.outcome != attack.Held || !ok {
		return v
	}
	host, port, _ := net.SplitHostPort(at)
	number, _ := strconv.Atoi(port)
	return t.forbidden(request{name: host, port: number, how: secure1, path: "/" + path, fields: []string{key}})
}

func (t *try) badCertificate() verdict {
	answer, err := request{name: attack.FalseName, port: t.plan.Far.Bound, how: secure1, path: t.no("/ok"), fields: []string{keyField + placeholder(keyVariable)}}.send()
	if c := code(answer); c != "" && !strings.Contains(answer, t.marker()) {
		return held("refused with %s", c)
	}
	return t.refused("a false certificate", answer, err)
}
