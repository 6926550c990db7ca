package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/worker"
	"github.com/cofferdam/cofferdam/internal/worker/workertest"
)

const id = "sb-aaaaaaaaaaaaaaaa"

type machine struct {
	dir     string
	driver  *workertest.Local
	gateway *workertest.Gateway
	door    *worker.Door
}

func newMachine(t *testing.T, change func(*worker.Options)) *machine {
	t.Helper()
	m := &machine{dir: t.TempDir()}
	for _, name := range []string{"sandboxes", "epochs"} {
		if err := os.Mkdir(filepath.Join(m.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.driver = workertest.New(filepath.Join(m.dir, "sandboxes"))
	m.gateway = &workertest.Gateway{File: filepath.Join(m.dir, "epoch")}
	if err := os.WriteFile(m.gateway.File, []byte("gateway-1"), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := worker.Options{
		ID: "machine-1", Boot: "boot-1", Driver: m.driver, Egress: m.gateway, EpochDir: filepath.Join(m.dir, "epochs"),
		Machine: func() link.Machine { return link.Machine{CPUs: 2} },
		Ledger:  func() []link.OpenRecord { return []link.OpenRecord{{Kind: "folder", Name: "x"}} },
		Checks:  func(context.Context) []link.Check { return []link.Check{{ID: "disk", Outcome: link.CheckOK}} },
		Log:     slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&opts)
	}
	m.door = worker.New(opts)
	return m
}

// ask makes a request; a connection that the door cuts is status 0.
func (m *machine) ask(ctx context.Context, method, path, body string) (status int, answer string) {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != nil {
				if p != http.ErrAbortHandler {
					panic(p)
				}
				w.Code = 0
			}
		}()
		m.door.ServeHTTP(w, r)
	}()
	return w.Code, w.Body.String()
}

func (m *machine) create(t *testing.T, spec string) {
	t.Helper()
	if status, answer := m.ask(t.Context(), "PUT", "/sandboxes/"+id, spec); status != http.StatusOK {
		t.Fatal(status, answer)
	}
}

const plain = `{"id":"` + id + `","network":false,"limits":{}}`

const networked = `{"id":"` + id + `","network":true,"limits":{}}`

func TestDoorIsStrict(t *testing.T) {
	m := newMachine(t, nil)
	m.create(t, plain)
	for _, test := range []struct {
		method, path, body string
		reason             task.Reason
	}{
		{"PUT", "/sandboxes/x", plain, task.InputInvalid},
		{"PUT", "/sandboxes/sb-bbbbbbbbbbbbbbbb", plain, task.InputInvalid},
		{"PUT", "/sandboxes/" + id, `{"id":"` + id + `","mystery":1}`, task.InputInvalid},
		{"PUT", "/sandboxes/" + id, plain + plain, task.InputInvalid},
		{"PUT", "/sandboxes/" + id, `"` + strings.Repeat("x", link.MaxJSON) + `"`, task.InputInvalid},
		{"PUT", "/sandboxes/" + id + "/grant", `{"sandbox":"sb-bbbbbbbbbbbbbbbb"}`, task.InputInvalid},
		{"PUT", "/sandboxes/sb-bbbbbbbbbbbbbbbb/grant", `{"sandbox":"sb-bbbbbbbbbbbbbbbb"}`, task.InputNotFound},
		{"PUT", "/sandboxes/" + id + "/commands/a", `{"id":"b","argv":["true"]}`, task.InputInvalid},
		{"PUT", "/sandboxes/" + id + "/commands/..%2f..", `{"id":"b","argv":["true"]}`, task.InputInvalid},
		{"POST", "/sandboxes/" + id + "/run", `{"command":{"id":"","argv":["true"]},"offset":0}`, task.InputInvalid},
		{"POST", "/sandboxes/" + id + "/run", `{"command":{"id":"a","argv":["true"]},"offset":-1}`, task.InputInvalid},
		{"GET", "/sandboxes/" + id + "/commands/a/output?offset=x", "", task.InputInvalid},
		{"GET", "/sandboxes/" + id + "/commands/a/output?offset=0", "", task.InputNotFound},
		{"GET", "/sandboxes/" + id + "/commands/a", "", task.InputNotFound},
		{"POST", "/sandboxes/" + id + "/commands/a/signal", `{"signal":0}`, task.InputInvalid},
		{"POST", "/sandboxes/" + id + "/commands/a/signal", `{"signal":9}`, task.InputNotFound},
		{"POST", "/sandboxes/" + id + "/put?dir=relative", "", task.InputInvalid},
		{"POST", "/sandboxes/" + id + "/get", `{"path":"relative"}`, task.InputInvalid},
		{"POST", "/sandboxes/" + id + "/get", `{"path":"/nothing"}`, task.InputNotFound},
		{"GET", "/sandboxes/" + id + "/egress?after=x", "", task.InputInvalid},
		{"GET", "/sandboxes/sb-bbbbbbbbbbbbbbbb", "", task.InputNotFound},
	} {
		status, answer := m.ask(t.Context(), test.method, test.path, test.body)
		var p link.Problem
		if err := json.Unmarshal([]byte(answer), &p); err != nil || p.Reason != test.reason || status != link.Status(test.reason) {
			t.Errorf("%s %s %.40q: %d %s", test.method, test.path, test.body, status, answer)
		}
	}
	if status, _ := m.ask(t.Context(), "GET", "/elsewhere", ""); status != http.StatusNotFound {
		t.Error(status)
	}
}

func TestHelloAndDoctorTellWhatIsThere(t *testing.T) {
	m := newMachine(t, nil)
	m.create(t, plain)
	status, answer := m.ask(t.Context(), "POST", "/hello", `{"boot":"b","version":"v"}`)
	var hello link.Hello
	if err := json.Unmarshal([]byte(answer), &hello); err != nil || status != http.StatusOK {
		t.Fatal(status, answer)
	}
	if hello.ID != "machine-1" || hello.Gateway != "gateway-1" || len(hello.Sandboxes) != 1 || len(hello.Ledger) != 1 ||
		hello.Machine.Committed != task.DefaultLimits().Memory {
		t.Fatalf("%+v", hello)
	}
	if err := os.Mkdir(filepath.Join(m.dir, "sandboxes", "orphan"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(m.gateway.File); err != nil {
		t.Fatal(err)
	}
	_, answer = m.ask(t.Context(), "GET", "/doctor", "")
	var doctor link.Doctor
	if err := json.Unmarshal([]byte(answer), &doctor); err != nil {
		t.Fatal(err)
	}
	if len(doctor.Leftovers) != 1 || doctor.Leftovers[0].Name != "orphan" || len(doctor.Checks) != 2 || doctor.Checks[0].Outcome != link.CheckFailed {
		t.Fatalf("%+v", doctor)
	}
}

// slow is a driver whose Create waits until the test lets it go on.
type slow struct {
	*workertest.Local
	entered, leave chan struct{}
}

func (s slow) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	close(s.entered)
	<-s.leave
	if err := ctx.Err(); err != nil {
		return sandbox.Info{}, err
	}
	return s.Local.Create(ctx, spec)
}

// TestEffectsOutliveTheirConnection cuts the connection while a sandbox is made:
// it is made nevertheless. A grant of the same connection that had to wait is not
// set any more, since a newer one may have been.
func TestEffectsOutliveTheirConnection(t *testing.T) {
	s := slow{entered: make(chan struct{}), leave: make(chan struct{})}
	m := newMachine(t, func(o *worker.Options) {
		s.Local = o.Driver.(*workertest.Local)
		o.Driver = s
	})
	if _, err := s.Local.Create(t.Context(), sandbox.Spec{ID: id, Network: true}); err != nil {
		t.Fatal(err)
	}
	older, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if status, _ := m.ask(older, "PUT", "/sandboxes/"+id, networked); status != http.StatusOK {
			t.Errorf("create: %d", status)
		}
	})
	<-s.entered
	late := make(chan int)
	go func() {
		status, _ := m.ask(older, "PUT", "/sandboxes/"+id+"/grant", `{"sandbox":"`+id+`","stage":"setup"}`)
		late <- status
	}()
	end()
	if status := <-late; status != 0 {
		t.Errorf("late grant: %d", status)
	}
	close(s.leave)
	wg.Wait()
	m.door.Wait(t.Context())
	if status, answer := m.ask(t.Context(), "PUT", "/sandboxes/"+id+"/grant", `{"sandbox":"`+id+`","stage":"agent"}`); status != http.StatusNoContent {
		t.Fatal(status, answer)
	}
	if grants := m.gateway.Set(); len(grants) != 1 || grants[0].Stage != task.Agent {
		t.Fatalf("%+v", grants)
	}
}

