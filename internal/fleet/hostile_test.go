package fleet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// hostile is a worker that says hello as it should and answers everything else
// as the test wants.
func hostile(t *testing.T, answer http.HandlerFunc) *control {
	t.Helper()
	c := newControl(t, fleet.Options{Grace: 300 * time.Millisecond, MaxOutput: 1 << 20})
	keep(t, newLinkWith(c.url, greeting("evil", "boot", answer)))
	c.connected(t, 1)
	return c
}

func greeting(id, boot string, answer http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hello", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(link.Hello{ID: id, Boot: boot, Machine: link.Machine{Memory: 1 << 30}})
	})
	mux.HandleFunc("/", answer)
	return mux
}

const evilID = "sb-aaaaaaaaaaaaaaaa"

func evilList(w http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path == "/sandboxes" {
		fmt.Fprintf(w, `{"sandboxes":[{"id":%q}]}`, evilID)
		return true
	}
	return false
}

func TestHostileAnswers(t *testing.T) {
	state := func(id, phase string) string {
		return fmt.Sprintf(`{"id":%q,"phase":%q,"exitCode":0,"started":true,"output":0}`, id, phase)
	}
	frame := func(kind byte, offset int64, data string) []byte {
		b := []byte{kind, 0, 0, 0, 0, 0, 0, 0, byte(offset), 0, 0, byte(len(data) >> 8), byte(len(data))}
		return append(b, data...)
	}
	run := func(c *control) error {
		_, err := c.Run(t.Context(), evilID, sandbox.Command{ID: "c", Argv: []string{"x"}}, 0, io.Discard, nil)
		return err
	}
	create := func(c *control) error {
		_, _, err := c.Create(t.Context(), sandbox.Spec{ID: evilID})
		return err
	}
	start := func(c *control) error {
		_, err := c.Start(t.Context(), evilID, sandbox.Command{ID: "c", Argv: []string{"x"}})
		return err
	}
	egress := func(c *control) error { _, err := c.Egress(t.Context(), evilID, 3); return err }
	get := func(c *control) error {
		r, err := c.Get(t.Context(), evilID, "/x", nil)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.Copy(io.Discard, r)
		return err
	}
	ok := frame(link.KindStarted, 0, state("c", "running"))
	for name, test := range map[string]struct {
		call   func(*control) error
		answer string
		status int
		reason task.Reason
	}{
		"another sandbox":        {call: create, answer: `{"id":"sb-bbbbbbbbbbbbbbbb"}`, reason: task.InfraInternal},
		"no JSON":                {call: create, answer: `<html>`, reason: task.InfraInternal},
		"wrong types":            {call: create, answer: `{"id":7}`, reason: task.InfraInternal},
		"endless JSON":           {call: create, answer: `"` + strings.Repeat("x", link.MaxJSON+10), reason: task.InfraInternal},
		"deep JSON":              {call: create, answer: strings.Repeat("[", 100_000), reason: task.InfraInternal},
		"status without problem": {call: create, status: 500, answer: `oops`, reason: task.InfraInternal},
		"problem without reason": {call: create, status: 500, answer: `{"text":"x"}`, reason: task.InfraInternal},
		"redirect":               {call: create, status: 302, answer: `{}`, reason: task.InfraInternal},
		"real problem":           {call: create, status: 500, answer: `{"reason":"infra.sandbox_create","text":"x"}`, reason: task.InfraSandboxCreate},
		"another command":        {call: start, answer: state("d", "running"), reason: task.InfraInternal},
		"unknown phase":          {call: start, answer: state("c", "flying"), reason: task.InfraInternal},
		"frame of no kind":       {call: run, answer: string(ok) + string(frame(99, 0, "x")), reason: task.InfraInternal},
		"frame too large":        {call: run, answer: string(ok) + "\x01\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", reason: task.InfraInternal},
		"offset beyond":          {call: run, answer: string(ok) + string(frame(1, 5, "x")), reason: task.InfraInternal},
		"output twice":           {call: run, answer: string(ok) + string(frame(1, 0, "x")) + string(frame(1, 0, "x")), reason: task.InfraInternal},
		"empty output":           {call: run, answer: string(ok) + string(frame(1, 0, "")), reason: task.InfraInternal},
		"started another":        {call: run, answer: string(frame(link.KindStarted, 0, state("d", "running"))), reason: task.InfraInternal},
		"ended while running":    {call: run, answer: string(ok) + string(frame(link.KindEnded, 0, state("c", "running"))), reason: task.InfraInternal},
		"ended without JSON":     {call: run, answer: string(ok) + string(frame(link.KindEnded, 0, "x")), reason: task.InfraInternal},
		"never ends":             {call: run, answer: string(ok), reason: task.InfraWorkerLost},
		"problem":                {call: run, answer: string(ok) + string(frame(link.KindProblem, 0, `{"reason":"limit.memory"}`)), reason: task.LimitMemory},
		"records of another":     {call: egress, answer: `{"records":[{"seq":4,"sandbox":"sb-bbbbbbbbbbbbbbbb"}]}`, reason: task.InfraInternal},
		"records again":          {call: egress, answer: fmt.Sprintf(`{"records":[{"seq":3,"sandbox":%q}]}`, evilID), reason: task.InfraInternal},
		"tar without outcome":    {call: get, answer: "tar", reason: task.InfraInternal},
	} {
		t.Run(name, func(t *testing.T) {
			c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
				if evilList(w, r) {
					return
				}
				if test.status != 0 {
					w.Header().Set("Location", "http://127.0.0.1:1/")
					w.WriteHeader(test.status)
				}
				_, _ = io.WriteString(w, test.answer)
			})
			wantReason(t, test.call(c), test.reason)
		})
	}
}

