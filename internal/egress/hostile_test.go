package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/cofferdam/cofferdam/internal/task"
)

// A rule about methods and paths is about what the far side will do: headers by
// which frameworks take another method or path are refused with it, and so are
// keys under names that some servers read as the lent one's.
func TestHeadersThatMeanAnotherRequest(t *testing.T) {
	w := newWithin(t, true, hello)
	for _, inside := range []bool{false, true} {
		client := w.inside(inside)
		for _, c := range []struct {
			name, value string
			want        task.Reason
		}{
			{"X-HTTP-Method-Override", "DELETE", task.PolicyProtocol},
			{"X-Http-Method", "DELETE", task.PolicyProtocol},
			{"X-Method-Override", "DELETE", task.PolicyProtocol},
			{"X_HTTP_Method_Override", "DELETE", task.PolicyProtocol},
			{"X-Original-URL", "/v2/admin", task.PolicyProtocol},
			{"X-Rewrite-URL", "/v2/admin", task.PolicyProtocol},
			{"X_Api_Key", "mine", task.PolicyCredential},
			{"X_api-Key", placeholder, task.PolicyCredential},
			{"X_Auth_Token", "mine", task.PolicyCredential},
		} {
			for _, path := range []string{"/v1/x", "/free/x"} {
				res, body := w.do(client, w.request("GET", w.url(path), header(c.name, c.value)))
				got := w.far.take()
				if path == "/free/x" && c.want == task.PolicyCredential && c.value == "mine" {
					if res.StatusCode != 200 || len(got) != 1 || keyed(got) {
						t.Errorf("%s where nothing is lent: %d %s, %+v", c.name, res.StatusCode, body, got)
					}
					continue
				}
				if res.StatusCode != 403 || code(t, body) != c.want || len(got) > 0 {
					t.Errorf("%s: %s at %s: %d %s, the far side saw %+v", c.name, c.value, path, res.StatusCode, body, got)
				}
			}
		}
	}
}

// Where rules say nothing about methods, paths and credentials, such headers are
// the program's own.
func TestHeadersOfOpenRulesPass(t *testing.T) {
	w := newWithin(t, true, hello)
	w.grant(task.Rule{ID: "open", Host: "ok.test", Ports: []uint16{w.port}, Protocol: task.ProtocolHTTP, Private: true})
	res, body := w.do(w.inside(true), w.request("PUT", w.url("/any"), header("X-HTTP-Method-Override", "PATCH")))
	if got := w.far.take(); res.StatusCode != 200 || len(got) != 1 {
		t.Errorf("%d %s, the far side saw %+v", res.StatusCode, body, got)
	}
}

// A trailer may be taken for a header: beside a lent key it is dropped.
func TestTrailersBesideALentKey(t *testing.T) {
	kinds(t, func(t *testing.T, inside, outside bool) {
		w := newWithin(t, outside, func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintf(rw, "%d trailers", len(r.Trailer))
		})
		for path, want := range map[string]string{"/v1/x": "0 trailers", "/free/x": "1 trailers"} {
			_, body := w.do(w.inside(inside), w.request("POST", w.url(path), func(r *http.Request) {
				r.Body, r.ContentLength, r.Trailer = io.NopCloser(strings.NewReader("body")), -1, http.Header{"X-Api-Key": {"mine"}}
			}))
			if body != want {
				t.Errorf("%s: %q, want %q", path, body, want)
			}
		}
	})
}

// A space in the target would end it where the far side speaks HTTP/1.
func TestTargetsThatEndEarly(t *testing.T) {
	w := newWithin(t, false, hello)
	for _, path := range []string{"/v1/x?a HTTP/1.0", "/v1/x?a b", "/v1/x?\xc3\xa4", "/v1/x?a#b", "/v1/x#b", "/v1/x?a\tb"} {
		status := w.rawH2([][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "ok.test"}, {":path", path}})
		if got := w.far.take(); len(got) > 0 || status == "200" {
			t.Errorf("%q: %q, the far side saw %+v", path, status, got)
		}
	}
}

