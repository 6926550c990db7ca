package loop_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/agent/loop"
	"github.com/cofferdam/cofferdam/internal/agent/loop/anthropic"
	"github.com/cofferdam/cofferdam/internal/agent/loop/openai"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	taskID      = "t-aaaaaaaaaaaaaaaa"
	placeholder = "sk-ant-placeholder-for-tests"
	realKey     = "sk-ant-the-real-one"
)

// errCut is the cause of a run that is cut off, as a kill would.
var errCut = errors.New("cut off")

// rig is everything around a loop: a scripted model's server, a sandbox that is
// a folder, and the record in memory. Each effect can be the one at which the
// run is cut off, before it happens or after.
type rig struct {
	t      *testing.T
	server *modeltest.Server
	http   *httptest.Server
	dir    string // holds workspace/ and tmp/

	mu      sync.Mutex
	turns   map[int]stage.Turn
	calls   map[[2]int]stage.Call
	events  map[string]task.AgentEvent
	order   []string
	egress  []task.EgressRecord
	audit   []string
	started map[string]int // by command
	ended   map[string]ran
	adopted []string
	log     bytes.Buffer
	slept   []time.Duration

	effects int
	cutAt   int // effect number at which to cut; 0: never
	after   bool
	cut     context.CancelCauseFunc

	agent   task.AgentSpec
	prompt  string
	options loop.Options
	until   time.Time
	lease   bool
	inject  bool
	gate    stage.ToolGate // nil: all tools are allowed
}

type ran struct {
	out    []byte
	status sandbox.Status
}

func newRig(t *testing.T, o modeltest.Options) *rig {
	r := &rig{
		t: t, dir: t.TempDir(), turns: map[int]stage.Turn{}, calls: map[[2]int]stage.Call{}, events: map[string]task.AgentEvent{},
		started: map[string]int{}, ended: map[string]ran{}, prompt: "mend it", until: time.Now().Add(time.Hour), lease: true, inject: true,
	}
	if o.Key == "" {
		o.Key = realKey
	}
	r.server = modeltest.New(o)
	r.http = httptest.NewTLSServer(r.server)
	t.Cleanup(r.http.Close)
	r.agent = task.AgentSpec{Name: "loop", ModelURL: r.http.URL}
	for _, d := range []string{"workspace", "tmp"} {
		if err := os.Mkdir(filepath.Join(r.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r.options = loop.Options{
		Turns: r, Facts: r, Audit: r, Transport: r.transport,
		Models: map[string]func(loop.Endpoint) loop.Model{"anthropic": anthropic.New, "openai": openai.New},
		Sleep: func(ctx context.Context, d time.Duration) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.slept = append(r.slept, d)
			return ctx.Err()
		},
	}
	return r
}

// openAI makes the rig speak the other protocol.
func (r *rig) openAI() *rig {
	r.agent.Provider, r.agent.ModelURL = "openai", r.http.URL+"/v1"
	return r
}

// effect counts one effect and cuts the run off at the one that was chosen.
func (r *rig) effect(do func() error) error {
	r.mu.Lock()
	r.effects++
	here := r.effects == r.cutAt
	cut := r.cut
	r.mu.Unlock()
	if here && !r.after {
		cut(errCut)
		return errCut
	}
	err := do()
	if here {
		cut(errCut)
		return errCut
	}
	return err
}

// transport puts the real key in, as the one of the product does.
func (r *rig) transport(_ task.Grant, record func(task.EgressRecord) error) (loop.Transport, error) {
	return &way{r: r, record: record, next: r.http.Client().Transport}, nil
}

type way struct {
	r      *rig
	record func(task.EgressRecord) error
	next   http.RoundTripper
}

func (w *way) Close() {}

func (w *way) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	if err := w.record(task.EgressRecord{Name: req.URL.Hostname(), Verdict: "allowed"}); err != nil {
		return nil, err
	}
	out := req.Clone(req.Context())
	for _, name := range []string{"X-Api-Key", "Authorization"} {
		if v := out.Header.Get(name); strings.Contains(v, placeholder) && w.r.inject {
			out.Header.Set(name, strings.Replace(v, placeholder, realKey, 1))
		}
	}
	return w.next.RoundTrip(out)
}

func (r *rig) job() stage.LoopJob {
	g := task.Grant{Task: taskID, Sandbox: "sb-aaaaaaaaaaaaaaaa"}
	if r.lease {
		p, _ := r.agent.ProviderOf()
		g.Leases = []task.Lease{
			{Credential: "other", Header: "X-Other", Placeholder: "other-placeholder"},
			{Credential: p.Name, Header: p.Header, Prefix: p.Prefix, Placeholder: placeholder},
		}
	}
	return stage.LoopJob{
		Task: taskID, Attempt: 1, Agent: r.agent, Prompt: r.prompt, Repo: "demo", Commit: strings.Repeat("a", 40), Until: r.until,
		Grant: g, Hands: r, Gate: r.gate, Log: &skipping{r: r},
	}
}

// skipping is the stage's log: what a repeated run writes again is skipped.
type skipping struct {
	r    *rig
	seen int
}

func (s *skipping) Write(b []byte) (int, error) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if skip := min(s.r.log.Len()-s.seen, len(b)); skip > 0 {
		if !bytes.Equal(s.r.log.Bytes()[s.seen:s.seen+skip], b[:skip]) {
			s.r.t.Errorf("a repeated run writes %q where %q stands", b[:skip], s.r.log.Bytes()[s.seen:s.seen+skip])
		}
		s.seen += skip
		s.r.log.Write(b[skip:])
		s.seen += len(b) - skip
		return len(b), nil
	}
	s.seen += len(b)
	return s.r.log.Write(b)
}

