package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

func testClient(t *testing.T, h http.HandlerFunc, opts ...Option) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := New(srv.URL, "cfd_secret", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestNewRefuses(t *testing.T) {
	for _, bad := range []string{"", "localhost:1", "ftp://localhost", "http://", "http://user:pw@localhost", "http://localhost?x=1", "http://example.com", "http://192.0.2.1:7070", "http://127.0.0.1.evil.example"} {
		if _, err := New(bad, "t"); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	for _, good := range []string{"http://localhost:1", "http://127.0.0.1:1/", "http://[::1]:1", "https://example.com/base/"} {
		if _, err := New(good, "t"); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if _, err := New("http://example.com", "t", WithPlainHTTP()); err != nil {
		t.Error(err)
	}
}

func TestTokenIsNotPrinted(t *testing.T) {
	c, err := New("http://localhost:1", "cfd_hunter2", WithPatience(0))
	if err != nil {
		t.Fatal(err)
	}
	_, failure := c.Health(t.Context())
	text := fmt.Sprintf("%v %+v %#v %v %v", c, c, c, *c, failure)
	if strings.Contains(text, "hunter2") {
		t.Error(text)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var stolen atomic.Bool
	thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stolen.Store(r.Header.Get("Authorization") != "")
	}))
	defer thief.Close()
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, thief.URL, http.StatusFound) }, WithPatience(0))
	if _, err := c.Tasks(t.Context(), 0, ""); err == nil || stolen.Load() {
		t.Errorf("redirected: %v", err)
	}
}

