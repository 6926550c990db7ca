package server

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

func (s *site) newSandbox(t *testing.T, user string) api.Sandbox {
	t.Helper()
	sb, err := s.as(t, user).CreateSandbox(t.Context(), api.SandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

func TestCreateSandbox(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	alice := s.as(t, "alice")
	none := s.newSandbox(t, "alice")
	if none.Network || none.Owner != "alice" || none.State != "live" || none.Role != "manual" || none.ExpiresAt == nil || none.Worker != "w1" {
		t.Errorf("%+v", none)
	}
	if _, ok := s.fleet.grants[none.ID]; ok {
		t.Error("a sandbox without rules has a grant")
	}
	req := api.SandboxRequest{ID: "sb-abcdefghijklmnop", Policy: "allow example.com", Limits: &api.Limits{Memory: 1 << 30, Disk: 99 << 40, TimeSeconds: 60}, ExpireSeconds: 60}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if sb, err := alice.CreateSandbox(ctx, req); err != nil || sb.ID != req.ID || !sb.Network {
				t.Errorf("%+v %v", sb, err)
			}
		})
	}
	wg.Wait()
	g := s.fleet.grants[req.ID]
	if len(g.Rules) != 1 || g.Rules[0].Host != "example.com" || g.Stage != task.Agent || g.Task != "" || g.PolicyDigest == "" {
		t.Errorf("%+v", g)
	}
	l := s.fleet.boxes[req.ID].Limits
	if l.Memory != 1<<30 || l.Disk != task.DefaultLimits().Disk || l.Time != time.Minute || l.PIDs != task.DefaultLimits().PIDs {
		t.Errorf("limits %+v", l)
	}
	other := req
	other.Policy = "allow evil.example"
	if _, err := alice.CreateSandbox(ctx, other); code(err) != "input.conflict" {
		t.Errorf("another policy under the id: %v", err)
	}
	if _, err := s.as(t, "bob").CreateSandbox(ctx, req); code(err) != "input.conflict" {
		t.Errorf("another's id: %v", err)
	}
	if s.fleet.grants[req.ID].Rules[0].Host != "example.com" {
		t.Error("the grant changed")
	}
	for _, bad := range []api.SandboxRequest{{ID: "sb-../../etc"}, {ID: "x"}, {Limits: &api.Limits{Memory: -1}}, {ExpireSeconds: -1}} {
		if _, err := alice.CreateSandbox(ctx, bad); code(err) != "input.invalid" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := alice.CreateSandbox(ctx, api.SandboxRequest{Policy: "allow a\nbad"}); code(err) != "input.policy" || !strings.Contains(err.Error(), "line 2") {
		t.Error(err)
	}
	if err := alice.RemoveSandbox(ctx, req.ID); err != nil {
		t.Error(err)
	}
	if err := alice.RemoveSandbox(ctx, req.ID); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := alice.Sandbox(ctx, req.ID); code(err) != "input.not_found" {
		t.Error(err)
	}
}

// A task's sandbox may be looked at by who asked for the task, and touched by
// nobody.
func TestTaskSandboxIsNotTouched(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	tk := s.newTask(t, "alice")
	id := "sb-tttttttttttttttt"
	if _, _, err := s.fleet.Create(ctx, sandbox.Spec{ID: id, Task: tk.ID, Role: "agent"}); err != nil {
		t.Fatal(err)
	}
	s.boxes[id] = tk.ID
	if sb, err := s.as(t, "alice").Sandbox(ctx, id); err != nil || sb.Task != tk.ID || sb.Owner != "alice" {
		t.Errorf("%+v %v", sb, err)
	}
	if _, err := s.as(t, "bob").Sandbox(ctx, id); code(err) != "input.not_found" {
		t.Error(err)
	}
	for user, want := range map[string]string{"alice": "policy.denied", "admin": "policy.denied", "bob": "input.not_found"} {
		c := s.as(t, user)
		if _, err := c.Exec(ctx, id, api.ExecRequest{Argv: []string{"x"}}); code(err) != want {
			t.Errorf("%s exec: %v", user, err)
		}
		if err := c.RemoveSandbox(ctx, id); code(err) != want {
			t.Errorf("%s remove: %v", user, err)
		}
		if err := c.PutFiles(ctx, id, "/workspace", strings.NewReader("x")); code(err) != want {
			t.Errorf("%s put: %v", user, err)
		}
		if _, err := c.GetFiles(ctx, id, "/workspace"); code(err) != want {
			t.Errorf("%s get: %v", user, err)
		}
	}
	if s.fleet.starts != 0 || len(s.fleet.boxes) != 1 {
		t.Error("a task's sandbox was touched")
	}
}