// TestHostileFlood sends output without end: what is taken is bounded, and so is
// the memory it costs.
func TestHostileFlood(t *testing.T) {
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		if evilList(w, r) {
			return
		}
		frames := link.NewFrameWriter(w)
		chunk := make([]byte, link.MaxFrame)
		for at := int64(0); frames.Output(1, at, chunk) == nil; at += link.MaxFrame {
		}
	})
	_, err := c.Run(t.Context(), evilID, sandbox.Command{ID: "c"}, 0, io.Discard, nil)
	wantReason(t, err, task.LimitOutput)
}

func TestHostileHello(t *testing.T) {
	c := newControl(t, fleet.Options{Grace: 100 * time.Millisecond})
	for name, hello := range map[string]string{
		"no id":     `{}`,
		"bad id":    `{"id":"../../x","boot":"b"}`,
		"no boot":   `{"id":"evil"}`,
		"long":      `{"id":"evil","boot":"b","version":"` + strings.Repeat("x", 1000) + `"}`,
		"no JSON":   `hello`,
		"too large": strings.Repeat("x", link.MaxJSON+1),
	} {
		var asked atomic.Int32
		stop := keep(t, newLinkWith(c.url, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			_, _ = io.WriteString(w, hello)
		})))
		eventually(t, name+": two attempts", func() bool { return asked.Load() >= 2 })
		stop()
	}
	if workers := c.Workers(); len(workers) != 0 {
		t.Fatalf("workers %+v", workers)
	}
}

// TestWorkerCantTakeAnothersSandbox has a second worker claim a sandbox of the
// first.
func TestWorkerCantTakeAnothersSandbox(t *testing.T) {
	c, _ := oneWorker(t, fleet.Options{})
	id := c.create(t, sandbox.Spec{})
	var asked atomic.Int32
	keep(t, newLinkWith(c.url, greeting("evil", "boot", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/sandboxes" {
			fmt.Fprintf(w, `{"sandboxes":[{"id":%q,"kernel":"stolen"}]}`, id)
			return
		}
		asked.Add(1)
	})))
	c.connected(t, 2)
	if all, _ := c.List(t.Context()); len(all) != 1 || all[0].Kernel == "stolen" {
		t.Fatalf("list %+v", all)
	}
	if _, err := c.Run(t.Context(), id, sh("c", "true"), 0, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	if asked.Load() != 0 {
		t.Fatal("the other worker was asked")
	}
}

func TestWrongTokenIsRefused(t *testing.T) {
	c := newControl(t, fleet.Options{})
	tried := make(chan error, 10)
	w := newLink(t.TempDir(), c.url, "machine-1")
	w.Token = func() (string, error) { return "guess", nil }
	w.Tried = func(err error) {
		select {
		case tried <- err:
		default:
		}
	}
	keep(t, w)
	for range 2 {
		if err := <-tried; !errors.Is(err, link.ErrRefused) {
			t.Fatal(err)
		}
	}
	if len(c.Workers()) != 0 {
		t.Fatal("it was let in")
	}
}

// TestIDBelongsToItsSubject has a machine with a token of its own claim the id of
// another.
func TestIDBelongsToItsSubject(t *testing.T) {
	c, _ := oneWorker(t, fleet.Options{})
	other := newLink(t.TempDir(), c.url, "machine-1")
	other.Token = func() (string, error) { return token + "-other", nil }
	var tries atomic.Int32
	other.Tried = func(error) { tries.Add(1) }
	boot := c.Workers()[0].Boot
	keep(t, other)
	eventually(t, "three attempts", func() bool { return tries.Load() >= 3 })
	if w := c.Workers(); len(w) != 1 || w[0].Boot != boot {
		t.Fatalf("%+v", w)
	}
}

