//go:build root

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// modelKey is the real key: nobody but the vault and the model's server may
// have it.
const modelKey = "sk-ant-api03-REAL-0123456789abcdef0123456789abcdef"

// scripted is a model's server at https://model.test, and a platform that may
// reach it.
type scripted struct {
	*modeltest.Server
	env    *testenv.Env
	url    string
	port   int
	signal *signal
	login  atomic.Pointer[vendor] // renews logins at /oauth/token, when it is set
}

// signal is a server that what runs in a sandbox tells that it runs, and asks
// whether it may go on.
type signal struct {
	port  int
	began atomic.Int64
	open  atomic.Bool
}

func startSignal(t *testing.T) *signal {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &signal{port: l.Addr().(*net.TCPAddr).Port}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/began":
			s.began.Add(1)
		case !s.open.Load():
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	})}
	go srv.Serve(l)
	t.Cleanup(func() { srv.Close() })
	return s
}

// startScripted starts both, with the key in the vault.
func startScripted(t *testing.T, o modeltest.Options, flags ...string) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	certificate, authority, err := modeltest.Certificate("model.test")
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(t.TempDir(), "roots.pem")
	if err := os.WriteFile(roots, authority, 0o644); err != nil {
		t.Fatal(err)
	}
	s := &scripted{port: l.Addr().(*net.TCPAddr).Port, signal: startSignal(t)}
	for _, step := range o.Steps {
		for i, c := range step.Calls {
			step.Calls[i].Input = strings.NewReplacer("PORT", fmt.Sprint(s.port), "SIGNAL", fmt.Sprintf("http://signal.test:%d", s.signal.port)).Replace(c.Input)
		}
	}
	s.Server = modeltest.New(o)
	s.url = fmt.Sprintf("https://model.test:%d", s.port)
	front := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v := s.login.Load(); v != nil && r.URL.Path == "/oauth/token" {
			v.ServeHTTP(w, r)
			return
		}
		s.Server.ServeHTTP(w, r)
	})
	srv := &http.Server{Handler: front, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
	go srv.ServeTLS(l, "", "")
	t.Cleanup(func() { srv.Close() })
	ns := testenv.Names(t, map[string]string{"model.test.": "127.0.0.1", "signal.test.": "127.0.0.1"})
	s.env = testenv.Start(t, testenv.Config{
		DNS: ns.Addr, Flags: append([]string{"--roots", roots}, flags...),
		OperatorPolicy: fmt.Sprintf("version: 1\nprivate:\n  - {host: model.test, ports: [%d]}\n  - {host: signal.test, ports: [%d]}\n", s.port, s.signal.port),
	})
	s.keep(t, "anthropic", modelKey, "model.test")
	return s
}

// keep puts a key into the vault, by the standard input.
func (s *scripted) keep(t *testing.T, name, key, host string) {
	t.Helper()
	cmd := s.env.Command("credential", "add", name, "--header", "X-Api-Key", "--host", host, "--port", fmt.Sprint(s.port))
	cmd.Stdin = strings.NewReader(key)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
}

func (s *scripted) loop() api.Agent { return api.Agent{Name: "loop", ModelURL: s.url} }

// event waits for an event of the agent that is as wanted.
func (s *scripted) event(t *testing.T, id string, wanted func(api.AgentEvent) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.env.Client.WatchTask(ctx, id, 0, func(ev api.Event) error {
		var e api.AgentEvent
		if ev.Type == "agent" && json.Unmarshal(ev.Data, &e) == nil && wanted(e) {
			return errReached
		}
		return nil
	})
	if err != errReached {
		t.Fatalf("waiting for an event of the agent: %v", err)
	}
}

// nowhere fails the test when the text lies in a file of the installation: its
// database, logs, outputs, sandboxes.
func nowhere(t *testing.T, e *testenv.Env, text string) {
	t.Helper()
	looked := 0
	err := filepath.WalkDir(e.Data, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.Contains(name, "/images/") {
			return nil // what goes while it is looked at
		}
		info, err := d.Info()
		if err != nil || info.Size() > 64<<20 {
			return nil
		}
		b, err := os.ReadFile(name)
		if err == nil && bytes.Contains(b, []byte(text)) {
			t.Errorf("%s holds the key", name)
		}
		looked++
		return nil
	})
	if err != nil || looked < 10 {
		t.Errorf("looked at %d files, %v", looked, err)
	}
}