// A far side that pretends to switch protocols does not end the strict reading
// of what comes after.
func TestSwitchThatWasNotAskedFor(t *testing.T) {
	w := newWithin(t, false, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/switch" {
			hello(rw, r)
			return
		}
		c, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 1))
	})
	for _, upgrade := range []string{"", "Upgrade: websocket\r\n"} { // without Connection it asks for nothing
		c, err := w.client.DialName(w.ctx(), "tcp", "ok.test", w.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(w.pem)
		conn := tls.Client(c, &tls.Config{ServerName: "ok.test", RootCAs: roots, NextProtos: []string{"http/1.1"}})
		conn.SetDeadline(time.Now().Add(time.Minute))
		in := bufio.NewReader(conn)
		first := ask(t, conn, in, "GET /v1/switch HTTP/1.1\r\nHost: ok.test\r\n"+upgrade+"\r\n")
		// Go's own server would take this one.
		second := ask(t, conn, in, "GET /v1/x HTTP/1.1\nHost: ok.test\n\r\n\r\n")
		if first != 502 || second/100 == 2 {
			t.Errorf("%q: answers %d and %d", upgrade, first, second)
		}
		for _, s := range w.far.take() {
			if s.uri != "/v1/switch" {
				t.Errorf("%q: the far side saw %+v", upgrade, s)
			}
		}
	}
}

// windows are what a peer of HTTP/2 says that it will hold.
type windows struct{ streams, stream, conn, header int64 }

// windowsOf reads them from the frames that a peer begins with, up to the first
// that is not about them.
func windowsOf(framer *http2.Framer) (windows, error) {
	w := windows{streams: 1 << 30, stream: 65_535, conn: 65_535, header: 1 << 30}
	for said := 0; said < 2; {
		frame, err := framer.ReadFrame()
		if err != nil {
			return w, err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				continue
			}
			said++
			for id, to := range map[http2.SettingID]*int64{
				http2.SettingMaxConcurrentStreams: &w.streams, http2.SettingInitialWindowSize: &w.stream, http2.SettingMaxHeaderListSize: &w.header,
			} {
				if v, ok := f.Value(id); ok {
					*to = int64(v)
				}
			}
		case *http2.WindowUpdateFrame:
			said++
			w.conn += int64(f.Increment)
		}
	}
	return w, nil
}

// What a sandbox's connections and their far sides can make the gateway hold,
// all together, has a bound: it serves other sandboxes too.
func TestWhatIsHeldHasABound(t *testing.T) {
	w := newWithin(t, true, hello)
	raw := listen(t)
	farSaid := make(chan windows, 64)
	config := &tls.Config{Certificates: []tls.Certificate{w.authority.Certificate(t, "raw.test", time.Now().Add(time.Hour))}, NextProtos: []string{"h2"}}
	go func() {
		for {
			c, err := raw.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				conn := tls.Server(c, config)
				if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
					return
				}
				framer := http2.NewFramer(conn, conn)
				if framer.WriteSettings() != nil {
					return
				}
				if said, err := windowsOf(framer); err == nil {
					farSaid <- said
				}
				_, _ = io.Copy(io.Discard, conn)
			}()
		}
	}()
	w.resolver.set("raw.test", addrs("127.0.0.1"))
	w.grant(task.Rule{ID: "raw", Host: "raw.test", Ports: []uint16{raw.port}, Methods: []string{"GET"}, Private: true})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.pem)
	var first, last [2]windows
	for i := range growing + 1 {
		c, err := w.client.DialName(w.ctx(), "tcp", "raw.test", raw.port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conn := tls.Client(c, &tls.Config{ServerName: "raw.test", RootCAs: roots, NextProtos: []string{"h2"}})
		conn.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			t.Fatal(err)
		}
		framer := http2.NewFramer(conn, conn)
		if err := framer.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		if last[0], err = windowsOf(framer); err != nil {
			t.Fatal(err)
		}
		var block bytes.Buffer
		encoder := hpack.NewEncoder(&block)
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", "raw.test"}, {":path", "/"}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				t.Fatal(err)
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
			t.Fatal(err)
		}
		select {
		case last[1] = <-farSaid:
		case <-w.ctx().Done():
			t.Fatal("the far side was told nothing")
		}
		if i == 0 {
			first = last
		}
	}
	held := func(w [2]windows) int64 { return w[0].conn + w[0].streams*w[0].header + w[1].conn }
	if all := growing*held(first) + (512-growing)*held(last); all > 1<<30 {
		t.Errorf("%d bytes: each of the first %+v, each of the others %+v", all, first, last)
	}
}