func TestExecInOneRoundTrip(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	sb := s.newSandbox(t, "alice")
	var seen sandbox.Command
	s.fleet.script = func(j *journal, cmd sandbox.Command) {
		seen = cmd
		j.write(1, "out1 ")
		j.write(1, "out2\n")
		j.write(2, "err \xff\n")
		j.write(1, "end")
		j.end(sandbox.Status{ExitCode: 3})
	}
	req := api.ExecRequest{ID: "c1", Argv: []string{"sh", "-c", "x"}, Dir: "/workspace", Env: map[string]string{"B": "2", "A": "1"}, TimeoutSeconds: 1.5, Wait: true}
	r, err := s.as(t, "alice").Exec(ctx, sb.ID, req)
	if err != nil || !r.Done || r.Command.ExitCode != 3 || !r.Command.Started || len(r.Output) != 3 || r.Next != 19 {
		t.Fatalf("%+v %v", r, err)
	}
	if r.Output[0].Text != "out1 out2\n" || r.Output[1].Base64 == "" || r.Output[2].Text != "end" || r.Output[2].Offset != 16 {
		t.Errorf("%+v", r.Output)
	}
	if b, err := r.Output[1].Bytes(); err != nil || string(b) != "err \xff\n" {
		t.Errorf("%q %v", b, err)
	}
	if seen.Dir != "/workspace" || strings.Join(seen.Env, ",") != "A=1,B=2" || seen.Timeout != 1500*time.Millisecond || seen.User != "" {
		t.Errorf("%+v", seen)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			r, err := s.as(t, "alice").Exec(ctx, sb.ID, req)
			if err != nil || !r.Done || r.Command.Started || len(r.Output) != 3 {
				t.Errorf("%+v %v", r, err)
			}
		})
	}
	wg.Wait()
	if s.fleet.starts != 1 {
		t.Errorf("%d processes", s.fleet.starts)
	}
}

func TestExecBeyondTheInlineBound(t *testing.T) {
	s := newSite(t)
	sb := s.newSandbox(t, "alice")
	line := strings.Repeat("0123456789", 30000)
	s.fleet.script = func(j *journal, _ sandbox.Command) {
		for range 10 {
			j.write(1, line)
			j.write(2, "e")
		}
		j.end(sandbox.Status{})
	}
	r, err := s.as(t, "alice").Exec(t.Context(), sb.ID, api.ExecRequest{ID: "big", Argv: []string{"x"}, Wait: true})
	if err != nil || r.Done || r.Next != inlineOutput {
		t.Fatalf("next %d done %v err %v", r.Next, r.Done, err)
	}
	var out, errs bytes.Buffer
	st, err := s.as(t, "alice").Run(t.Context(), sb.ID, api.ExecRequest{ID: "big", Argv: []string{"x"}}, &out, &errs)
	if err != nil || st.Phase != api.CommandExited || out.String() != strings.Repeat(line, 10) || errs.String() != strings.Repeat("e", 10) {
		t.Errorf("%+v %v: %d and %d bytes", st, err, out.Len(), errs.Len())
	}
}

func TestExecOfASilentCommand(t *testing.T) {
	s := newSite(t)
	s.server.inlineWait = 20 * time.Millisecond
	sb := s.newSandbox(t, "alice")
	req := api.ExecRequest{ID: "quiet", Argv: []string{"sleep"}, Wait: true}
	r, err := s.as(t, "alice").Exec(t.Context(), sb.ID, req)
	if err != nil || r.Done || r.Next != 0 || r.Command.Phase != api.CommandRunning || r.Command.ID != "quiet" {
		t.Fatalf("%+v %v", r, err)
	}
	s.fleet.cmds[sb.ID+"/quiet"].write(1, "some")
	r, err = s.as(t, "alice").Exec(t.Context(), sb.ID, req)
	if err != nil || r.Done || r.Next != 4 || len(r.Output) != 1 || r.Command.Started {
		t.Errorf("%+v %v", r, err)
	}
	s.fleet.cmds[sb.ID+"/quiet"].end(sandbox.Status{})
	if st, err := s.as(t, "alice").Run(t.Context(), sb.ID, req, io.Discard, io.Discard); err != nil || st.Phase != api.CommandExited {
		t.Errorf("%+v %v", st, err)
	}
	if s.fleet.starts != 1 {
		t.Errorf("%d processes", s.fleet.starts)
	}
}

