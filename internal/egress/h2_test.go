package egress

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/cofferdam/cofferdam/internal/task"
)

// rawH2 sends one request with exactly these fields over HTTP/2 that ends at
// the gateway, and gives the status; empty: the stream or the connection was
// ended without one.
func (w *within) rawH2(fields [][2]string) string {
	w.t.Helper()
	c, err := w.client.DialName(w.ctx(), "tcp6", "ok.test", w.port)
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.pem)
	conn := tls.Client(c, &tls.Config{ServerName: "ok.test", RootCAs: roots, NextProtos: []string{"h2"}})
	conn.SetDeadline(time.Now().Add(time.Minute))
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, f := range fields {
		if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
			w.t.Fatal(err)
		}
	}
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		w.t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := framer.WriteSettings(); err != nil {
		w.t.Fatal(err)
	}
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true}); err != nil {
		w.t.Fatal(err)
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return ""
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return ""
		}
	}
}

func TestPseudoHeaderTricks(t *testing.T) {
	w := newWithin(t, true, hello)
	method, scheme, authority, path := [2]string{":method", "GET"}, [2]string{":scheme", "https"}, [2]string{":authority", "ok.test"}, [2]string{":path", "/v1/x"}
	for what, fields := range map[string][][2]string{
		"another authority":       {method, scheme, {":authority", "no.test"}, path},
		"authority with a user":   {method, scheme, {":authority", "ok.test@no.test"}, path},
		"two authorities":         {method, scheme, authority, {":authority", "no.test"}, path},
		"two paths":               {method, scheme, authority, path, {":path", "/free/x"}},
		"host beside":             {method, scheme, authority, path, {"host", "no.test"}},
		"host alone":              {method, scheme, path, {"host", "no.test"}},
		"no host at all":          {method, scheme, path},
		"scheme ftp":              {method, {":scheme", "ftp"}, authority, path},
		"pseudo after a field":    {method, scheme, path, {"x-a", "b"}, authority},
		"CONNECT":                 {{":method", "CONNECT"}, {":authority", "ok.test:443"}},
		"extended CONNECT":        {{":method", "CONNECT"}, {":protocol", "websocket"}, scheme, authority, path},
		"absolute path":           {method, scheme, authority, {":path", "https://no.test/v1/x"}},
		"a line in the path":      {method, scheme, authority, {":path", "/v1/x HTTP/1.1\r\nHost: no.test\r\n\r\nGET /"}},
		"a line in a field":       {method, scheme, authority, path, {"x-a", "b\r\nx-b: c"}},
		"a line in a name":        {method, scheme, authority, path, {"x-a: b\r\nx-b", "c"}},
		"a name in upper case":    {method, scheme, authority, path, {"X-Api-Key", "mine"}},
		"transfer-encoding":       {method, scheme, authority, path, {"transfer-encoding", "chunked"}},
		"connection":              {method, scheme, authority, path, {"connection", "upgrade"}, {"upgrade", "h2c"}},
		"a length without a body": {{":method", "POST"}, scheme, authority, path, {"content-length", "5"}},
		"method with a space":     {{":method", "GET /free/x"}, scheme, authority, path},
		"unknown pseudo":          {method, scheme, authority, path, {":other", "x"}},
	} {
		status := w.rawH2(fields)
		if got := w.far.take(); len(got) > 0 || status == "200" {
			t.Errorf("%s: %q, the far side saw %+v", what, status, got)
		}
	}
	// The scheme is what the connection has, whatever is said.
	for _, s := range []string{"https", "http"} {
		if status := w.rawH2([][2]string{method, {":scheme", s}, authority, path, {"host", "ok.test"}}); status != "200" {
			t.Errorf("a right one: %q", status)
		}
	}
	got := w.far.take()
	if len(got) != 2 || got[0].host != "ok.test" || strings.Contains(got[0].uri, "no.test") {
		t.Errorf("the far side saw %+v", got)
	}
	w.await("mismatch", func(r task.EgressRecord) bool {
		return r.HostName == "no.test" && r.Name == "ok.test" && r.SNI == "ok.test" && r.Reason == task.PolicyNameMismatch && r.Request == 1
	})
}
