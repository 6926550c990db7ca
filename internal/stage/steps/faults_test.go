package steps

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/tree"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestFaultsOfTheInfrastructurePassThrough(t *testing.T) {
	for _, reason := range []task.Reason{task.InfraSandboxLost, task.InfraWorkerLost, task.LimitMemory, task.LimitTime} {
		h := start(t, task.Spec{Agent: shell("true")})
		succeeds(t, h.through(task.Setup, 1))
		h.machine.onRun = func(string, string) error { return task.Fail(reason, "it happened", nil) }
		fails(t, h.do(task.Agent, 1), reason, "it happened")
	}
	h := start(t, task.Spec{Agent: shell("true")})
	succeeds(t, h.through(task.Setup, 1))
	h.machine.onRun = func(string, string) error { return task.Fail(task.InputNotFound, "no worker has it", nil) }
	fails(t, h.do(task.Agent, 1), task.InfraSandboxLost, "the sandbox is gone")
	h = start(t, task.Spec{Agent: shell("true")})
	succeeds(t, h.through(task.Setup, 1))
	h.machine.onRun = func(string, string) error { return errors.New("secret internals") }
	o := h.do(task.Agent, 1)
	fails(t, o, task.InfraInternal, "")
	if strings.Contains(o.Text, "internals") {
		t.Errorf("the text tells internals: %q", o.Text)
	}
}

func TestGatewayRestartIsNotTheAgentsFault(t *testing.T) {
	rule := []task.Rule{{ID: "a", Host: "a.test", Ports: []uint16{443}}}
	for _, network := range []bool{true, false} {
		h := start(t, task.Spec{Agent: shell("exit 1")})
		if network {
			h.plan.plan.Rules = map[task.StageName][]task.Rule{task.Agent: rule}
		}
		succeeds(t, h.through(task.Setup, 1))
		h.machine.onRun = func(string, string) error { return nil }
		restarted := false
		h.machine.onRun = func(_, command string) error {
			if command == "agent" {
				restarted = true
			}
			return nil
		}
		h.task.Spec.Agent = shell(`while ! test -f "$HOME/../go"; do sleep 0.01; done; exit 1`)
		done := make(chan stage.Outcome)
		go func() { done <- h.do(task.Agent, 1) }()
		h.machine.restartGateway(h.box(stage.RoleAgent))
		o := <-done
		want := task.AgentFailed
		if network {
			want = task.InfraEgressRestarted
		}
		if !restarted || o.Reason != want {
			t.Errorf("network %t: outcome %+v, want %s", network, o, want)
		}
	}
}

