package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cofferdam/cofferdam/internal/task"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestFramesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bytes.Buffer
		w := NewFrameWriter(&b)
		var want [][]byte
		offset := rapid.Int64Range(0, 1<<40).Draw(t, "start")
		begin := offset
		for _, chunk := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 8).Draw(t, "chunks") {
			if err := w.Output(1+int(offset)%2, offset, chunk); err != nil {
				t.Fatal(err)
			}
			offset += int64(len(chunk))
			want = append(want, chunk)
		}
		r := NewFrameReader(&b)
		var got []byte
		for {
			f, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || f.Offset != begin+int64(len(got)) {
				t.Fatal(f, err)
			}
			got = append(got, f.Data...)
		}
		if !bytes.Equal(got, bytes.Join(want, nil)) {
			t.Fatal("differs")
		}
	})
}

func TestLargeChunksAreSplit(t *testing.T) {
	var b bytes.Buffer
	data := bytes.Repeat([]byte("x"), 3*MaxFrame+5)
	if err := NewFrameWriter(&b).Output(KindStderr, 7, data); err != nil {
		t.Fatal(err)
	}
	r, n, frames := NewFrameReader(&b), 0, 0
	for ; ; frames++ {
		f, err := r.Next()
		if err != nil {
			break
		}
		if f.Offset != int64(7+n) || f.Kind != KindStderr {
			t.Fatal(f.Kind, f.Offset)
		}
		n += len(f.Data)
	}
	if n != len(data) || frames != 4 {
		t.Fatal(n, frames)
	}
}

func FuzzFrameReader(f *testing.F) {
	var b bytes.Buffer
	w := NewFrameWriter(&b)
	_ = w.Output(1, 0, []byte("hello"))
	_ = w.Note(KindEnded, CommandState{})
	f.Add(b.Bytes())
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewFrameReader(bytes.NewReader(in))
		var out bytes.Buffer
		again := NewFrameWriter(&out)
		read := 0
		for {
			frame, err := r.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, ErrFrame) {
					t.Fatalf("error of another kind: %v", err)
				}
				break
			}
			if frame.Offset < 0 || len(frame.Data) > limitOf(frame.Kind) {
				t.Fatalf("kind %d, offset %d, length %d", frame.Kind, frame.Offset, len(frame.Data))
			}
			read += headerSize + len(frame.Data)
			if err := again.write(frame.Kind, frame.Offset, frame.Data); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(out.Bytes(), in[:read]) {
			t.Fatal("what was read, written again, differs")
		}
	})
}

func TestProblemsRoundTrip(t *testing.T) {
	cause := errors.New("disk on fire")
	got := ProblemOf(fmt.Errorf("wrapped: %w", task.Fail(task.LimitDisk, "full", cause))).Failure()
	if got.Reason != task.LimitDisk || got.Text != "full" || got.Err.Error() != cause.Error() {
		t.Fatalf("%+v", got)
	}
	if p := ProblemOf(cause); p.Reason != task.InfraInternal || p.Detail == "" {
		t.Fatalf("%+v", p)
	}
	for _, bad := range []task.Reason{"", "Not a reason", "a.b.c", "x\n", task.Reason(strings.Repeat("a", 100))} {
		if got := (Problem{Reason: bad, Text: strings.Repeat("x", 1<<20)}).Failure(); got.Reason != task.InfraInternal || len(got.Text) > 5000 {
			t.Errorf("%q gave %s", bad, got.Reason)
		}
	}
	p := Problem{Reason: task.InputNotFound, Text: "no file\r\n\x7f “x”"}
	if got, err := ParseOutcome(FormatOutcome(p)); err != nil || got != p {
		t.Fatalf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "%zz", "x", OutcomeComplete} {
		if _, err := ParseOutcome(bad); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q gave %v", bad, err)
		}
	}
}

func TestJSONIsStrict(t *testing.T) {
	for text, ok := range map[string]bool{
		`{"signal":9}`: true, `{"signal":9} `: true, `{"signal":9,"x":1}`: false, `{"signal":9}{}`: false,
		``: false, `{"signal":"9"}`: false, `{"signal":9}` + strings.Repeat(" ", MaxJSON): false,
	} {
		var s Signal
		if err := DecodeJSON(strings.NewReader(text), &s); (err == nil) != ok {
			t.Errorf("%.30q: %v", text, err)
		}
	}
}

