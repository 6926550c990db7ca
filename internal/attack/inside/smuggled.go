package inside

import (
	"strings"

	"github.com/cofferdam/cofferdam/internal/attack"
)

// smuggled are requests that two programs could read as different ones. NO is a
// path at which nothing may arrive, MAY one at which something may, CUT one at which
// a request may begin and not end, and HOST the server's Host line.
func smuggled() map[string][]string {
	post := "POST NO HTTP/1.1\r\nHOST"
	get := "GET NO HTTP/1.1\r\nHOST"
	cut := "POST CUT HTTP/1.1\r\nHOST"
	inner := get + "\r\n"
	return map[string][]string{
		"length-and-chunks": {
			post + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG", post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n5c\r\n" + inner + "\r\n0\r\n\r\n",
			post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		},
		"two-lengths": {post + "Content-Length: 0\r\nContent-Length: 5\r\n\r\n" + inner, post + "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", post + "Content-Length: 5\r\ncontent-length: 0\r\n\r\nGET /"},
		"odd-lengths": {
			post + "Content-Length: 5, 5\r\n\r\n12345", post + "Content-Length: +5\r\n\r\n12345", post + "Content-Length: -1\r\n\r\n", post + "Content-Length:\r\n\r\n", post + "Content-Length: 0x5\r\n\r\n12345",
			post + "Content-Length: 5 5\r\n\r\n12345", post + "Content-Length: 99999999999999999999\r\n\r\nx", post + "Content-Length: 5.0\r\n\r\n12345",
		},
		"other-coding": {
			post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
			post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", post + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", post + "Transfer-Encoding: identity\r\n\r\n" + inner, post + "Transfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
			post + "Transfer-Encoding: 'chunked'\r\n\r\n0\r\n\r\n", post + "Transfer-Encoding:\r\n\r\n" + inner,
		},
		"coding-in-1.0":      {"POST NO HTTP/1.0\r\nHOSTTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
		"space-before-colon": {post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", post + "Content-Length : 5\r\n\r\n12345", get + "Host : else.test\r\n\r\n", get + " X-A: b\r\n\r\n"},
		"folded":             {get + "X-A: b\r\n Host: else.test\r\n\r\n", get + "X-A: b\r\n\tc\r\n\r\n", post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", get + " folded\r\n\r\n"},
		"bare-line-feed":     {"GET NO HTTP/1.1\nHOSTX-A: b\r\n\r\n", get + "X-A: b\nHost: else.test\r\n\r\n", get + "X-A: b\n\n" + inner, get + "\n" + inner},
		"bare-return":        {get + "X-A: b\rX-B: c\r\n\r\n", get + "X-A: b\r\r\n\r\n", get + "X-A: b\x00c\r\n\r\n", get + "X-\x00A: b\r\n\r\n", get + "X-A: \x7f\r\n\r\n"},
		"two-hosts":          {get + "Host: else.test\r\n\r\n", "GET NO HTTP/1.1\r\nHost: else.test\r\nHOST\r\n", get + "HOST\r\n", get + "host: else.test\r\n\r\n"},
		"no-host":            {"GET NO HTTP/1.1\r\n\r\n", "GET NO HTTP/1.1\r\nHost:\r\n\r\n", "GET NO HTTP/1.1\r\nHost: far.test\telse.test\r\n\r\n", "GET NO HTTP/1.1\r\nHost: far.test, else.test\r\n\r\n", "GET NO HTTP/1.1\r\nHost: else.test\r\n\r\n"},
		"absolute-form":      {"GET https://else.testNO HTTP/1.1\r\nHOST\r\n", "GET https://FARNO HTTP/1.1\r\nHost: else.test\r\n\r\n", "GET //else.testNO HTTP/1.1\r\nHost: else.test\r\n\r\n"},
		"absolute-user":      {"GET https://a@FARNO HTTP/1.1\r\nHost: a@FAR\r\n\r\n", "GET http://FARNO HTTP/1.1\r\nHOST\r\n", "GET ftp://FARNO HTTP/1.1\r\nHOST\r\n", "GET https:FARNO HTTP/1.1\r\nHOST\r\n"},
		"target":             {"GET NO#/x HTTP/1.1\r\nHOST\r\n", "GET  NO HTTP/1.1\r\nHOST\r\n", "GET NO x HTTP/1.1\r\nHOST\r\n", "GET\tNO HTTP/1.1\r\nHOST\r\n", "GET NO\x01 HTTP/1.1\r\nHOST\r\n", "GET NO\xc3\xa4 HTTP/1.1\r\nHOST\r\n", " GET NO HTTP/1.1\r\nHOST\r\n"},
		"version":            {"GET NO HTTP/1.2\r\nHOST\r\n", "GET NO HTTP/2.0\r\nHOST\r\n", "GET NO http/1.1\r\nHOST\r\n", "GET NO\r\n\r\n", "GET NO HTTP/1.1 \r\nHOST\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
		"connect":            {"CONNECT FAR HTTP/1.1\r\nHOST\r\n" + inner, "CONNECT else.test:443 HTTP/1.1\r\nHost: else.test:443\r\n\r\n" + inner},
		"upgrade": {
			get + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n", get + "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n",
			get + "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n\r\n", get + "Connection: Upgrade\r\nUpgrade: HTTP/1.1\r\n\r\n",
		},
		"chunk-lines": {
			cut + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", cut + "Transfer-Encoding: chunked\r\n\r\n-1\r\n" + inner, cut + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
			cut + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx", cut + "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n", cut + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n", cut + "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloX\r\n0\r\n\r\n",
		},
		"chunk-extension": {
			cut + "Transfer-Encoding: chunked\r\n\r\n2;\nxx\r\n4c\r\n0\r\n\r\n" + inner + "\r\n0\r\n\r\n", cut + "Transfer-Encoding: chunked\r\n\r\n5;a\rb\r\nhello\r\n0\r\n\r\n", cut + "Transfer-Encoding: chunked\r\n\r\n0;\x00\r\n\r\n",
		},
		"chunk-trailer": {
			cut + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n", cut + "Transfer-Encoding: chunked\r\n\r\n0\r\nHost: else.test\r\n\r\n", cut + "Transfer-Encoding: chunked\r\n\r\n0\r\n folded: x\r\n\r\n",
			cut + "Transfer-Encoding: chunked\r\n\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
		},
		"early-end": {post + "Content-Length: 3\r\nX-A : b\r\n\r\nabc" + inner, "POST MAY HTTP/1.1\r\nHOSTContent-Length: 3\r\n\r\nabcGARBAGE NO\r\n\r\n", "POST MAY HTTP/1.1\r\nHOSTContent-Length: 3\r\n\r\nabc\n" + get + "X : y\r\n\r\n"},
	}
}

func smuggling() map[string]func(*try) verdict {
	all := map[string]func(*try) verdict{}
	for id, requests := range smuggled() {
		all["smuggle."+id] = func(t *try) verdict { return each(requests, t.smuggle) }
	}
	all["smuggle.kept-alive"] = func(t *try) verdict {
		return each([]string{"GET NO HTTP/1.1\r\nHost: else.test\r\nConnection: close\r\n\r\n", "GET https://else.testNO HTTP/1.1\r\nHost: else.test\r\nConnection: close\r\n\r\n"}, func(then string) verdict {
			return t.keptAlive(attack.FarName, t.plan.Far.Bound, t.fill("GET MAY HTTP/1.1\r\nHOST\r\n"), t.fill(then))
		})
	}
	all["smuggle.pipelined"] = func(t *try) verdict {
		return each([]string{"GET NO HTTP/1.1\r\nHOSTX-A : b\r\n\r\n", "GET NO HTTP/1.1\nHOST\r\n", "POST NO HTTP/1.1\r\nHOSTContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"}, func(bad string) verdict {
			return t.smuggleAs(t.fill("GET MAY HTTP/1.1\r\nHOST\r\n" + bad + "GET NO HTTP/1.1\r\nHOST\r\n"))
		})
	}
	for id, f := range second2() {
		all["smuggle."+id] = f
	}
	return all
}

// fill puts paths and names into a request.
func (t *try) fill(text string) string {
	return strings.NewReplacer("NO", t.no("/open"), "MAY", t.may("/open"), "CUT", "/open/"+attack.Cut+"/"+t.mark(), "HOST", "Host: "+t.far()+"\r\n", "FAR", t.far(), "else.test", attack.ElseName).Replace(text)
}

func (t *try) smuggle(text string) verdict { return t.smuggleAs(t.fill(text)) }

// smuggleAs sends it. Nothing of it may be answered but by the gateway, or by the
// server for what may arrive; and the connection must end.
func (t *try) smuggleAs(text string) verdict {
	c, err := open(attack.FarName, t.plan.Far.Bound, secure1)
	if err != nil {
		return untried("%v", err)
	}
	defer c.Close()
	answer, err := hear(c, text, func(said string) bool { return code(said) != "" })
	may := strings.Count(text, "/"+attack.May+"/")
	switch arrived := strings.Count(answer, t.marker()); {
	case arrived > may:
		return fell("%.60q…: the far side answered %d requests of %d", text, arrived, may)
	case strings.HasPrefix(code(answer), "policy.") || strings.Contains(answer, "HTTP/1.1 4"):
		return held("%.60q…: refused with %s", text, code(answer))
	case code(answer) != "" && !strings.Contains(text, "/"+attack.Cut+"/"):
		return fell("%.60q…: the gateway let it through: %s", text, code(answer))
	case strings.Contains(answer, "HTTP/1.1 5") || answer == "" && ended(err) || may > 0 && arrived == may:
		return held("%.60q…: the connection was ended, and nothing answered", text)
	default:
		return untried("%.60q…: %q, %v", text, answer, err)
	}
}

// second2 are tricks with what HTTP/2 has in a request line's place.
func second2() map[string]func(*try) verdict {
	method, scheme := [2]string{":method", "GET"}, [2]string{":scheme", "https"}
	type list = [][2]string
	tried := func(body string, of func(t *try, authority, path [2]string) []list) func(*try) verdict {
		return func(t *try) verdict {
			return each(of(t, [2]string{":authority", t.far()}, [2]string{":path", t.no("/open")}), func(all list) verdict {
				return t.over2(all[len(all)-1][0], attack.FarName, t.plan.Far.Bound, body, all...)
			})
		}
	}
	return map[string]func(*try) verdict{
		"h2-authority": tried("", func(t *try, a, p [2]string) []list {
			return []list{
				{method, scheme, p, {":authority", "else.test"}}, {method, scheme, p, {":authority", "far.test@else.test"}}, {method, scheme, p, a, {":authority", "else.test"}},
				{method, scheme, p}, {method, scheme, p, {":authority", ""}},
			}
		}),
		"h2-host": tried("", func(t *try, a, p [2]string) []list {
			return []list{{method, scheme, a, p, {"host", "else.test"}}, {method, scheme, p, {"host", "else.test"}}, {method, scheme, a, p, {"host", t.far()}, {"host", "else.test"}}}
		}),
		"h2-path": tried("", func(t *try, a, p [2]string) []list {
			return []list{
				{method, scheme, a, {":path", p[1] + " HTTP/1.1\r\nHost: else.test\r\n\r\nGET " + p[1]}}, {method, scheme, a, {":path", p[1] + " x"}}, {method, scheme, a, {":path", "https://else.test" + p[1]}},
				{method, scheme, a, {":path", p[1] + "#x"}}, {method, scheme, a, {":path", p[1] + "\t"}}, {method, scheme, a, {":path", p[1] + "\x00"}}, {method, scheme, a, {":path", ""}}, {method, scheme, a, {":path", "*" + p[1]}},
			}
		}),
		"h2-field": tried("", func(t *try, a, p [2]string) []list {
			return []list{
				{method, scheme, a, p, {"x-a", "b\r\nx-b: c"}}, {method, scheme, a, p, {"x-a", "b\nhost: else.test"}}, {method, scheme, a, p, {"x-a: b\r\nx-b", "c"}}, {method, scheme, a, p, {"x-a ", "c"}},
				{method, scheme, a, p, {"x-a", "b\x00c"}}, {method, scheme, a, p, {"X-A", "b"}}, {method, scheme, a, p, {"", "b"}}, {method, scheme, a, p, {"x:a", "b"}},
			}
		}),
		"h2-method": tried("", func(t *try, a, p [2]string) []list {
			return []list{
				{scheme, a, p, {":method", "GET " + p[1] + " HTTP/1.1\r\nHost: else.test\r\n\r\nGET"}}, {scheme, a, p, {":method", "GET /x"}}, {a, {":method", "CONNECT"}},
				{scheme, a, p, {":protocol", "websocket"}, {":method", "CONNECT"}}, {scheme, a, p, {":method", ""}},
			}
		}),
		"h2-length": tried("x", func(t *try, a, p [2]string) []list {
			post := [2]string{":method", "POST"}
			// A length that the body falls short of is seen when the body ends.
			cut := [2]string{":path", "/open/" + attack.Cut + "/" + t.mark()}
			return []list{{post, scheme, a, cut, {"content-length", "5"}}, {post, scheme, a, p, {"content-length", "1"}, {"content-length", "5"}}, {post, scheme, a, p, {"content-length", "x"}}}
		}),
		"h2-coding": tried("", func(t *try, a, p [2]string) []list {
			return []list{
				{method, scheme, a, p, {"transfer-encoding", "chunked"}}, {method, scheme, a, p, {"upgrade", "h2c"}, {"connection", "upgrade"}}, {method, scheme, a, p, {"keep-alive", "1"}}, {method, scheme, a, p, {"te", "chunked"}},
				{method, scheme, a, p, {"proxy-connection", "close"}},
			}
		}),
		"h2-pseudo": tried("", func(t *try, a, p [2]string) []list {
			return []list{
				{method, scheme, p, {"x-a", "b"}, a}, {method, scheme, a, p, {":path", t.may("/open")}}, {method, scheme, a, p, {":other", "x"}}, {method, scheme, a, p, {":method", "PUT"}},
				{method, a, p, {":scheme", "ftp"}}, {method, scheme, a, p, {":status", "200"}},
			}
		}),
	}
}