// Each stage has its own grant and leaves none behind.
func TestGrantsEndWithTheirStage(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("true"), Setup: "true", Verify: "true"})
	rule := func(host string) []task.Rule { return []task.Rule{{Host: host, Ports: []uint16{443}}} }
	h.plan.plan.Rules = map[task.StageName][]task.Rule{
		task.Setup: rule("setup.test"), task.Agent: rule("agent.test"), task.Verify: rule("verify.test"),
	}
	succeeds(t, h.through(task.Act, 1))
	var got []string
	for _, g := range h.machine.grants {
		role := h.machine.made[g.Sandbox].Role
		host := "-"
		if len(g.Rules) > 0 {
			host = g.Rules[0].Host
		}
		got = append(got, role+" "+host)
	}
	want := []string{
		"agent -", "agent -", "agent setup.test", "agent -", "agent agent.test", "agent -",
		"verify setup.test", "verify -", "verify verify.test", "verify -",
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("grants:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestLeftoverProcessesEndWithTheirStage(t *testing.T) {
	h := start(t, task.Spec{Setup: `(while :; do echo late >> "$HOME/late"; sleep 0.001; done) > /dev/null 2>&1 &`, Agent: shell("true")})
	succeeds(t, h.through(task.Setup, 1))
	size := func() string {
		var out bytes.Buffer
		id := fmt.Sprintf("size%d", len(h.machine.starts))
		if _, err := h.machine.Run(t.Context(), h.box(stage.RoleAgent), cmd(id, `wc -c < "$HOME/late" || echo 0`), 0, &out, func() {}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if a, b := size(), size(); a != b {
		t.Errorf("setup's child still writes: %s then %s", a, b)
	}
}

func TestManifestRunsSetupAgain(t *testing.T) {
	for file, again := range map[string]bool{"go.mod": true, "sub/package-lock.json": true, "requirements-dev.txt": true, "answer": false} {
		h := start(t, task.Spec{Setup: "echo setup", Agent: shell("echo x >> " + file), Verify: "echo verify"})
		succeeds(t, h.through(task.Act, 1))
		want := "setup\nverify\n"
		if again {
			want = "setup\nsetup\nverify\n"
		}
		if got := h.bytes("log.verify"); got != want {
			t.Errorf("%s: log.verify %q", file, got)
		}
		if got := strings.Contains(h.bytes("report"), `"manifestsTouched":true`); got != again {
			t.Errorf("%s: report %s", file, h.bytes("report"))
		}
	}
}

// What setup changes or makes is in the patch as well, and is no obstacle.
func TestSetupChangesFilesThatThePatchHas(t *testing.T) {
	h := start(t, task.Spec{
		Setup: "echo setup >> answer; echo lock > made; rm sub/keep",
		Agent: shell("echo agent >> answer; echo more >> made"), Verify: "cat answer made; ! test -e sub/keep",
	})
	succeeds(t, h.through(task.Act, 1))
	if got := h.bytes("log.verify"); got != "broken\nsetup\nagent\nlock\nmore\n" {
		t.Errorf("log.verify is %q", got)
	}
}

// The agent's git configuration, hooks, filters and attributes never run.
func TestExportIgnoresTheAgentsGit(t *testing.T) {
	h := start(t, task.Spec{Agent: shell(`
		printf '#!/bin/sh\necho ran >> "%s/ran"\n' "$HOME/.." > p && chmod +x p
		git config core.fsmonitor ./p; git config diff.external ./p; git config filter.x.clean ./p; git config diff.x.textconv ./p
		echo '* filter=x diff=x' > .gitattributes; git config core.worktree /; git config core.hooksPath .
		cp p pre-commit; cp p post-checkout; rm -f ../ran; printf 'bin\0ary' > b; ln -s /etc/passwd link; mkfifo pipe; chmod 4700 answer; echo fixed > sub/keep`)})
	h.plan.plan.Files.Writable = []string{".gitattributes"} // Else it would not be in the patch.
	succeeds(t, h.through(task.Export, 1))
	patch := h.bytes("patch")
	for _, want := range []string{"GIT binary patch", "+fixed", "new file mode 120000", "+/etc/passwd", "filter=x"} {
		if !strings.Contains(patch, want) {
			t.Errorf("the patch lacks %q", want)
		}
	}
	if strings.Contains(patch, "pipe") {
		t.Error("the patch has the pipe")
	}
	var out bytes.Buffer
	if _, err := h.machine.Run(t.Context(), h.box(stage.RoleAgent), cmd("ran", `cat "$HOME/../ran" 2>/dev/null || true`), 0, &out, func() {}); err != nil || out.Len() > 0 {
		t.Errorf("the agent's program ran in export: %q, %v", out.String(), err)
	}
}

func TestCopyTreeTakesNothingHostile(t *testing.T) {
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	for _, h := range []tar.Header{
		{Name: "workspace/", Typeflag: tar.TypeDir, Mode: 0},
		{Name: "workspace/ok", Typeflag: tar.TypeReg, Mode: 0o4755},
		{Name: "workspace/../../etc/evil", Typeflag: tar.TypeReg},
		{Name: "/workspace/abs", Typeflag: tar.TypeReg},
		{Name: "workspace/a/.git/config", Typeflag: tar.TypeReg},
		{Name: "workspace/a/.GIT", Typeflag: tar.TypeReg},
		{Name: "workspace/dev", Typeflag: tar.TypeChar},
		{Name: "workspace/fifo", Typeflag: tar.TypeFifo},
		{Name: "workspace/hard", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"},
		{Name: "workspace/hard2", Typeflag: tar.TypeLink, Linkname: "workspace/ok"},
		{Name: "workspace/sym", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
	} {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	clean := tar.NewWriter(&out)
	if err := tree.Copy(bytes.NewReader(in.Bytes()), clean, 1000); err != nil {
		t.Fatal(err)
	}
	if err := clean.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o %s", h.Name, h.Mode, h.Linkname))
	}
	want := "tree/ 755 |tree/ok 755 |tree/hard2 644 tree/ok|tree/sym 644 /etc/passwd"
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}
}

func TestCopyTreeIsBounded(t *testing.T) {
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	if err := w.WriteHeader(&tar.Header{Name: "workspace/big", Typeflag: tar.TypeReg, Size: 2000}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 2000)); err != nil {
		t.Fatal(err)
	}
	if err := tree.Copy(&in, tar.NewWriter(io.Discard), 1000); !hasReason(err, task.LimitSize) {
		t.Errorf("got %v", err)
	}
}

// A sandbox that can't be reached does not keep the task from ending, and is
// named in its account.
func TestFinishWithSandboxesLeft(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("exit 1")})
	fails(t, h.through(task.Act, 1), task.AgentFailed, "")
	in := stage.Input{Task: taskID, Attempt: 1, Round: 1}
	if err := h.work.Finish(t.Context(), in, stage.Ending{State: task.Failed, Reason: task.AgentFailed}, true); err != nil {
		t.Fatal(err)
	}
	for _, row := range h.task.Stages {
		if row.State == task.StageRunning || row.State == task.StagePending {
			t.Errorf("stage %s is %s", row.Name, row.State)
		}
	}
	if h.task.State != task.Failed || h.audit["task.ended"] == "" {
		t.Errorf("task %s, audit %v", h.task.State, h.audit)
	}
}

func TestEgressIsTakenOverBeforeTheSandboxGoes(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("true")})
	succeeds(t, h.through(task.Provision, 1))
	id := h.box(stage.RoleAgent)
	h.machine.egress[id] = []task.EgressRecord{{Seq: 1, Sandbox: id, Verdict: "denied"}, {Seq: 2, Sandbox: id, Verdict: "allowed"}}
	for range 2 {
		if err := h.work.Sweep(t.Context(), taskID); err != nil {
			t.Fatal(err)
		}
	}
	if h.egress[id] != 2 || h.audit["egress.collected/"+id+"/2"] == "" || h.audit["sandbox.destroyed/"+id] == "" {
		t.Errorf("egress %v, audit %v", h.egress, h.audit)
	}
}

func TestChangedPolicyStopsTheTask(t *testing.T) {
	h := start(t, task.Spec{Agent: shell("true")})
	succeeds(t, h.through(task.Setup, 1))
	h.plan.plan.Digest = "sha256:other"
	fails(t, h.do(task.Agent, 1), task.InputPolicy, "compiles policies in another way")
}

func TestNewAttemptHasFreshSandboxesAndTheSameCommit(t *testing.T) {
	h := start(t, task.Spec{Agent: shell(`test ! -e "$HOME/seen"; touch "$HOME/seen"`)})
	succeeds(t, h.through(task.Agent, 1))
	commit := h.task.Commit
	h.task.Spec.Repo.Ref = "other"
	for _, name := range task.StageNames()[1:5] {
		succeeds(t, h.do(name, 2))
	}
	if h.task.Commit != commit || h.task.Attempt != 2 || len(h.boxes) != 2 {
		t.Errorf("commit %s (was %s), attempt %d, %d sandboxes", h.task.Commit, commit, h.task.Attempt, len(h.boxes))
	}
}