func TestExecRefuses(t *testing.T) {
	s := newSite(t)
	sb := s.newSandbox(t, "alice")
	for _, bad := range []api.ExecRequest{
		{},
		{Argv: []string{""}},
		{Argv: []string{"a\x00b"}},
		{Argv: []string{"a"}, Dir: "relative"},
		{Argv: []string{"a"}, Env: map[string]string{"A=B": "c"}},
		{Argv: []string{"a"}, Env: map[string]string{"": "c"}},
		{Argv: []string{"a"}, ID: "../../x"},
		{Argv: []string{"a"}, TimeoutSeconds: -1},
		{Argv: []string{"a"}, ID: strings.Repeat("a", 129)},
	} {
		if _, err := s.as(t, "alice").Exec(t.Context(), sb.ID, bad); code(err) != "input.invalid" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	// The sandbox's own root is nobody's choice.
	if p := s.problem(t, "alice", http.MethodPost, "/v1/sandboxes/"+sb.ID+"/exec", `{"argv":["id"],"user":"sudo"}`); !strings.Contains(p.Detail, "body.user") {
		t.Errorf("%+v", p)
	}
	if s.fleet.starts != 0 {
		t.Error("something was started")
	}
}

func TestCommandStream(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	sb := s.newSandbox(t, "alice")
	alice := s.as(t, "alice")
	if r, err := alice.Exec(ctx, sb.ID, api.ExecRequest{ID: "c1", Argv: []string{"x"}}); err != nil || r.Done || r.Command.Phase != api.CommandRunning {
		t.Fatalf("%+v %v", r, err)
	}
	j := s.fleet.cmds[sb.ID+"/c1"]
	j.write(1, "hello ")
	var out safeBuffer
	done := make(chan error, 1)
	var st api.CommandStatus
	go func() {
		var err error
		st, err = alice.ExecStream(ctx, sb.ID, "c1", 2, func(f api.Frame) error { _, err := out.Write(f.Data); return err })
		done <- err
	}()
	eventually(t, "the output so far", func() bool { return out.String() == "llo " })
	// Without follow the stream ends although the command goes on.
	_, h, text := s.ask(t, "alice", http.MethodGet, "/v1/sandboxes/"+sb.ID+"/exec/c1/output?offset=1", "")
	frames := api.NewFrameReader(strings.NewReader(text))
	f, err := frames.Next()
	if err != nil || f.Fd != 1 || f.Offset != 1 || string(f.Data) != "ello " || h.Get("Content-Type") != api.FrameType {
		t.Errorf("%+v %v", f, err)
	}
	if f, err = frames.Next(); err != nil || f.Fd != api.FrameStatus {
		t.Errorf("%+v %v", f, err)
	}
	if now, err := f.Status(); err != nil || now.Phase != api.CommandRunning || now.Output != 6 {
		t.Errorf("%+v %v", now, err)
	}
	if _, err = frames.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	j.write(2, "world")
	if err := alice.KillCommand(ctx, sb.ID, "c1"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || out.String() != "llo world" || st.Signal != 9 || st.ExitCode != -1 || st.Phase != api.CommandExited {
		t.Errorf("%q %+v %v", out.String(), st, err)
	}
	if c, err := alice.Command(ctx, sb.ID, "c1"); err != nil || c.Output != 11 {
		t.Errorf("%+v %v", c, err)
	}
	if _, err := alice.Command(ctx, sb.ID, "c2"); code(err) != "input.not_found" {
		t.Error(err)
	}
	if _, err := alice.ExecStream(ctx, sb.ID, "c1", 12, nil); code(err) != "input.invalid" {
		t.Error(err)
	}
}

func TestFiles(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	sb := s.newSandbox(t, "alice")
	alice := s.as(t, "alice")
	big := bytes.Repeat([]byte("tar"), 1<<20)
	if err := alice.PutFiles(ctx, sb.ID, "/workspace/a b", bytes.NewReader(big)); err != nil {
		t.Fatal(err)
	}
	r, err := alice.GetFiles(ctx, sb.ID, "/workspace/a b")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	r.Close()
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for _, bad := range []string{"", "relative", "/a/../../etc", "/a\x00b"} {
		if err := alice.PutFiles(ctx, sb.ID, bad, strings.NewReader("x")); code(err) != "input.invalid" {
			t.Errorf("put %q: %v", bad, err)
		}
		if _, err := alice.GetFiles(ctx, sb.ID, bad); code(err) != "input.invalid" {
			t.Errorf("get %q: %v", bad, err)
		}
	}
}

func TestFleetFailuresKeepTheirCode(t *testing.T) {
	s := newSite(t)
	for reason, status := range map[task.Reason]int{task.InfraWorkerLost: 503, task.InfraSandboxCreate: 500, task.LimitMemory: 409, task.InfraSandboxLost: 410} {
		s.fleet.fail = task.Fail(reason, "what happened", errors.New("hunter2"))
		p := s.problem(t, "alice", http.MethodPost, "/v1/sandboxes", `{}`)
		if p.Status != status || p.Code != string(reason) || p.Detail != "what happened" {
			t.Errorf("%s: %+v", reason, p)
		}
	}
}

// BenchmarkExec is the API's own share of an exec round trip.
func BenchmarkExec(b *testing.B) {
	s := newSite(b)
	s.fleet.script = func(j *journal, _ sandbox.Command) {
		j.write(1, "hello\n")
		j.end(sandbox.Status{})
	}
	c := s.as(b, "alice")
	sb, err := c.CreateSandbox(b.Context(), api.SandboxRequest{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		r, err := c.Exec(b.Context(), sb.ID, api.ExecRequest{Argv: []string{"true"}, Wait: true})
		if err != nil || !r.Done {
			b.Fatal(r, err)
		}
	}
}
