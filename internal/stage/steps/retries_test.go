package steps

import (
	"context"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// failing makes the fleet fail to create sandboxes, or ends commands in its own way.
type failing struct {
	stage.Sandboxes
	create func() error
	result func(command string) *sandbox.Status
}

func (f *failing) Create(ctx context.Context, spec sandbox.Spec) (string, sandbox.Info, error) {
	if f.create != nil {
		if err := f.create(); err != nil {
			return "", sandbox.Info{}, err
		}
	}
	return f.Sandboxes.Create(ctx, spec)
}

func (f *failing) Run(ctx context.Context, id string, cmd sandbox.Command, offset int64, out writer, beat func()) (stage.Result, error) {
	if f.result != nil {
		if st := f.result(cmd.ID); st != nil {
			return stage.Result{Status: *st}, nil
		}
	}
	return f.Sandboxes.Run(ctx, id, cmd, offset, out, beat)
}

// The seed failures as the stages meet them: which stage fails, with which code,
// in words that say what happened.
func TestSeedFailuresOfStages(t *testing.T) {
	ended := func(reason task.Reason, timedOut bool) *sandbox.Status {
		return &sandbox.Status{Phase: sandbox.CommandExited, ExitCode: -1, Signal: 9, Reason: reason, TimedOut: timedOut}
	}
	for name, c := range map[string]struct {
		spec   task.Spec
		create error
		result map[string]*sandbox.Status
		stage  task.StageName
		want   task.Reason
		text   string
	}{
		"worker fails to start": {
			task.Spec{Agent: shell("true")}, task.Fail(task.InfraSandboxCreate, "no room", nil), nil, task.Provision, task.InfraSandboxCreate, "no room",
		},
		"clone fails": {
			task.Spec{Agent: shell("true"), Repo: task.Repo{URL: "https://127.0.0.1:1/none"}}, nil, nil, task.Checkout, task.CheckoutFailed, "git clone",
		},
		"install times out": {
			task.Spec{Agent: shell("true"), Setup: "sleep 1000"}, nil, map[string]*sandbox.Status{"setup": ended(task.LimitTime, true)}, task.Setup, task.LimitTime, "longer than it may",
		},
		"registry down": {
			task.Spec{Agent: shell("true"), Setup: "echo registry is away; exit 1"}, nil, nil, task.Setup, task.SetupFailed, "exited with 1",
		},
		"tests fail": {
			task.Spec{Agent: shell("true"), Verify: "exit 1"}, nil, nil, task.Verify, task.VerifyFailed, "exited with 1",
		},
		"model stops": {
			task.Spec{Agent: shell("true")}, nil, map[string]*sandbox.Status{"agent": {Phase: sandbox.CommandExited, ExitCode: 1}}, task.Agent, task.AgentFailed, "exited with 1",
		},
		"limit reached": {
			task.Spec{Agent: shell("true")}, nil, map[string]*sandbox.Status{"agent": ended(task.LimitMemory, false)}, task.Agent, task.LimitMemory, "was ended",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, c.spec)
			h.work.Sandboxes = present{&failing{
				Sandboxes: h.machine, create: func() error { return c.create },
				result: func(command string) *sandbox.Status { return c.result[command] },
			}}
			o := h.through(task.Act, 1)
			if o.Reason != c.want {
				t.Logf("stages %+v", h.task.Stages)
			}
			fails(t, o, c.want, c.text)
			last := h.task.Stages[len(h.task.Stages)-1]
			if last.Name != c.stage || last.Reason != c.want || last.Text == "" || last.Attempts != 1 || last.Round != 1 {
				t.Errorf("the record says %+v, want stage %s with %s", last, c.stage, c.want)
			}
		})
	}
}

// A verify that the infrastructure failed runs again, alone, in a fresh sandbox,
// and its log has both rounds.
func TestVerifyRunsAgainAlone(t *testing.T) {
	for _, c := range []struct {
		name  string
		fails string // the command at which the sandbox is lost
		log   string
	}{
		{"at the first command", "verify-checkout", "set up\njudged\n"},
		{"after setup", "verify", "set up\nset up\njudged\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := start(t, task.Spec{Setup: "echo set up", Agent: shell("echo x >> answer; echo agent"), Verify: "grep x answer > /dev/null && echo judged"})
			succeeds(t, h.through(task.Export, 1))
			agent := h.machine.starts[h.box(stage.RoleAgent)+"/agent"]
			first := h.box(stage.RoleVerify)
			h.machine.onRun = func(id, command string) error {
				if id == first && command == c.fails {
					return task.Fail(task.InfraSandboxLost, "its kernel died", nil)
				}
				return nil
			}
			in := stage.Input{Task: taskID, Attempt: 1, Round: 1}
			o, err := h.work.Do(t.Context(), task.Verify, in)
			if err != nil {
				t.Fatal(err)
			}
			fails(t, o, task.InfraSandboxLost, "kernel")
			if stage.AfterVerify(o, 1) != stage.AgainRound {
				t.Fatal("verify would not go on")
			}
			in.Round = 2
			if o, err = h.work.Do(t.Context(), task.Verify, in); err != nil {
				t.Fatal(err)
			}
			succeeds(t, o)
			row := h.task.Stages[len(h.task.Stages)-1]
			if row.Sandbox == first || row.Sandbox != stage.RoundSandboxID(taskID, 1, stage.RoleVerify, 2) || row.Round != 2 {
				t.Errorf("the second round ran in %+v", row)
			}
			if got := h.bytes("log.verify"); got != c.log {
				t.Errorf("log.verify is %q, want %q", got, c.log)
			}
			if n := h.machine.starts[h.box(stage.RoleAgent)+"/agent"]; n != agent || n != 1 {
				t.Errorf("the agent was started %d times", n)
			}
			for _, id := range h.machine.alive() {
				if id != h.box(stage.RoleAgent) {
					t.Errorf("a verifying sandbox is left: %s", id)
				}
			}
		})
	}
}

