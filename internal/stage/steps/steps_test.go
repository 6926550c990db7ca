package steps

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

const simpleRepo = `
printf 'broken\n' > answer; mkdir sub; printf 'x\n' > sub/keep; printf 'old\n' > gone
git add . && git commit -qm one && git tag v1
git checkout -q -b other && printf 'other\n' > answer && git commit -qam two && git checkout -q main`

func start(t *testing.T, spec task.Spec) *house {
	t.Helper()
	h := newHouse(t, spec)
	if h.task.Spec.Repo.Bundle == "" && h.task.Spec.Repo.URL == "" {
		h.task.Spec.Repo.Bundle = h.repository(simpleRepo)
	}
	return h
}

func succeeds(t *testing.T, o stage.Outcome) {
	t.Helper()
	if o.State != task.StageSucceeded && o.State != task.StageSkipped {
		t.Fatalf("outcome %+v", o)
	}
}

func TestWholeTask(t *testing.T) {
	h := start(t, task.Spec{
		Prompt: "fix it", Agent: shell(`printf 'fixed %s\n' "$COFFERDAM_PROMPT" > answer; rm gone; mkdir new; echo n > new/file; echo done`),
		Setup: "echo setting up", Verify: "grep -q 'fixed fix it' answer && test -f new/file && ! test -e gone && echo verified",
	})
	succeeds(t, h.through(task.Act, 1))
	patch := h.bytes("patch")
	for _, want := range []string{"-broken", "+fixed fix it", "deleted file", "new/file"} {
		if !strings.Contains(patch, want) {
			t.Errorf("the patch lacks %q:\n%s", want, patch)
		}
	}
	if got := h.bytes("log.agent"); got != "done\n" {
		t.Errorf("log.agent is %q", got)
	}
	if got := h.bytes("log.verify"); got != "setting up\nverified\n" {
		t.Errorf("log.verify is %q", got)
	}
	if got := h.bytes("report"); !strings.Contains(got, `"exitCode":0`) {
		t.Errorf("report is %s", got)
	}
	rows := map[task.StageName]task.Stage{}
	for _, row := range h.task.Stages {
		rows[row.Name] = row
	}
	if rows[task.Agent].Sandbox == rows[task.Verify].Sandbox || rows[task.Verify].Sandbox == "" {
		t.Errorf("agent ran in %q, verify in %q", rows[task.Agent].Sandbox, rows[task.Verify].Sandbox)
	}
	if got := h.machine.alive(); len(got) != 1 || got[0] != h.box(stage.RoleAgent) {
		t.Errorf("export and verify left sandboxes: %v", got)
	}
	in := stage.Input{Task: taskID, Attempt: 1, Round: 1}
	if err := h.work.Sweep(t.Context(), taskID); err != nil {
		t.Fatal(err)
	}
	if err := h.work.Finish(t.Context(), in, stage.Ending{State: task.Succeeded}, false); err != nil {
		t.Fatal(err)
	}
	if h.task.State != task.Succeeded || h.receipt != 1 || len(h.machine.alive()) != 0 {
		t.Errorf("state %s, %d receipts, sandboxes %v", h.task.State, h.receipt, h.machine.alive())
	}
	if err := h.work.Finish(t.Context(), in, stage.Ending{State: task.Failed}, false); err != nil || h.task.State != task.Succeeded {
		t.Errorf("a repeated end changed the task: %v, %s", err, h.task.State)
	}
}

// What the agent leaves anywhere but in the workspace is no fix.
func TestFixOutsideTheWorkspaceFailsVerification(t *testing.T) {
	for name, c := range map[string]struct{ agent, verify string }{
		"HOME":   {`echo ok > "$HOME/fix"`, `test -f "$HOME/fix"`},
		"tmp":    {`echo ok > "$T/fix"`, `test -f "$T/fix"`},
		"cache":  {`mkdir -p "$HOME/go/pkg/mod" && echo ok > "$HOME/go/pkg/mod/fix"`, `test -f "$HOME/go/pkg/mod/fix"`},
		"git":    {`echo ok > .git/fix; git config fixed.by me`, `test -f .git/fix || git config fixed.by`},
		"nested": {`mkdir -p a/.git && echo ok > a/.git/fix && echo a > a/b`, `test -f a/b && test -f a/.git/fix`},
		"commit": {`echo ok > f && git add f && git commit -qm f && git reset -q --hard HEAD~1`, `git cat-file -e "$(git rev-list --all --objects | grep ' f$' | cut -d' ' -f1)"`},
		"hook":   {`printf '#!/bin/sh\necho fixed > answer\n' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout`, `grep fixed answer`},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, task.Spec{Agent: shell(c.agent), Verify: c.verify})
			fails(t, h.through(task.Act, 1), task.VerifyFailed, "the verify command exited with")
		})
	}
}

func TestCheckoutFindsRefs(t *testing.T) {
	h := newHouse(t, task.Spec{})
	bundle := h.repository(simpleRepo)
	for _, c := range []struct{ ref, answer string }{
		{"", "broken"}, {"main", "broken"}, {"other", "other"}, {"v1", "broken"}, {"refs/tags/v1", "broken"}, {"no-such", ""}, {"--help", ""},
	} {
		bytes := h.blobs[bundle]
		h := newHouse(t, task.Spec{Agent: shell("cat answer"), Repo: task.Repo{Bundle: bundle, Ref: c.ref}})
		h.blobs[bundle] = bytes
		o := h.through(task.Agent, 1)
		if c.answer == "" {
			fails(t, o, task.CheckoutFailed, c.ref)
			continue
		}
		succeeds(t, o)
		if got := h.bytes("log.agent"); got != c.answer+"\n" {
			t.Errorf("ref %q: answer %q", c.ref, got)
		}
	}
}

