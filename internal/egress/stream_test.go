package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/cofferdam/cofferdam/internal/task"
)

// kinds runs a test over each pair of protocols, inside and outside.
func kinds(t *testing.T, f func(t *testing.T, inside, outside bool)) {
	for _, k := range []struct{ inside, outside bool }{{false, false}, {true, true}, {true, false}, {false, true}} {
		t.Run(fmt.Sprintf("h2 inside %v, outside %v", k.inside, k.outside), func(t *testing.T) { f(t, k.inside, k.outside) })
	}
}

// Each event arrives before the next is made.
func TestEventsArriveAtOnce(t *testing.T) {
	kinds(t, func(t *testing.T, inside, outside bool) {
		next := make(chan struct{})
		w := newWithin(t, outside, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "text/event-stream")
			for i := range 3 {
				fmt.Fprintf(rw, "data: %d\n\n", i)
				rw.(http.Flusher).Flush()
				select {
				case <-next:
				case <-r.Context().Done():
					return
				}
			}
		})
		res, err := w.inside(inside).Do(w.request("GET", w.url("/v1/events"), nil))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		lines := bufio.NewReader(res.Body)
		for i := range 3 {
			line, err := lines.ReadString('\n')
			if line != fmt.Sprintf("data: %d\n", i) || err != nil {
				t.Fatalf("%q, %v", line, err)
			}
			if _, err := lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			next <- struct{}{}
		}
	})
}

// Both sides speak at the same time.
func TestStreamingBothWays(t *testing.T) {
	kinds(t, func(t *testing.T, inside, outside bool) {
		w := newWithin(t, outside, func(rw http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(rw).EnableFullDuplex()
			rw.WriteHeader(200)
			rw.(http.Flusher).Flush()
			in := bufio.NewScanner(r.Body)
			for in.Scan() {
				fmt.Fprintln(rw, strings.ToUpper(in.Text()))
				rw.(http.Flusher).Flush()
			}
		})
		body, say := io.Pipe()
		r := w.request("POST", w.url("/v1/talk"), func(r *http.Request) { r.Body, r.ContentLength = body, -1 })
		res, err := w.inside(inside).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answers := bufio.NewReader(res.Body)
		for _, word := range []string{"one", "two", "three"} {
			fmt.Fprintln(say, word)
			if line, err := answers.ReadString('\n'); line != strings.ToUpper(word)+"\n" || err != nil {
				t.Fatalf("%q, %v", line, err)
			}
		}
		say.Close()
		if rest, err := io.ReadAll(answers); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	})
}

// bodySize is how much the test of bodies moves each way. It is volume, which
// memory must not follow: COFFERDAM_BODY_MIB asks for more than the default.
func bodySize(t *testing.T) int64 {
	mib := 48
	if s := os.Getenv("COFFERDAM_BODY_MIB"); s != "" {
		var err error
		if mib, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return int64(mib) << 20
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestBodiesTakeFlatMemory(t *testing.T) {
	size := bodySize(t)
	w := newWithin(t, true, func(rw http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n != size {
			http.Error(rw, "short", http.StatusBadRequest)
			return
		}
		rw.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		_, _ = io.CopyN(rw, zeros{}, size)
	})
	for _, h2 := range []bool{false, true} {
		client := w.inside(h2)
		client.Timeout = 10 * time.Minute
		var most atomic.Uint64
		stop := make(chan struct{})
		var wg sync.WaitGroup
		runtime.GC()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most.Store(max(most.Load(), m.HeapInuse))
				}
			}
		})
		res, err := client.Do(w.request("POST", w.url("/v1/big"), func(r *http.Request) {
			r.Body, r.ContentLength = io.NopCloser(io.LimitReader(zeros{}, size)), size
		}))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		close(stop)
		wg.Wait()
		if res.StatusCode != 200 || n != size || err != nil {
			t.Errorf("h2 %v: %d, %d bytes, %v", h2, res.StatusCode, n, err)
		}
		// Both stacks, the client and the server are in this process too.
		if grown := int64(most.Load()) - int64(before.HeapInuse); grown > 160<<20 {
			t.Errorf("h2 %v: %d MiB of memory for bodies of %d MiB", h2, grown>>20, size>>20)
		}
	}
	w.await("counted", func(r task.EgressRecord) bool {
		return r.Done && r.Request > 0 && r.BytesIn == size && r.BytesOut == size
	})
}