// Garbage from both sides, over HTTP/1, HTTP/2 and none: the gateway goes on, and
// the value goes nowhere but out.
func TestGarbageFromBothSides(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(text string) string {
		b := []byte(text)
		for range random.IntN(8) {
			switch at := random.IntN(len(b)); random.IntN(3) {
			case 0:
				b[at] = byte(random.IntN(256))
			case 1:
				b = append(b[:at], b[min(len(b), at+random.IntN(9)):]...)
			case 2:
				b = append(b[:at:at], append([]byte("\r\n\x00 :0"[:random.IntN(7)]), b[at:]...)...)
			}
			if len(b) == 0 {
				return "x"
			}
		}
		return string(b)
	}
	w := newWithin(t, false, hello)
	raw := listen(t)
	config := &tls.Config{Certificates: []tls.Certificate{w.authority.Certificate(t, "raw.test", time.Now().Add(time.Hour))}, NextProtos: []string{"h2", "http/1.1"}}
	var mu sync.Mutex // of random
	answers := []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nbytes", "HTTP/1.1 103 Early\r\nLink: <a>\r\n\r\nHTTP/1.1 204 No\r\n\r\n",
		"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x01\x00\x00\x00\x00\x04\x01\x05\x00\x00\x00\x01\x88",
	}
	go func() {
		for {
			c, err := raw.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				conn := tls.Server(c, config)
				if _, err := conn.Read(make([]byte, 4096)); err != nil {
					return
				}
				mu.Lock()
				text := noise(answers[random.IntN(len(answers))])
				mu.Unlock()
				_, _ = io.WriteString(conn, text)
			}()
		}
	}()
	w.resolver.set("raw.test", addrs("127.0.0.1"))
	w.grant(task.Rule{ID: "raw", Host: "raw.test", Ports: []uint16{raw.port}, Methods: []string{"GET", "POST"}, Private: true})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.pem)
	requests := []string{
		"GET / HTTP/1.1\r\nHost: raw.test\r\n\r\n", "POST /a HTTP/1.1\r\nHost: raw.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
		"GET /ws HTTP/1.1\r\nHost: raw.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n\r\nbytes",
		http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x0d\x01\x05\x00\x00\x00\x01\x82\x87\x84\x41\x08raw.test",
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range 300 {
		mu.Lock()
		text := noise(requests[i%len(requests)])
		mu.Unlock()
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			c, err := w.client.DialName(w.ctx(), "tcp", "raw.test", raw.port)
			if err != nil {
				return
			}
			defer c.Close()
			next := "http/1.1"
			if i%len(requests) == 3 {
				next = "h2"
			}
			conn := tls.Client(c, &tls.Config{ServerName: "raw.test", RootCAs: roots, NextProtos: []string{next}})
			conn.SetDeadline(time.Now().Add(time.Minute))
			if _, err := io.WriteString(conn, text); err != nil {
				return
			}
			_ = conn.CloseWrite()
			_, _ = conn.Read(make([]byte, 4096))
		})
	}
	running.Wait()
	res, body := w.do(w.inside(true), w.request("GET", w.url("/v1/x"), nil))
	if res.StatusCode != 200 || !keyed(w.far.take()) {
		t.Errorf("afterwards: %d %s", res.StatusCode, body)
	}
	for _, rec := range w.logged() {
		if strings.Contains(fmt.Sprintf("%+v", rec), realKey) {
			t.Errorf("the log has the value: %+v", rec)
		}
	}
}

// ask sends a request and gives the status of the answer; 0: there is none.
func ask(t *testing.T, conn net.Conn, in *bufio.Reader, text string) int {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		return 0
	}
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}
