package answer

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

const value = "sk-Secret-value"

func masker() *mask.Masker { return mask.New(task.NewSecret(value)) }

func TestCodings(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, "a "+value+" b")
	_ = z.Close()
	for _, c := range []struct {
		name, method, coding, body string
		status                     int
		want                       string // empty: refused
	}{
		{"none", "GET", "", "a b", 200, "a b"},
		{"identity", "GET", "identity", "a b", 200, "a b"},
		{"gzip", "GET", "gzip", zipped.String(), 200, "a " + value + " b"},
		{"GZIP", "GET", "GZIP", zipped.String(), 200, "a " + value + " b"},
		{"a part", "GET", "gzip", zipped.String(), 206, ""},
		{"brotli", "GET", "br", "xx", 200, ""},
		{"zstd", "GET", "zstd", "xx", 404, ""},
		{"two", "GET", "gzip, gzip", zipped.String(), 200, ""},
		{"brotli of nothing", "HEAD", "br", "", 200, ""},
	} {
		res := &http.Response{
			StatusCode: c.status, Status: "200 " + value, ContentLength: int64(len(c.body)), Body: io.NopCloser(strings.NewReader(c.body)),
			Header:  http.Header{"Content-Encoding": {c.coding}, "X-Echo": {"a " + value}, "X-Sk-Secret-Value": {"y"}, "Content-Length": {fmt.Sprint(len(c.body))}},
			Request: httptest.NewRequestWithContext(t.Context(), c.method, "/", nil),
		}
		err := Readable(masker(), res)
		var unreadable *Unreadable
		if c.want == "" && c.method != "HEAD" {
			if !errors.As(err, &unreadable) || !strings.Contains(err.Error(), c.coding) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		body, rerr := io.ReadAll(res.Body)
		if err != nil || rerr != nil || string(body) != c.want {
			t.Errorf("%s: %q, %v, %v", c.name, body, err, rerr)
		}
		if strings.EqualFold(c.coding, "gzip") && (res.ContentLength != -1 || len(res.Header["Content-Encoding"])+len(res.Header["Content-Length"]) > 0) {
			t.Errorf("%s: %v", c.name, res.Header)
		}
		if s := fmt.Sprint(res.Status, res.Header); strings.Contains(strings.ToLower(s), strings.ToLower(value)) {
			t.Errorf("%s: %s", c.name, s)
		}
	}
	broken := &http.Response{StatusCode: 200, ContentLength: 2, Body: io.NopCloser(strings.NewReader("no")), Header: http.Header{"Content-Encoding": {"gzip"}}}
	if err := Readable(masker(), broken); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(broken.Body); err == nil {
		t.Error("what is no gzip is read")
	}
}

// Header, informational answers, a body in pieces with a promised length, and
// trailers, by the real server.
func TestWriter(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		w := NewWriter(to, masker())
		defer w.Abandon()
		w.Header().Set("Link", "<"+value+">")
		w.WriteHeader(103)
		w.Header().Set("X-Echo", value)
		if r.URL.Path == "/broken" {
			_, _ = io.WriteString(w, "a sk-Secret")
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(value)+4))
		w.WriteHeader(200)
		for _, c := range "a " + value + " b" {
			_, _ = io.WriteString(w, string(c))
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
		}
		if r.ProtoMajor == 1 {
			w.Header().Set(http.TrailerPrefix+"X-Late", value)
		}
		if err := w.Finish(); err != nil {
			t.Error(err)
		}
	}))
	defer s.Close()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	got, err := io.ReadAll(c)
	if err != nil || !strings.HasSuffix(string(got), "\r\n\r\na "+strings.Repeat("*", len(value))+" b") || strings.Contains(string(got), value) ||
		!strings.Contains(string(got), "X-Echo: [sealed]") || !strings.Contains(string(got), "Link: <[sealed]>") {
		t.Errorf("%v\n%s", err, got)
	}
	res, err := s.Client().Get(s.URL + "/broken")
	if err == nil {
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if strings.Contains(string(body), "sk-") {
			t.Errorf("of an answer that broke off: %q", body)
		}
	}
}

// half is a connection that can end one side.
type half struct {
	net.Conn
	ended bool
}

func (h *half) CloseWrite() error { h.ended = true; return nil }

func TestSwitched(t *testing.T) {
	near, far := net.Pipe()
	h := &half{Conn: near}
	s := Switched(h, masker())
	go func() {
		// Two frames of WebSocket, in pieces; the first ends as a value begins.
		for _, b := range []string{"\x81\x03yes", "\x81\x11" + value[:5], value[5:] + "ab"} {
			_, _ = io.WriteString(far, b)
			if b == "\x81\x03yes" { // the other side waits for all of it before it goes on
				_, _ = io.ReadFull(far, make([]byte, 2))
			}
		}
		_ = far.Close()
	}()
	first := make([]byte, 5)
	if _, err := io.ReadFull(s, first); err != nil || string(first) != "\x81\x03yes" {
		t.Errorf("%q, %v", first, err)
	}
	if _, err := io.WriteString(s, "ok"); err != nil {
		t.Error(err)
	}
	rest, err := io.ReadAll(s)
	if want := "\x81\x11" + strings.Repeat("*", len(value)) + "ab"; string(rest) != want || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := s.(interface{ CloseWrite() error }).CloseWrite(); err != nil || !h.ended {
		t.Errorf("the far side's end: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