// The client's "Expect: 100-continue" is answered by the far side: its body is
// asked for when the far side wants it, and not when it refuses.
func TestContinue(t *testing.T) {
	w := newWithin(t, false, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/no" {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(rw, r.Body)
	})
	for path, status := range map[string]int{"/v1/yes": 200, "/v1/no": 401, "/v2/denied": 403} {
		sent := &atomic.Int64{}
		continued := false
		r := w.request("POST", w.url(path), func(r *http.Request) {
			r.Header.Set("Expect", "100-continue")
			r.Body, r.ContentLength = io.NopCloser(io.LimitReader(&counting{n: sent}, 4096)), 4096
		})
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got100Continue: func() { continued = true }}))
		res, body := w.do(w.inside(false), r)
		// After a final answer on a connection that goes on, the body is sent and
		// discarded (RFC 9110 §10.1.1).
		if res.StatusCode != status || continued != (status == 200) || status == 403 && sent.Load() > 0 || status == 200 && len(body) != 4096 {
			t.Errorf("%s: %d, continued %v, %d bytes sent, %.40q", path, res.StatusCode, continued, sent.Load(), body)
		}
	}
}

type counting struct{ n *atomic.Int64 }

func (c *counting) Read(b []byte) (int, error) { c.n.Add(int64(len(b))); return len(b), nil }

func TestTrailersHeadAndInformation(t *testing.T) {
	kinds(t, func(t *testing.T, inside, outside bool) {
		w := newWithin(t, outside, func(rw http.ResponseWriter, r *http.Request) {
			if r.Method == "HEAD" {
				rw.Header().Set("Content-Length", "1234")
				return
			}
			rw.Header().Set("Link", "</x>; rel=preload")
			rw.WriteHeader(http.StatusEarlyHints)
			rw.Header().Set("Trailer", "X-Sum")
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprintf(rw, "trailer %q", r.Trailer.Get("X-Mine"))
			rw.Header().Set("X-Sum", "42")
		})
		client := w.inside(inside)
		res, _ := w.do(client, w.request("HEAD", w.url("/free/x"), nil))
		if res.StatusCode != 200 || res.ContentLength != 1234 {
			t.Errorf("HEAD: %d, length %d", res.StatusCode, res.ContentLength)
		}
		var hints atomic.Int64
		r := w.request("POST", w.url("/free/x"), func(r *http.Request) {
			r.Body, r.ContentLength, r.Trailer = io.NopCloser(strings.NewReader("body")), -1, http.Header{"X-Mine": {"mine"}}
		})
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if code == http.StatusEarlyHints {
				hints.Add(1)
			}
			return nil
		}}))
		res, body := w.do(client, r)
		if body != `trailer "mine"` || res.Trailer.Get("X-Sum") != "42" || hints.Load() != 1 {
			t.Errorf("%q, trailers %v, %d hints", body, res.Trailer, hints.Load())
		}
	})
}

// An answer that comes before the request is whole arrives, and a client that
// goes away ends the request outside.
func TestEarlyAnswerAndCancellation(t *testing.T) {
	kinds(t, func(t *testing.T, inside, outside bool) {
		gone := make(chan struct{}, 8)
		w := newWithin(t, outside, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/early" {
				_ = http.NewResponseController(rw).EnableFullDuplex()
				rw.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			rw.WriteHeader(200)
			rw.(http.Flusher).Flush()
			<-r.Context().Done()
			gone <- struct{}{}
		})
		client := w.inside(inside)
		endless, more := io.Pipe()
		r := w.request("POST", w.url("/v1/early"), func(r *http.Request) { r.Body, r.ContentLength = endless, -1 })
		go fmt.Fprint(more, "the beginning")
		res, err := client.Do(r)
		if err != nil || res.StatusCode != http.StatusRequestEntityTooLarge {
			t.Fatalf("%v, %v", res, err)
		}
		res.Body.Close()
		more.CloseWithError(errors.New("enough"))

		ctx, cancel := context.WithCancel(t.Context())
		res, err = client.Do(w.request("GET", w.url("/v1/wait"), nil).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		res.Body.Close()
		select {
		case <-gone:
		case <-time.After(time.Minute):
			t.Error("the request outside goes on")
		}
	})
}