// TestNewerConnectionFencesTheOlder connects a second process with the same id:
// from then on only it is asked, and what was under way is asked again there.
func TestNewerConnectionFencesTheOlder(t *testing.T) {
	c := newControl(t, fleet.Options{})
	entered := make(chan struct{})
	var ended atomic.Bool
	older := newLinkWith(c.url, greeting("machine-1", "older", func(w http.ResponseWriter, r *http.Request) {
		if evilList(w, r) {
			return
		}
		close(entered)
		<-r.Context().Done()
		ended.Store(true)
	}))
	older.Backoff = time.Hour // It does not come back.
	keep(t, older)
	c.connected(t, 1)
	done := make(chan error)
	go func() { done <- c.Put(t.Context(), evilID, "/", bytes.NewReader([]byte("tar"))) }()
	<-entered
	var got atomic.Value
	keep(t, newLinkWith(c.url, greeting("machine-1", "newer", func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		got.Store(string(text))
	})))
	if err := <-done; err != nil || got.Load() != "tar" {
		t.Fatalf("%v, got %q", err, got.Load())
	}
	eventually(t, "the end of the older request", ended.Load)
	if w := c.Workers(); len(w) != 1 || w[0].Boot != "newer" {
		t.Fatalf("%+v", w)
	}
}

// zeros is a reader of so many zero bytes that can't be read twice.
func zeros(n int64) io.Reader { return io.LimitReader(zeroReader{}, n) }

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestLargeFilesCostNoMemory moves more bytes each way than the program may hold.
func TestLargeFilesCostNoMemory(t *testing.T) {
	const size = 1 << 30
	var received atomic.Int64
	c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case evilList(w, r):
		case strings.HasSuffix(r.URL.Path, "/put"):
			n, _ := io.Copy(io.Discard, r.Body)
			received.Store(n)
		default:
			w.Header().Set("Trailer", link.TrailerOutcome)
			_, _ = io.Copy(w, zeros(size))
			w.Header().Set(link.TrailerOutcome, link.OutcomeComplete)
		}
	})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	began := time.Now()
	if err := c.Put(t.Context(), evilID, "/", zeros(size)); err != nil || received.Load() != size {
		t.Fatalf("put: %d bytes, %v", received.Load(), err)
	}
	put := time.Since(began)
	r, err := c.Get(t.Context(), evilID, "/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); n != size || err != nil {
		t.Fatalf("get: %d bytes, %v", n, err)
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 128<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	t.Logf("put %.0f MB/s, get %.0f MB/s", size/put.Seconds()/1e6, size/(time.Since(began)-put).Seconds()/1e6)
}

// TestPutThatBreaks loses the connection in the middle of an upload.
func TestPutThatBreaks(t *testing.T) {
	for name, test := range map[string]struct {
		body   io.Reader
		reason task.Reason
		tries  int32
	}{
		"can be read again": {body: bytes.NewReader(make([]byte, 1<<20)), tries: 2},
		"can't":             {body: zeros(1 << 20), reason: task.InfraWorkerLost, tries: 1},
		"source fails":      {body: io.MultiReader(zeros(100), failing{}), reason: task.InputInvalid, tries: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int32
			c := hostile(t, func(w http.ResponseWriter, r *http.Request) {
				if evilList(w, r) {
					return
				}
				if tries.Add(1) == 1 && name != "source fails" {
					_, _ = io.CopyN(io.Discard, r.Body, 1000)
					panic(http.ErrAbortHandler)
				}
				if n, err := io.Copy(io.Discard, r.Body); err != nil || n != 1<<20 {
					panic(http.ErrAbortHandler)
				}
			})
			err := c.Put(t.Context(), evilID, "/", test.body)
			if test.reason == "" && err != nil {
				t.Fatal(err)
			}
			if test.reason != "" {
				wantReason(t, err, test.reason)
			}
			// A source that fails at once may do so before anything was sent.
			if n := tries.Load(); n > test.tries || n < test.tries && name != "source fails" {
				t.Fatalf("%d tries, want %d", n, test.tries)
			}
		})
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

// TestRefusedUploadSaysWhy refuses an upload while most of it is still to come.
func TestRefusedUploadSaysWhy(t *testing.T) {
	c, _ := oneWorker(t, fleet.Options{})
	id := c.create(t, sandbox.Spec{})
	wantReason(t, c.Put(t.Context(), id, "/x", io.MultiReader(strings.NewReader(strings.Repeat("no tar", 1000)), zeros(64<<20))), task.InputInvalid)
}