// The loop mends a repository through a real sandbox and the real way out, while
// cofferdamd is killed in the middle of a call and in the middle of a turn. Each
// command runs once, and only the model's server sees the key.
func TestLoopSurvivesKills(t *testing.T) {
	gate := make(chan struct{})
	s := startScripted(t, modeltest.Options{Key: modelKey, Gate: gate, Steps: []modeltest.Step{
		{Text: "I look around.", Calls: []modeltest.ToolCall{
			{Name: "shell", Input: `{"command":"echo ran >> ran; env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'; curl -s SIGNAL/began; until curl -sf SIGNAL/go; do sleep 0.1; done"}`},
			{Name: "read", Input: `{"path":"answer.txt"}`},
		}},
		{Calls: []modeltest.ToolCall{{Name: "edit", Input: `{"path":"answer.txt","old":"41","new":"42"}`}}},
		{Calls: []modeltest.ToolCall{{Name: "shell", Input: `{"command":"curl -sk -m 20 -o /dev/null -w '%{http_code}' https://model.test:PORT/v1/messages || echo refused"}`}}},
		{Text: "Done."},
	}})
	e := s.env
	before := e.Census()
	policy := fmt.Sprintf("version: 1\nagent: {network: {allow: [{host: signal.test, ports: [%d]}]}}\n", s.signal.port)
	id := submit(t, e, api.TaskRequest{Policy: policy, Prompt: "mend it", Repo: bundle(t, e, small(t)), Agent: s.loop(), Verify: "./check.sh && test \"$(cat ran)\" = ran"}).ID
	gate <- struct{}{}

	// In the middle of a call: its command runs, and goes on without us.
	s.event(t, id, func(ev api.AgentEvent) bool { return ev.Type == "call" && ev.Call == "1/1" })
	testenv.Until(t, patience, "the call's command to run", func() bool { return s.signal.began.Load() > 0 })
	old := e.Kill("cofferdamd")
	e.Reborn("cofferdamd", old)
	s.signal.open.Store(true)

	// In the middle of a turn: the request has arrived, the answer is not there.
	testenv.Until(t, patience, "the second turn to be asked", func() bool { return s.Asked() >= 2 })
	old = e.Kill("cofferdamd")
	e.Reborn("cofferdamd", old)
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case gate <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	got := e.WaitTask(id, patience)
	must(t, e, got, api.Succeeded, "")
	checkLoop(t, s, got)
	e.Unchanged(before)
}

// checkLoop looks at what a run of the loop left.
func checkLoop(t *testing.T, s *scripted, got api.Task) {
	t.Helper()
	e := s.env
	if n := s.signal.began.Load(); n != 1 {
		t.Errorf("the call's command began %d times", n)
	}
	patch := string(output(t, e, got.ID, "patch"))
	if !strings.Contains(patch, "+42") || strings.Count(patch, "+ran\n") != 1 {
		t.Errorf("the patch is\n%s", patch)
	}
	seen := s.Seen()
	answered := 0
	for _, q := range seen {
		if q.Key != modelKey {
			t.Errorf("the server saw the key %q", q.Key)
		}
		if bytes.Contains(q.Body, []byte(modelKey)) {
			t.Error("a request's body holds the key")
		}
		if q.Status == http.StatusOK {
			answered++
		}
	}
	// The turn that was cut off is asked again; nothing else is.
	if answered < 4 || s.Asked() > 6 || got.Usage.Model.Requests < int64(4) || got.Usage.Model.Input == 0 {
		t.Errorf("%d answers to %d questions, usage %+v", answered, s.Asked(), got.Usage.Model)
	}
	text := log(t, e, got.ID, "agent")
	if !strings.Contains(text, "I look around.\n> shell ") || strings.Contains(text, modelKey) || strings.Contains(text, "placeholder") {
		t.Errorf("the log is\n%s", text)
	}
	if out, err := e.CLI("task", "logs", got.ID); err != nil || !strings.Contains(out, "> edit ") || !strings.Contains(out, "= ended") {
		t.Errorf("task logs: %v\n%s", err, out)
	}
	nowhere(t, e, modelKey)
	records, err := e.Client.Egress(context.Background(), got.ID)
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, r := range records {
		if strings.HasSuffix(r.Sandbox, "/loop") && r.Verdict == "allowed" && r.Name == "model.test" && !r.Done {
			asked++
		}
		if !strings.HasSuffix(r.Sandbox, "/loop") && r.Verdict == "allowed" && r.Name != "signal.test" {
			t.Errorf("the sandbox reached %+v", r)
		}
	}
	if asked < 4 {
		t.Errorf("%d of the loop's requests are on record: %+v", asked, records)
	}
}

// Each way a model fails has its code, and the key's absence or ruin as well.
func TestLoopEndings(t *testing.T) {
	s := startScripted(t, modeltest.Options{Key: modelKey, Steps: []modeltest.Step{
		{Calls: []modeltest.ToolCall{{Name: "shell", Input: `{"command":"rm -rf /workspace/.git /workspace/* "}`}}}, {Text: "All gone."},
	}})
	s.keep(t, "wrong", "sk-ant-api03-WRONG", "model.test")
	s.keep(t, "elsewhere", modelKey, "elsewhere.test")
	source := bundle(t, s.env, small(t))
	for name, c := range map[string]struct {
		agent  func(*api.Agent)
		reason string
	}{
		"workspace deleted": {func(*api.Agent) {}, "export.workspace"},
		"wrong key":         {func(a *api.Agent) { a.Credential = "wrong" }, "agent.model_refused"},
		"too few turns":     {func(a *api.Agent) { a.MaxTurns = 1 }, "limit.turns"},
	} {
		t.Run(name, func(t *testing.T) {
			agent := s.loop()
			c.agent(&agent)
			created := submit(t, s.env, api.TaskRequest{Repo: source, Agent: agent})
			got := s.env.WaitTask(created.ID, patience)
			must(t, s.env, got, api.Failed, c.reason)
		})
	}
	// What can be known before is refused before.
	for credential, want := range map[string]string{"elsewhere": "input.policy", "absent": "policy.credential"} {
		agent := s.loop()
		agent.Credential = credential
		_, _, err := s.env.Client.CreateTask(context.Background(), api.TaskRequest{Repo: source, Agent: agent}, "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the credential %q: %v", credential, err)
		}
	}
}

// mustTask returns the task as it stands.
func mustTask(t *testing.T, e *testenv.Env, id string) api.Task {
	t.Helper()
	got, err := e.Client.Task(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	return got
}