func TestFailuresAreNamed(t *testing.T) {
	ok := shell("true")
	for name, c := range map[string]struct {
		spec task.Spec
		want task.Reason
		text string
	}{
		"agent":   {task.Spec{Agent: shell("exit 7")}, task.AgentFailed, "exited with 7"},
		"killed":  {task.Spec{Agent: shell("kill -9 $$")}, task.AgentFailed, "signal 9"},
		"missing": {task.Spec{Agent: task.AgentSpec{Name: "command", Argv: []string{"/no/such"}}}, task.AgentFailed, "could not be started"},
		"setup":   {task.Spec{Agent: ok, Setup: "exit 3"}, task.SetupFailed, "exited with 3"},
		"verify":  {task.Spec{Agent: ok, Verify: "exit 4"}, task.VerifyFailed, "exited with 4"},
		"name":    {task.Spec{Agent: task.AgentSpec{Name: "other"}}, task.InputInvalid, "agent.name"},
		"prompt":  {task.Spec{Agent: ok, Prompt: strings.Repeat("x", maxPrompt+1)}, task.InputInvalid, "prompt"},
		"repo":    {task.Spec{Agent: ok, Repo: task.Repo{URL: "https://127.0.0.1:1/none"}}, task.CheckoutFailed, "exited with 128"},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, c.spec)
			fails(t, h.through(task.Act, 1), c.want, c.text)
		})
	}
}

func TestEmptyPatch(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("true"), Verify: "grep broken answer"})
	succeeds(t, h.through(task.Act, 1))
	for _, o := range h.task.Outputs {
		if o.Name == "patch" && (o.Size != 0 || len(o.Flags) != 1 || o.Flags[0] != "empty") {
			t.Errorf("patch %+v", o)
		}
	}
}

// A run that is cut off is taken up again: one process, one effect, one log.
func TestRepeatedRunStartsOnce(t *testing.T) {
	h := start(t, task.Spec{Agent: shell(`echo effect >> "$HOME/effects"; echo one; while ! test -f "$HOME/go"; do sleep 0.01; done; echo two`)})
	succeeds(t, h.through(task.Setup, 1))
	in := stage.Input{Task: taskID, Attempt: 1, Round: 1}
	for range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		h.machine.onRun = func(string, string) error {
			time.AfterFunc(20*time.Millisecond, func() { cancel(ErrStopping) })
			return nil
		}
		if _, err := h.work.Do(ctx, task.Agent, in); err == nil {
			t.Fatal("a run that was cut off has an outcome")
		}
	}
	h.machine.onRun = nil
	if _, err := h.work.Sandboxes.Run(t.Context(), h.box(stage.RoleAgent), cmd("go", `touch "$HOME/go"`), 0, discard{}, func() {}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		succeeds(t, h.do(task.Agent, 1))
	}
	if got := h.bytes("log.agent"); got != "one\ntwo\n" {
		t.Errorf("log is %q", got)
	}
	if n := h.machine.starts[h.box(stage.RoleAgent)+"/agent"]; n != 1 {
		t.Errorf("the agent was started %d times", n)
	}
}

// Every run of every stage is cut off once and then done: the task ends as if
// nothing had happened.
func TestEveryStageSurvivesACut(t *testing.T) {
	h := start(t, task.Spec{
		Agent: shell(`echo fixed > answer; echo x >> count`), Setup: "echo setup > ignored-not; echo s",
		Verify: "grep fixed answer && test $(wc -l < count) = 1",
	})
	for _, name := range task.StageNames()[:8] {
		for cut := 1; cut < 8; cut++ {
			ctx, cancel := context.WithCancelCause(t.Context())
			calls := 0
			h.machine.onRun = func(string, string) error {
				if calls++; calls >= cut {
					cancel(ErrStopping)
					return ctx.Err()
				}
				return nil
			}
			_, err := h.work.Do(ctx, name, stage.Input{Task: taskID, Attempt: 1, Round: 1})
			cancel(nil)
			if err == nil {
				break // the stage has fewer commands than that
			}
		}
		h.machine.onRun = nil
		succeeds(t, h.do(name, 1))
	}
	if got := h.bytes("log.verify"); got != "s\nfixed\n" {
		t.Errorf("log.verify is %q", got)
	}
}

func TestCancelKillsTheCommand(t *testing.T) {
	h := start(t, task.Spec{Agent: shell(`while :; do sleep 0.01; done`)})
	succeeds(t, h.through(task.Setup, 1))
	ctx, cancel := context.WithCancel(t.Context())
	h.machine.onRun = func(_, command string) error {
		if command == "agent" {
			time.AfterFunc(20*time.Millisecond, cancel)
		}
		return nil
	}
	o, err := h.work.Do(ctx, task.Agent, stage.Input{Task: taskID, Attempt: 1, Round: 1})
	if err != nil || o.State != task.StageCancelled || o.Reason != task.Cancelled {
		t.Fatalf("outcome %+v, %v", o, err)
	}
	select {
	case <-h.machine.live[h.box(stage.RoleAgent)].commands["agent"].done:
	default:
		t.Fatal("the agent still runs")
	}
}

func cmd(id, line string) sandbox.Command {
	return sandbox.Command{ID: id, Argv: []string{"sh", "-c", line}}
}