// run runs the loop once.
func (r *rig) run() error {
	r.t.Helper()
	ctx, cut := context.WithCancelCause(r.t.Context())
	defer cut(nil)
	r.mu.Lock()
	r.cut = cut
	r.mu.Unlock()
	return loop.New(r.options).Run(ctx, r.job())
}

func (r *rig) fails(err error, reason task.Reason, text string) {
	r.t.Helper()
	var f *task.Failure
	if !errors.As(err, &f) || f.Reason != reason || !strings.Contains(f.Text, text) {
		r.t.Errorf("got %v, want %s with %q", err, reason, text)
	}
}

// The journal.

func (r *rig) Turns(context.Context, string, int) ([]stage.Turn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []stage.Turn
	for n := 1; n <= len(r.turns); n++ {
		t := r.turns[n]
		for i := 1; ; i++ {
			c, ok := r.calls[[2]int{n, i}]
			if !ok {
				break
			}
			t.Calls = append(t.Calls, c)
		}
		out = append(out, t)
	}
	return out, nil
}

func (r *rig) SetTurn(_ context.Context, _ string, _ int, t stage.Turn) error {
	return r.effect(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.turns[t.Number].State != stage.TurnAnswered {
			r.turns[t.Number] = t
		}
		return nil
	})
}

func (r *rig) SetCall(_ context.Context, _ string, _, turn int, c stage.Call) error {
	return r.effect(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.calls[[2]int{turn, c.Number}].State != stage.CallDone {
			r.calls[[2]int{turn, c.Number}] = c
		}
		return nil
	})
}

// The record.

func (r *rig) AddAgentEvent(_ context.Context, _, key string, e task.AgentEvent) error {
	return r.effect(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.events[key]; !ok {
			r.events[key] = e
			r.order = append(r.order, e.Type)
		}
		return nil
	})
}

func (r *rig) Egress(context.Context, string) ([]task.EgressRecord, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.egress), nil
}

func (r *rig) AddEgress(_ context.Context, _ string, records []task.EgressRecord) error {
	return r.effect(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.egress = append(r.egress, records...)
		return nil
	})
}

func (r *rig) Record(_ context.Context, _, key, _, _ string, _ any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.audit, key) {
		r.audit = append(r.audit, key)
	}
	return nil
}

// The sandbox.

func (r *rig) Adopt(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adopted = append(r.adopted, id)
}

func (r *rig) mapped(s string) string {
	return strings.NewReplacer("/workspace", r.dir+"/workspace", "/tmp/cofferdam", r.dir+"/tmp/cofferdam").Replace(s)
}

func (r *rig) Run(ctx context.Context, cmd sandbox.Command, out io.Writer) (stage.Result, error) {
	if !sandbox.ValidCommandID(cmd.ID) {
		r.t.Errorf("command id %q", cmd.ID)
	}
	err := r.effect(func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.ended[cmd.ID]; ok {
			return nil
		}
		r.started[cmd.ID]++
		r.ended[cmd.ID] = r.execute(ctx, cmd)
		return nil
	})
	if err != nil {
		return stage.Result{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err = out.Write(r.ended[cmd.ID].out)
	return stage.Result{Status: r.ended[cmd.ID].status, EpochBefore: "a", EpochAfter: "a"}, err
}

func (r *rig) execute(ctx context.Context, cmd sandbox.Command) ran {
	argv := make([]string, len(cmd.Argv))
	for i, a := range cmd.Argv {
		argv[i] = r.mapped(a)
	}
	ctx, cancel := context.WithTimeout(ctx, cmd.Timeout)
	defer cancel()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir = filepath.Join(r.dir, "workspace")
	c.Env = append([]string{"PATH=" + os.Getenv("PATH")}, cmd.Env...)
	c.WaitDelay = time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	out, err := c.CombinedOutput()
	// What it says is what it would say inside.
	out = bytes.ReplaceAll(out, []byte(r.dir), nil)
	s := sandbox.Status{ID: cmd.ID, Phase: sandbox.CommandExited, ExitCode: c.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		s.ExitCode, s.Signal, s.TimedOut, s.Reason = -1, 9, true, task.LimitTime
	} else if err != nil && s.ExitCode < 0 {
		s.Signal = 9
	}
	return ran{out, s}
}

func (r *rig) Put(_ context.Context, dir string, from io.Reader) error {
	return r.effect(func() error {
		archive := tar.NewReader(from)
		h, err := archive.Next()
		if err != nil {
			return err
		}
		b, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		dir := r.mapped(dir)
		return errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, h.Name), b, 0o600))
	})
}

func (r *rig) file(name string) string {
	b, err := os.ReadFile(filepath.Join(r.dir, "workspace", name))
	if err != nil {
		return "absent"
	}
	return string(b)
}

func (r *rig) put(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "workspace", name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// call is a step with one call.
func call(tool, format string, args ...any) modeltest.Step {
	return modeltest.Step{Calls: []modeltest.ToolCall{{Name: tool, Input: fmt.Sprintf(format, args...)}}}
}

// told are the results of a turn's calls.
func (r *rig) told(turn int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for i := 1; ; i++ {
		c, ok := r.calls[[2]int{turn, i}]
		if !ok {
			return strings.Join(out, "\n--\n")
		}
		text := c.Result
		if c.Failed {
			text = "failed: " + text
		}
		out = append(out, text)
	}
}