// TestSessionCarriesRequestsBothSlowAndMany tries the tunnel on its own: a
// stream per request, many at once, each kept for the next.
func TestSessionCarriesRequestsBothSlowAndMany(t *testing.T) {
	sessions := make(chan *Session, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := Accept(w, r, Tuning{}, quiet())
		if err == nil {
			sessions <- s
		}
	}))
	defer server.Close()
	w := &Worker{
		Server: server.URL, Token: func() (string, error) { return "t", nil }, Log: quiet(),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			_, _ = w.Write(text)
		}),
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.Keep(ctx) }()
	s := <-sessions
	client := s.Client()
	errs := make(chan error)
	for i := range 100 {
		go func() {
			text := strings.Repeat(fmt.Sprint(i), 1000*(i+1))
			resp, err := client.Post("http://worker/", "text/plain", strings.NewReader(text))
			if err != nil {
				errs <- err
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			if err == nil && string(got) != text {
				err = fmt.Errorf("request %d: got %d bytes of %d", i, len(got), len(text))
			}
			errs <- err
		}()
	}
	for range 100 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	before := s.NumStreams()
	for range 50 {
		resp, err := client.Post("http://worker/", "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if after := s.NumStreams(); after > before {
		t.Errorf("%d streams became %d: they are not used again", before, after)
	}
	client.CloseIdleConnections()
	cancel()
	<-done
	<-s.Done()
}

// TestWorkerCantOpenStreams has a worker open streams towards cofferdamd, which
// would cost it memory.
func TestWorkerCantOpenStreams(t *testing.T) {
	sessions := make(chan *Session, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, err := Accept(w, r, Tuning{}, quiet()); err == nil {
			sessions <- s
		}
	}))
	defer server.Close()
	w := &Worker{Server: server.URL, Token: func() (string, error) { return "t", nil }, Log: quiet()}
	mine, err := w.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	theirs := <-sessions
	defer theirs.Close()
	if conn, err := mine.Open(); err == nil {
		// It was on its way before the refusal arrived: it must be reset, not kept.
		if _, err := io.ReadAll(conn); err == nil {
			t.Fatal("a stream from the worker was accepted")
		}
	}
	if n := theirs.NumStreams(); n != 0 {
		t.Fatalf("%d streams", n)
	}
}

func TestAttemptsThatCantWork(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer silent.Close()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "welcome") }))
	defer page.Close()
	token := func() (string, error) { return "t", nil }
	for name, w := range map[string]*Worker{
		"no server":  {Server: "http://127.0.0.1:1", Token: token},
		"no URL":     {Server: "ftp://x", Token: token},
		"no token":   {Server: page.URL, Token: func() (string, error) { return "", nil }},
		"bad token":  {Server: page.URL, Token: func() (string, error) { return "a\r\nX: y", nil }},
		"other page": {Server: page.URL, Token: token},
		"silence":    {Server: silent.URL, Token: token, Tuning: Tuning{Timeout: 50 * time.Millisecond}},
	} {
		w.Log = quiet()
		if s, err := w.dial(t.Context()); err == nil {
			s.Close()
			t.Errorf("%s: connected", name)
		}
	}
}

func TestOrdinaryRequestsAreToldWhatThisIs(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s, err := Accept(w, r, Tuning{}, quiet()); err == nil {
			s.Close()
		}
	}))
	defer server.Close()
	resp, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
	resp, err = http.Post(server.URL, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUpgradeRequired || resp.Header.Get("Upgrade") != Protocol {
		t.Error(resp.Status, resp.Header)
	}
}

func TestTurns(t *testing.T) {
	var turns Turns
	var inside, most atomic.Int32
	done := make(chan struct{})
	for i := range 100 {
		go func() {
			defer func() { done <- struct{}{} }()
			leave, err := turns.Take(t.Context(), fmt.Sprint(i%2))
			if err != nil {
				t.Error(err)
				return
			}
			most.Store(max(most.Load(), inside.Add(1)))
			inside.Add(-1)
			leave()
		}()
	}
	for range 100 {
		<-done
	}
	if most.Load() > 2 || len(turns.turns) != 0 {
		t.Fatalf("%d at once, %d left", most.Load(), len(turns.turns))
	}
	leave, err := turns.Take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turns.Take(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	leave()
}

// TestWireTypesRoundTrip sees that what one side writes, the other's strict
// reader takes.
func TestWireTypesRoundTrip(t *testing.T) {
	for _, v := range []any{&Run{}, &Get{Path: "/x"}, &Signal{}, &Welcome{}, &Hello{}, &CommandState{}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := DecodeJSON(bytes.NewReader(text), v); err != nil {
			t.Errorf("%T: %v", v, err)
		}
	}
}