func TestGrantWithoutNetworkAsksNobody(t *testing.T) {
	m := newMachine(t, nil)
	m.create(t, plain)
	if status, answer := m.ask(t.Context(), "PUT", "/sandboxes/"+id+"/grant", `{"sandbox":"`+id+`"}`); status != http.StatusNoContent {
		t.Fatal(status, answer)
	}
	if len(m.gateway.Set()) != 0 {
		t.Fatal("the gateway was asked")
	}
}

// TestExpiredSandboxGoes has the clean-up run for a sandbox whose time is over,
// with the control plane away.
func TestExpiredSandboxGoes(t *testing.T) {
	m := newMachine(t, nil)
	m.create(t, `{"id":"`+id+`","network":true,"limits":{},"expires":"2001-01-01T00:00:00Z"}`)
	const stays = "sb-bbbbbbbbbbbbbbbb"
	if _, err := m.driver.Create(t.Context(), sandbox.Spec{ID: stays}); err != nil {
		t.Fatal(err)
	}
	if status, answer := m.ask(t.Context(), "POST", "/sandboxes/"+id+"/run", `{"command":{"id":"c","argv":["true"]},"offset":0}`); status != http.StatusOK {
		t.Fatal(status, answer)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.door.Keep(ctx, 5*time.Millisecond) }()
	for deadline := time.Now().Add(10 * time.Second); ; {
		infos, err := m.driver.List(t.Context())
		left, rerr := os.ReadDir(filepath.Join(m.dir, "epochs"))
		if errors.Join(err, rerr) != nil {
			t.Fatal(err, rerr)
		}
		if len(infos) == 1 && infos[0].ID == stays && len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %+v, %v", infos, left)
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	if err := m.door.DestroyAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if infos, _ := m.driver.List(t.Context()); len(infos) != 0 {
		t.Fatalf("left: %+v", infos)
	}
}

// failing is a driver whose streams break off.
type failing struct {
	*workertest.Local
	err error
}

func (f failing) Attach(context.Context, string, string, int64) (sandbox.Stream, error) {
	return brokenStream{f.err}, nil
}

func (f failing) Get(context.Context, string, string, []string) (io.ReadCloser, error) {
	return io.NopCloser(io.MultiReader(strings.NewReader("half"), errorReader{f.err})), nil
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

type brokenStream struct{ err error }

func (s brokenStream) Next() (sandbox.Chunk, error) { return sandbox.Chunk{}, s.err }
func (s brokenStream) Status() sandbox.Status {
	return sandbox.Status{ID: "c", Phase: sandbox.CommandRunning}
}
func (s brokenStream) Close() error { return nil }

// TestBrokenStreams tells a sandbox's failure, which is an answer, from one of the
// worker's own ending, which is none.
func TestBrokenStreams(t *testing.T) {
	lost := task.Fail(task.InfraSandboxLost, "its kernel died", nil)
	for name, test := range map[string]struct {
		err    error
		status int
	}{"sandbox": {lost, http.StatusOK}, "worker": {context.Canceled, 0}} {
		m := newMachine(t, func(o *worker.Options) { o.Driver = failing{o.Driver.(*workertest.Local), test.err} })
		m.create(t, plain)
		status, answer := m.ask(t.Context(), "GET", "/sandboxes/"+id+"/commands/c/output?offset=0", "")
		if status != test.status {
			t.Errorf("%s: %d", name, status)
		}
		if told := strings.Contains(answer, string(task.InfraSandboxLost)); told != (status == http.StatusOK) {
			t.Errorf("%s: %q", name, answer)
		}
	}
	m := newMachine(t, func(o *worker.Options) { o.Driver = failing{o.Driver.(*workertest.Local), lost} })
	r := httptest.NewRequest("POST", "/sandboxes/"+id+"/get", strings.NewReader(`{"path":"/x"}`))
	w := httptest.NewRecorder()
	m.door.ServeHTTP(w, r)
	p, err := link.ParseOutcome(w.Result().Trailer.Get(link.TrailerOutcome))
	if err != nil || p.Reason != task.InfraSandboxLost || w.Body.String() != "half" {
		t.Fatalf("%+v %v %q", p, err, w.Body)
	}
}

// TestTornNote starts a command after a note of an epoch was torn by a crash.
func TestTornNote(t *testing.T) {
	m := newMachine(t, nil)
	m.create(t, networked)
	torn := "\n" + `{"command":"a","epoch":"gateway-0"}` + "\n" + `{"command":"b","epo`
	if err := os.WriteFile(filepath.Join(m.dir, "epochs", id+".epochs"), []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{"a": "gateway-0", "b": "gateway-1"} {
		status, answer := m.ask(t.Context(), "PUT", "/sandboxes/"+id+"/commands/"+command, `{"id":"`+command+`","argv":["true"]}`)
		var state link.CommandState
		if err := json.Unmarshal([]byte(answer), &state); err != nil || status != http.StatusOK || state.EpochBefore != want {
			t.Errorf("%s: %d %s", command, status, answer)
		}
		// The folder is removed with the test: nothing may still write there.
		for deadline := time.Now().Add(20 * time.Second); !strings.Contains(answer, `"exited"`); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not end: %s", command, answer)
			}
			_, answer = m.ask(t.Context(), "GET", "/sandboxes/"+id+"/commands/"+command, "")
		}
	}
}
