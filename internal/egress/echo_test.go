package egress

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// echo answers with the key that it was sent, wherever and however it can.
func echo(rw http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("X-Api-Key")
	flush := func() { _ = http.NewResponseController(rw).Flush() }
	switch form := strings.TrimPrefix(r.URL.Path, "/v1/"); form {
	case "header":
		rw.Header().Set("X-Echo", "your "+key)
		rw.Header().Set("X-"+key, "name")
		rw.WriteHeader(401)
	case "length":
		rw.Header().Set("Content-Length", fmt.Sprint(len(key)+8))
		fmt.Fprintf(rw, "<%s>......", key)
	case "two":
		fmt.Fprint(rw, "data: "+key[:7])
		flush()
		<-r.Context().Done() // until the client has what it may have
	case "bytes":
		for _, c := range key {
			fmt.Fprint(rw, string(c))
			flush()
		}
	case "basic":
		fmt.Fprint(rw, "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+key)))
	case "base64-0", "base64-1", "base64-2":
		fmt.Fprint(rw, base64.RawURLEncoding.EncodeToString([]byte("ab"[:form[7]-'0']+key)))
	case "url":
		fmt.Fprint(rw, "https://a/?key="+strings.ReplaceAll(url.QueryEscape(key), "-", "%2d"))
	case "json":
		fmt.Fprintf(rw, `{"key":"%s"}`, strings.ReplaceAll(key, "-", `\u002d`))
	case "hex":
		fmt.Fprintf(rw, "%x", key)
	case "range":
		rw.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/1000", len(key)-1))
		rw.Header().Set("Content-Length", fmt.Sprint(len(key)))
		rw.WriteHeader(206)
		fmt.Fprint(rw, key)
	case "trailer":
		rw.Header().Set("Trailer", "X-Late")
		fmt.Fprint(rw, "x")
		rw.Header().Set("X-Late", key)
	case "hint":
		rw.Header().Set("Link", "<"+key+">")
		rw.WriteHeader(http.StatusEarlyHints)
	case "gzip":
		rw.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(rw)
		fmt.Fprint(z, "x "+key)
		_ = z.Close()
	case "br":
		rw.Header().Set("Content-Encoding", "br")
		fmt.Fprint(rw, key)
	case "other":
		fmt.Fprint(rw, "sk-of-another-lease")
	case "asked":
		fmt.Fprint(rw, r.Header.Get("Accept-Encoding"))
	}
}

// A far side that repeats the key that was lent to a request: nothing of it comes
// in, in none of its forms and at none of the places.
func TestTheFarSideRepeatsTheKey(t *testing.T) {
	covered := strings.Repeat("*", len(realKey))
	kinds(t, func(t *testing.T, inside, outside bool) {
		w := newWithin(t, outside, echo)
		w.lender.others = []task.Secret{task.NewSecret("sk-of-another-lease")}
		client := w.inside(inside)
		for form, want := range map[string]string{
			"header": "", "length": "<" + covered + ">......", "bytes": covered, "range": covered, "trailer": "x", "hint": "", "gzip": "x " + covered, "asked": "identity",
			"other": strings.Repeat("*", len("sk-of-another-lease")),
			"basic": "", "base64-0": "", "base64-1": "", "base64-2": "", "url": "", "json": "", "hex": "",
		} {
			var hints textproto.MIMEHeader
			r := w.request("GET", w.url("/v1/"+form), header("X-Api-Key", placeholder))
			r.Header.Set("Accept-Encoding", "gzip, br")
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
				hints = h
				return nil
			}}))
			res, body := w.do(client, r)
			told := fmt.Sprint(res.Status, res.Header, res.Trailer, hints, body)
			if body != want && want != "" || strings.Contains(told, realKey) || strings.Contains(strings.ToLower(fmt.Sprint(res.Header)), realKey) {
				t.Errorf("%s: %s", form, told)
			}
			switch form {
			case "basic", "base64-0", "base64-1", "base64-2", "url", "json", "hex":
				if strings.Count(body, "*") < len(realKey)*8/6-2 && strings.Count(body, "*") < len(realKey) {
					t.Errorf("%s: %s", form, body)
				}
			case "header":
				if res.Header.Get("X-Echo") != "your [sealed]" || res.StatusCode != 401 {
					t.Errorf("%s", told)
				}
			case "range":
				if res.StatusCode != 206 || res.ContentLength != int64(len(realKey)) {
					t.Errorf("%s, length %d", told, res.ContentLength)
				}
			case "trailer":
				if res.Trailer.Get("X-Late") != "[sealed]" {
					t.Errorf("%s", told)
				}
			case "hint":
				if hints.Get("Link") != "<[sealed]>" {
					t.Errorf("%s", told)
				}
			}
		}
		if res, body := w.do(client, w.request("GET", w.url("/v1/br"), header("X-Api-Key", placeholder))); res.StatusCode < 400 || !strings.Contains(body, "policy.credential") || !strings.Contains(body, "coding br") {
			t.Errorf("an answer that can't be read: %d %s", res.StatusCode, body)
		}
		// The beginning of a key that comes alone waits for the rest.
		res, err := client.Do(w.request("GET", w.url("/v1/two"), header("X-Api-Key", placeholder)))
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 6)
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != "data: " {
			t.Errorf("%q, %v", got, err)
		}
		res.Body.Close()
		if i := strings.Index(fmt.Sprintf("%+v", w.logged()), realKey); i >= 0 {
			t.Error("a record has the key")
		}
	})
}

// What is spoken after a switch to WebSocket is covered too, and a frame that
// ends as the key begins does not wait for the next.
func TestTheFarSideRepeatsTheKeyInFrames(t *testing.T) {
	w := newWithin(t, false, func(rw http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Api-Key")
		if r.Header.Get("Sec-Websocket-Extensions") != "" {
			t.Error("compression is offered outside")
		}
		c, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "HTTP/1.1 101 %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX-Echo: %s\r\n\r\n\x81\x03yes", key, key)
		if _, err := io.ReadFull(c, make([]byte, 2)); err != nil {
			return
		}
		fmt.Fprintf(c, "\x81%c%s", len(key)+1, key[:9])
		fmt.Fprintf(c, "%s.", key[9:])
	})
	conn, err := w.client.DialContext(w.ctx(), "tcp", fmt.Sprintf("ok.test:%d", w.port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.pem)
	var c net.Conn = tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: "ok.test"})
	fmt.Fprintf(c, "GET /v1/ws HTTP/1.1\r\nHost: ok.test:%d\r\nX-Api-Key: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", w.port, placeholder)
	from := bufio.NewReader(c)
	res, err := http.ReadResponse(from, nil)
	if err != nil || res.StatusCode != 101 || strings.Contains(fmt.Sprint(res.Status, res.Header), realKey) || res.Header.Get("X-Echo") != "[sealed]" {
		t.Fatalf("%v %v", res, err)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(from, first); err != nil || string(first) != "\x81\x03yes" {
		t.Fatalf("%q, %v", first, err)
	}
	fmt.Fprint(c, "ok")
	rest, _ := io.ReadAll(from)
	if want := fmt.Sprintf("\x81%c%s.", len(realKey)+1, strings.Repeat("*", len(realKey))); !bytes.Equal(rest, []byte(want)) {
		t.Errorf("%q, want %q", rest, want)
	}
}