// A round of verify that is cut off goes on where it was: one run of each
// command, one copy of the log.
func TestACutInASecondRoundOfVerify(t *testing.T) {
	h := start(t, task.Spec{Setup: "echo set up", Agent: shell("true"), Verify: "echo judged"})
	succeeds(t, h.through(task.Export, 1))
	lose := true
	h.machine.onRun = func(_, command string) error {
		if lose && command == "verify" {
			return task.Fail(task.InfraWorkerLost, "away", nil)
		}
		return nil
	}
	if o, err := h.work.Do(t.Context(), task.Verify, stage.Input{Task: taskID, Attempt: 1, Round: 1}); err != nil || o.Reason != task.InfraWorkerLost {
		t.Fatalf("%+v, %v", o, err)
	}
	lose = false
	in := stage.Input{Task: taskID, Attempt: 1, Round: 2}
	ctx, cancel := context.WithCancelCause(t.Context())
	h.machine.onRun = func(_, command string) error {
		if command == "verify" {
			cancel(ErrStopping)
			return ctx.Err()
		}
		return nil
	}
	if _, err := h.work.Do(ctx, task.Verify, in); err == nil {
		t.Fatal("a run that was cut off has an outcome")
	}
	h.machine.onRun = nil
	o, err := h.work.Do(t.Context(), task.Verify, in)
	if err != nil {
		t.Fatal(err)
	}
	succeeds(t, o)
	if got := h.bytes("log.verify"); got != "set up\nset up\njudged\n" {
		t.Errorf("log.verify is %q", got)
	}
}

// What the repository asks for is read from its commit, told and used only as
// far as the layers above say.
func TestRepositoryAsks(t *testing.T) {
	const asks = simpleRepo + ` && git checkout -q main && mkdir .cofferdam && printf 'version: 1\nsetup: {command: echo asked}\n' > .cofferdam/task.yaml && git add . && git commit -qm ask`
	for name, c := range map[string]struct {
		repo    string
		allowed bool
		agent   task.AgentSpec
		setup   string // what setup says
		text    string // what is kept of the request
		told    string
		fails   task.Reason
	}{
		"granted":           {repo: asks, allowed: true, agent: shell("true"), setup: "asked\n", text: "version: 1\nsetup: {command: echo asked}\n"},
		"not granted":       {repo: asks, agent: shell("true"), text: "version: 1\nsetup: {command: echo asked}\n", told: "not yours"},
		"asks for nothing":  {repo: simpleRepo, allowed: true, agent: shell("true")},
		"too long":          {repo: asks + ` && head -c 70000 /dev/zero | tr '\0' '#' > .cofferdam/task.yaml && git commit -qam long`, allowed: true, agent: shell("true"), told: "longer than 64 KiB"},
		"not text":          {repo: asks + ` && printf '\377\376' > .cofferdam/task.yaml && git commit -qam bytes`, allowed: true, agent: shell("true"), told: "not UTF-8"},
		"a folder":          {repo: asks + ` && git rm -q .cofferdam/task.yaml && mkdir -p .cofferdam/task.yaml && echo x > .cofferdam/task.yaml/x && git add . && git commit -qm folder`, allowed: true, agent: shell("true")},
		"names no agent":    {repo: simpleRepo, allowed: true, fails: task.InputInvalid},
		"may name no agent": {repo: asks, fails: task.InputInvalid},
		"names an agent":    {repo: asks, allowed: true, setup: "asked\n", text: "version: 1\nsetup: {command: echo asked}\n", agent: task.AgentSpec{Name: "from the repository"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, task.Spec{Agent: c.agent})
			if c.agent.Name == "from the repository" {
				h.task.Spec.Agent = task.AgentSpec{}
			}
			h.task.Spec.Repo.Bundle = h.repository(c.repo)
			h.plan.compile = func(l task.Layers) (stage.Plan, error) {
				p := stage.Plan{Digest: "sha256:none", Limits: task.DefaultLimits()}
				p.Repository.Allowed = c.allowed
				if l.Repository != "" {
					p.Digest = "sha256:asked"
				}
				if strings.Contains(l.Repository, "echo asked") && c.allowed {
					p.Repository.Setup = "echo asked"
					p.Repository.Agent = shell("true")
				} else if l.Repository != "" {
					p.Narrowed = []string{"not yours"}
				}
				return p, nil
			}
			o := h.through(task.Agent, 1)
			if c.fails != "" {
				fails(t, o, c.fails, "agent")
				return
			}
			succeeds(t, o)
			if h.task.Layers.Repository != c.text {
				t.Errorf("kept %q, want %q", h.task.Layers.Repository, c.text)
			}
			if got := strings.Join(h.task.Layers.Narrowed, "|"); !strings.Contains(got, c.told) || c.told == "" && got != "" {
				t.Errorf("told %q, want %q", got, c.told)
			}
			if c.setup != "" && h.bytes("log.setup") != c.setup {
				t.Errorf("setup said %q", h.bytes("log.setup"))
			}
			if c.text != "" && (h.task.PolicyDigest != "sha256:asked" || h.audit["policy.repository/sha256:asked"] == "") {
				t.Errorf("policy digest %s, audit %v", h.task.PolicyDigest, h.audit)
			}
		})
	}
}
