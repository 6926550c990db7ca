package outbound

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/egresstest"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// A far side that repeats the key it was sent, wherever it can: nothing that the
// transport gives back or records has it.
func TestWhatAFarSideRepeats(t *testing.T) {
	far := egresstest.NewFar(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	egresstest.Serve(t, l, far.Certificate(t, "model.test", time.Now().Add(time.Hour)), false, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("X-Api-Key")
		if key != realKey {
			t.Errorf("key %q", key)
		}
		raw := map[string]string{
			"/v1/status":  "HTTP/1.1 2x0 " + key + "\r\n\r\n",
			"/v1/garbage": key + "\r\n\r\n",
			"/v1/header":  "HTTP/1.1 200 OK\r\nX " + key + ": a\r\n\r\n",
			"/v1/length":  "HTTP/1.1 200 OK\r\nContent-Length: " + key + "\r\n\r\n",
			"/v1/chunk":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + key + "\r\n",
			"/v1/coding":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + key + "\r\n\r\n",
			"/v1/reason":  "HTTP/1.1 401 no " + key + "\r\nContent-Length: 0\r\n\r\n",
			"/v1/trailer": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + key + "\r\n\r\n",
		}[r.URL.Path]
		if raw == "" {
			rw.Header().Set("X-Echo", "your "+key)
			rw.Header().Set("X-"+key, "name")
			rw.WriteHeader(401)
			fmt.Fprintf(rw, `{"error":"invalid key %s"}`, key)
			return
		}
		c, _, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, raw)
	}))
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	w := newWorld(t, func(o *Options) {
		o.Roots = far.Roots
		o.Grant.Rules[0].Ports, o.Grant.Leases[0].Ports = []uint16{port}, []uint16{port}
	})
	for _, path := range []string{"status", "garbage", "header", "length", "chunk", "coding", "reason", "trailer", "body"} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("https://model.test:%d/v1/%s", port, path), nil)
		r.RequestURI = ""
		res, err := w.transport.RoundTrip(r)
		told := fmt.Sprint(err)
		if err == nil {
			body, err := io.ReadAll(res.Body)
			told = fmt.Sprintf("%s %v %s %v %v", res.Status, res.Header, body, err, res.Trailer)
			res.Body.Close()
		}
		if strings.Contains(strings.ToLower(told), realKey) {
			t.Errorf("%s: %s", path, told)
		}
		if path == "body" && !strings.Contains(told, `{"error":"invalid key [sealed]"}`) {
			t.Errorf("%s: %s", path, told)
		}
	}
	if i := w.find(func(rec task.EgressRecord) bool { return strings.Contains(fmt.Sprintf("%+v", rec), realKey) }); i >= 0 {
		t.Errorf("a record has the value")
	}
	if s := fmt.Sprintf("%+v %#v", Loan{lease: &task.Lease{Header: "X"}, carrier: headerCarrier{}, value: task.NewSecret(realKey)}, decide.Use{}); strings.Contains(s, realKey) {
		t.Errorf("a loan prints as %s", s)
	}
}