// Requests of one connection inside share connections outside.
func TestConnectionsOutsideAreUsedAgain(t *testing.T) {
	kinds(t, func(t *testing.T, inside, outside bool) {
		w := newWithin(t, outside, hello)
		client := w.inside(inside)
		for range 20 {
			if res, _ := w.do(client, w.request("GET", w.url("/v1/x"), nil)); res.StatusCode != 200 {
				t.Fatal(res.Status)
			}
		}
		if n := w.far.accepted.Load(); n != 1 {
			t.Errorf("%d connections outside", n)
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				r := w.request("GET", w.url(fmt.Sprintf("/v1/%d", i)), nil)
				res, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				defer res.Body.Close()
				if body, err := io.ReadAll(res.Body); string(body) != fmt.Sprintf("GET /v1/%d", i) || err != nil {
					t.Errorf("%q, %v", body, err)
				}
			})
		}
		wg.Wait()
	})
}

// A grant that is taken cuts what was intercepted.
func TestGrantCutsIntercepted(t *testing.T) {
	w := newWithin(t, true, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(200)
		rw.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	client := w.inside(true)
	res, err := client.Do(w.request("GET", w.url("/v1/wait"), nil))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if err := w.gateway.SetGrant(task.Grant{Sandbox: testID}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("the stream ended as if it were whole")
	}
	w.await("end", func(r task.EgressRecord) bool { return r.Done && r.Request == 1 })
	if res, err := client.Do(w.request("GET", w.url("/v1/again"), nil)); err == nil {
		res.Body.Close()
		t.Errorf("a request after the grant was taken: %s", res.Status)
	}
}

func TestWebSocket(t *testing.T) {
	w := newWithin(t, true, func(rw http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		defer c.CloseNow()
		c.SetReadLimit(1 << 20)
		for {
			kind, data, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if c.Write(r.Context(), kind, append([]byte("echo "), data...)) != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, _, err := websocket.Dial(ctx, w.url("/v1/ws"), &websocket.DialOptions{HTTPClient: w.inside(false), HTTPHeader: http.Header{"X-Api-Key": {placeholder}}})
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(1 << 20)
	if got := w.far.take(); len(got) != 1 || got[0].header.Get("X-Api-Key") != realKey {
		t.Errorf("the far side saw %+v", got)
	}
	for _, text := range []string{"hello", strings.Repeat("x", 200_000), "GET / HTTP/1.1\r\nHost: no.test\r\n\r\n"} {
		if err := c.Write(ctx, websocket.MessageBinary, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, back, err := c.Read(ctx); string(back) != "echo "+text || err != nil {
			t.Fatalf("%.40q, %v", back, err)
		}
	}
	if err := c.Close(websocket.StatusNormalClosure, "bye"); err != nil {
		t.Errorf("close: %v", err)
	}
	w.await("end", func(r task.EgressRecord) bool { return r.Done && r.Status == 101 && r.Lease == leaseID })
	_, res, err := websocket.Dial(ctx, w.url("/v2/ws"), &websocket.DialOptions{HTTPClient: w.inside(false)})
	if err == nil || res == nil || res.StatusCode != 403 {
		t.Errorf("a denied path: %v, %v", res, err)
	}
}

// rawTLS sends bytes over TLS that ends at the gateway, and gives the status
// codes of the answers, up to the first refusal or as many as are wanted.
func (w *within) rawTLS(send string, want int) []int {
	w.t.Helper()
	c, err := w.client.DialName(w.ctx(), "tcp", "ok.test", w.port)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.pem)
	conn := tls.Client(c, &tls.Config{ServerName: "ok.test", RootCAs: roots, NextProtos: []string{"http/1.1"}})
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, send); err != nil {
		w.t.Fatal(err)
	}
	var codes []int
	in := bufio.NewReader(conn)
	for len(codes) < want {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			return codes
		}
		codes = append(codes, res.StatusCode)
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode >= 400 {
			return codes
		}
	}
	return codes
}

// What two programs could read as different requests is refused whole, also
// behind a good request on the same connection.
func TestSmuggledRequests(t *testing.T) {
	w := newWithin(t, false, hello)
	const host = "Host: ok.test\r\n"
	good := "GET /v1/good HTTP/1.1\r\n" + host + "\r\n"
	for what, request := range map[string]string{
		"length and chunks":       "POST /v1/x HTTP/1.1\r\n" + host + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
		"two lengths":             "POST /v1/x HTTP/1.1\r\n" + host + "Content-Length: 0\r\nContent-Length: 5\r\n\r\nGET /",
		"a list of lengths":       "POST /v1/x HTTP/1.1\r\n" + host + "Content-Length: 5, 5\r\n\r\n12345",
		"signed length":           "POST /v1/x HTTP/1.1\r\n" + host + "Content-Length: +5\r\n\r\n12345",
		"another coding":          "POST /v1/x HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two codings":             "POST /v1/x HTTP/1.1\r\n" + host + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"coding twice":            "POST /v1/x HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"coding in 1.0":           "POST /v1/x HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"space before the colon":  "POST /v1/x HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"two hosts":               "GET /v1/x HTTP/1.1\r\n" + host + "Host: no.test\r\n\r\n",
		"the same host twice":     "GET /v1/x HTTP/1.1\r\n" + host + host + "\r\n",
		"a folded line":           "GET /v1/x HTTP/1.1\r\n" + host + "X-A: b\r\n Host: no.test\r\n\r\n",
		"absolute, another host":  "GET https://no.test/v1/x HTTP/1.1\r\n" + host + "\r\n",
		"absolute, host differs":  "GET https://ok.test/v1/x HTTP/1.1\r\nHost: no.test\r\n\r\n",
		"absolute, with a user":   "GET https://a@ok.test/v1/x HTTP/1.1\r\nHost: a@ok.test\r\n\r\n",
		"absolute, other scheme":  "GET http://ok.test/v1/x HTTP/1.1\r\n" + host + "\r\n",
		"bare line feed":          "GET /v1/x HTTP/1.1\r\nHost: ok.test\nX-A: b\r\n\r\n",
		"bare carriage return":    "GET /v1/x HTTP/1.1\r\n" + host + "X-A: b\rX-B: c\r\n\r\n",
		"NUL":                     "GET /v1/x HTTP/1.1\r\n" + host + "X-A: b\x00c\r\n\r\n",
		"a fragment":              "GET /v1/x#/v2 HTTP/1.1\r\n" + host + "\r\n",
		"two spaces":              "GET  /v1/x HTTP/1.1\r\n" + host + "\r\n",
		"version 1.2":             "GET /v1/x HTTP/1.2\r\n" + host + "\r\n",
		"preface":                 "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"no host":                 "GET /v1/x HTTP/1.1\r\n\r\n",
		"CONNECT":                 "CONNECT ok.test:443 HTTP/1.1\r\n" + host + "\r\n",
		"CONNECT to another":      "CONNECT no.test:443 HTTP/1.1\r\nHost: no.test:443\r\n\r\n",
		"h2c":                     "GET /v1/x HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n",
		"TLS within":              "GET /v1/x HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: TLS/1.0\r\n\r\n",
		"a protocol not policed":  "GET /v1/x HTTP/1.1\r\n" + host + "Connection: Upgrade\r\nUpgrade: websocket, tcp\r\n\r\n",
		"another host":            "GET /v1/x HTTP/1.1\r\nHost: no.test\r\n\r\n",
		"host with a tab":         "GET /v1/x HTTP/1.1\r\nHost: ok.test\tno.test\r\n\r\n",
		"chunks that don't end":   "POST /v2/x HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
		"a second one in a chunk": "POST /v2/x HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n-1\r\nGET /v1/y HTTP/1.1\r\n" + host + "\r\n",
	} {
		for _, before := range []string{"", good} {
			codes := w.rawTLS(before+request+good, 3)
			want := 0
			if before != "" {
				want = 1
			}
			got := w.far.take()
			for _, s := range got {
				if s.uri != "/v1/good" || s.host != "ok.test" {
					t.Errorf("%s: the far side saw %+v", what, s)
				}
			}
			if len(got) != want || len(codes) != want+1 || codes[want]/100 != 4 {
				t.Errorf("%s: the far side saw %d requests, want %d; answers %v", what, len(got), want, codes)
			}
		}
	}
	for what, c := range map[string]struct {
		request string
		answers int
	}{
		"absolute":         {"GET https://ok.test/v1/good HTTP/1.1\r\n" + host + "\r\n", 1},
		"with a port":      {fmt.Sprintf("GET /v1/good HTTP/1.1\r\nHost: ok.test:%d\r\n\r\n", w.port), 1},
		"chunks":           {"POST /v1/good HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\nX-T: y\r\n\r\n" + good, 2},
		"pipelined":        {good + good + good, 3},
		"after empty line": {"\r\n" + good, 1},
	} {
		codes := w.rawTLS(c.request, c.answers)
		if got := w.far.take(); len(got) != c.answers || len(codes) != c.answers || codes[c.answers-1] != 200 {
			t.Errorf("%s, which is right: %v, the far side saw %+v", what, codes, got)
		}
	}
}