func TestRetries(t *testing.T) {
	var calls atomic.Int32
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		switch calls.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprint(w, `{"id":"t-x","state":"queued"}`)
		}
	})
	tk, _, err := c.CreateTask(t.Context(), api.TaskRequest{}, "")
	if err != nil || tk.ID != "t-x" || calls.Load() != 3 {
		t.Errorf("%+v %v after %d calls", tk, err, calls.Load())
	}
	calls.Store(0)
	if _, err := c.CreateToken(t.Context(), api.TokenRequest{}); err == nil || calls.Load() != 1 {
		t.Errorf("a token was asked for %d times, %v", calls.Load(), err)
	}
	c = testClient(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", api.ProblemType)
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"code":"input.not_found","detail":"no task"}`)
	})
	calls.Store(0)
	_, err = c.Task(t.Context(), "a/../b")
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != "input.not_found" || p.Status != 404 || calls.Load() != 1 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

func TestPathsAreEscaped(t *testing.T) {
	var got string
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) { got = r.RequestURI; fmt.Fprint(w, "{}") }, WithPatience(0))
	if _, err := c.Task(t.Context(), "../tokens?x=1#/é"); err != nil {
		t.Fatal(err)
	}
	if got != "/v1/tasks/..%2Ftokens%3Fx=1%23%2F%C3%A9" {
		t.Error(got)
	}
}

func TestPatienceEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c, err := New("http://"+addr, "t", WithPatience(200*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Health(t.Context()); err == nil {
		t.Error("no server answered")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Health(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// fragile serves events, a log and a command's output, and breaks every
// connection off after a few pieces.
func fragile(w http.ResponseWriter, r *http.Request) {
	const total = 100
	rc := http.NewResponseController(w)
	var from int
	switch {
	case strings.HasSuffix(r.URL.Path, "/events"):
		fmt.Sscan(r.Header.Get("Last-Event-ID"), &from)
		for n := range 7 {
			if from+n+1 > total {
				fmt.Fprint(w, "event: end\ndata: {}\n\n")
				return
			}
			// A repeated event must not be delivered again.
			for range 2 {
				fmt.Fprintf(w, ": alive\n\nid: %d\nevent: stage\ndata: {\"seq\":%d,\ndata: \"type\":\"stage\"}\n\n", from+n+1, from+n+1)
			}
		}
		fmt.Fprint(w, "id: 10000\nevent: sta")
	case strings.HasSuffix(r.URL.Path, "/logs"):
		if from > 0 && r.URL.Query().Get("attempt") != "3" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header().Set("Cofferdam-Attempt", "3")
		fmt.Sscan(r.URL.Query().Get("offset"), &from)
		end := min(from+7, total)
		fmt.Fprint(w, strings.Repeat("x", end-from))
		if end == total {
			return
		}
	case strings.HasSuffix(r.URL.Path, "/output"):
		fmt.Sscan(r.URL.Query().Get("offset"), &from)
		end := min(from+7, total)
		// One frame starts before what was asked for.
		start := max(from-3, 0)
		b, _ := api.AppendFrame(nil, api.Frame{Fd: 1, Offset: int64(start), Data: bytes.Repeat([]byte("y"), end-start)})
		b, _ = api.AppendFrame(b, api.Frame{Fd: api.FrameHeartbeat})
		if end == total {
			b, _ = api.AppendFrame(b, api.Frame{Fd: api.FrameStatus, Data: []byte(`{"id":"c","phase":"exited","exitCode":4}`)})
		} else {
			b = append(b, 1, 0, 0)
		}
		_, _ = w.Write(b)
		if end == total {
			return
		}
	}
	_ = rc.Flush()
	panic(http.ErrAbortHandler)
}

func TestStreamsGoOnWhereTheyWereCut(t *testing.T) {
	c := testClient(t, fragile)
	next := int64(1)
	err := c.WatchTask(t.Context(), "t-x", 0, func(e api.Event) error {
		if e.Seq != next {
			t.Errorf("event %d, want %d", e.Seq, next)
		}
		next++
		return nil
	})
	if err != nil || next != 101 {
		t.Errorf("%d events, %v", next-1, err)
	}
	var b bytes.Buffer
	if n, err := c.FollowLogs(t.Context(), "t-x", Log{Follow: true}, &b); err != nil || n != 100 || b.String() != strings.Repeat("x", 100) {
		t.Errorf("%d %q %v", n, b.String(), err)
	}
	b.Reset()
	at := int64(0)
	st, err := c.ExecStream(t.Context(), "sb-x", "c", 0, func(f api.Frame) error {
		if f.Offset != at {
			t.Errorf("frame at %d, want %d", f.Offset, at)
		}
		at += int64(len(f.Data))
		b.Write(f.Data)
		return nil
	})
	if err != nil || st.ExitCode != 4 || b.String() != strings.Repeat("y", 100) {
		t.Errorf("%q %+v %v", b.String(), st, err)
	}
}

func TestSilentConnectionIsLeft(t *testing.T) {
	var calls atomic.Int32
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return
		}
		fmt.Fprint(w, "event: end\ndata: {}\n\n")
	})
	c.silence = 50 * time.Millisecond
	if err := c.WatchTask(t.Context(), "t-x", 0, func(api.Event) error { return nil }); err != nil || calls.Load() != 2 {
		t.Errorf("%v after %d calls", err, calls.Load())
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := c.WatchTask(ctx, "t-x", 0, func(api.Event) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	cancel()
	wg.Wait()
}

func TestHostileAnswers(t *testing.T) {
	for _, body := range []string{"", "{", "[]", `{"id":7}`, strings.Repeat("[", 100000)} {
		c := testClient(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, body) }, WithPatience(0))
		if _, err := c.Task(t.Context(), "t-x"); err == nil {
			t.Errorf("%.20q was taken", body)
		}
		if err := c.WatchTask(t.Context(), "t-x", 0, func(api.Event) error { return nil }); err == nil {
			t.Errorf("%.20q is no end of a stream", body)
		}
		if _, err := c.ExecStream(t.Context(), "sb-x", "c", 0, func(api.Frame) error { return nil }); err == nil {
			t.Errorf("%.20q is no end of a stream", body)
		}
	}
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cofferdam-Digest", "sha256:"+strings.Repeat("0", 64))
		fmt.Fprint(w, "other bytes")
	})
	body, _, err := c.Output(t.Context(), "t-x", "patch")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if _, err := io.ReadAll(body); err == nil {
		t.Error("bytes of another digest were taken")
	}
}

func TestUploadIsRepeated(t *testing.T) {
	var calls atomic.Int32
	c := testClient(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		if calls.Add(1) == 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(api.Blob{Digest: string(data), Size: r.ContentLength})
	})
	r := strings.NewReader("skip bundle")
	_, _ = r.Seek(5, io.SeekStart)
	blob, err := c.UploadBundle(t.Context(), r, 6)
	if err != nil || blob.Digest != "bundle" || blob.Size != 6 {
		t.Errorf("%+v %v", blob, err)
	}
	calls.Store(0)
	if _, err := c.UploadBundle(t.Context(), io.MultiReader(strings.NewReader("x")), -1); err == nil || calls.Load() != 1 {
		t.Errorf("what can't be read again was sent %d times, %v", calls.Load(), err)
	}
}
