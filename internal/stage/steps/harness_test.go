package steps

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// fakeHarnesses knows one harness, "fake", whose command is its argv and whose
// lines are events of their first word. Its session is "s1".
type fakeHarnesses struct{}

func (fakeHarnesses) Find(spec task.AgentSpec) (stage.Harness, error) {
	if spec.Name == "spoken" {
		return spokenHarness{fakeHarness{spec}}, nil
	}
	if spec.Name == "asking" {
		return askingHarness{spokenHarness{fakeHarness{spec}}}, nil
	}
	if spec.Name != "fake" {
		return nil, task.Fail(task.InputInvalid, "agent.name: not known", nil)
	}
	return fakeHarness{spec}, nil
}

type fakeHarness struct{ spec task.AgentSpec }

func (h fakeHarness) Package() string { return "fake@1.0.0" }

func (h fakeHarness) Start(run stage.HarnessRun) (stage.HarnessStart, error) {
	return stage.HarnessStart{Argv: []string{"sh", "-c", h.spec.Argv[0]}, Env: []string{"SESSION=" + run.Session, "PROMPT=" + run.Prompt}}, nil
}

func (h fakeHarness) Read(_ stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessReader {
	return &fakeReader{emit: emit}
}

type fakeReader struct {
	emit     func(task.AgentEvent)
	rest     string
	hopeless bool
}

func (r *fakeReader) Output(_ int, b []byte) {
	r.rest += string(b)
	for {
		line, rest, ok := strings.Cut(r.rest, "\n")
		if !ok {
			return
		}
		r.rest = rest
		kind, text, _ := strings.Cut(line, " ")
		r.hopeless = r.hopeless || kind == "hopeless"
		r.emit(task.AgentEvent{Type: kind, Text: text, Call: text})
	}
}

func (r *fakeReader) Hopeless() *task.Failure {
	if r.hopeless {
		return task.Fail(task.ModelSilent, "hopeless", nil)
	}
	return nil
}

func (r *fakeReader) End(exit int) stage.HarnessEnd {
	end := stage.HarnessEnd{Session: "s1"}
	if exit != 0 {
		end.Failure = task.Fail(task.ModelFaulty, "the model failed", nil)
	}
	return end
}

func fake(line string) task.AgentSpec { return task.AgentSpec{Name: "fake", Argv: []string{line}} }

// online gives the house's agent something to reach, so that a restarted
// gateway matters.
func (h *house) online() {
	h.plan.plan.Rules = map[task.StageName][]task.Rule{task.Agent: {{ID: "agent.model", Host: "model.test", Ports: []uint16{443}}}}
}

func (h *house) round(name task.StageName, round int) stage.Outcome {
	h.t.Helper()
	o, err := h.work.Do(h.t.Context(), name, stage.Input{Task: taskID, Attempt: 1, Round: round})
	if err != nil {
		h.t.Fatal(err)
	}
	return o
}

func TestHarnessEventsAreKept(t *testing.T) {
	h := start(t, task.Spec{Agent: fake("echo text $PROMPT; echo call c1; echo result c1"), Prompt: "hello"})
	succeeds(t, h.through(task.Agent, 1))
	if spec := h.machine.made[h.box(stage.RoleAgent)]; len(spec.Agents) != 1 || spec.Agents[0] != "fake@1.0.0" {
		t.Errorf("the sandbox has the agents %v", spec.Agents)
	}
	if len(h.agent) != 3 || h.agent["1/agent/1"].Text != "hello" || h.agent["1/agent/2"].Type != "call" {
		t.Errorf("events: %+v", h.agent)
	}
	if got := h.bytes("log.agent"); got != "text hello\ncall c1\nresult c1\n" {
		t.Errorf("log %q", got)
	}
}

func TestHarnessFailureHasItsCode(t *testing.T) {
	h := start(t, task.Spec{Agent: fake("exit 1")})
	fails(t, h.through(task.Agent, 1), task.ModelFaulty, "the model failed")
	h = start(t, task.Spec{Agent: fake("echo hopeless; exit 1")})
	fails(t, h.through(task.Agent, 1), task.ModelSilent, "hopeless")
}

// A harness that hears nothing is ended before its time is over.
func TestSilentHarnessIsEnded(t *testing.T) {
	h := start(t, task.Spec{Agent: fake("echo text asking; sleep 1000")})
	h.plan.plan.Timeout = map[task.StageName]time.Duration{task.Agent: 2 * time.Second}
	fails(t, h.through(task.Agent, 1), task.ModelSilent, "said nothing")
}

// After a restart of the gateway the next round goes on with the session, in the
// same sandbox, and nothing is kept twice.
func TestHarnessGoesOnInTheNextRound(t *testing.T) {
	line := `echo text "session $SESSION"; echo ran >> ran; test -n "$SESSION" && exit 0; until test -e go; do sleep 0.01; done; exit 1`
	h := start(t, task.Spec{Agent: fake(line)})
	h.online()
	succeeds(t, h.through(task.Setup, 1))
	h.restartDuring("agent", "/workspace/go")
	o := h.round(task.Agent, 1)
	fails(t, o, task.InfraEgressRestarted, "restarted")
	if !o.Resumable || stage.After(o, 1) != stage.AgainRound || stage.After(o, stage.MaxRounds) != stage.NewAttempt {
		t.Fatalf("%+v is not taken up again in place", o)
	}
	succeeds(t, h.round(task.Agent, 2))
	if got := h.bytes("log.agent"); got != "text session \ntext session s1\n" {
		t.Errorf("log %q", got)
	}
	if len(h.agent) != 2 || h.agent["1/agent-2/1"].Text != "session s1" {
		t.Errorf("events: %+v", h.agent)
	}
	if h.machine.starts[h.box(stage.RoleAgent)+"/agent"] != 1 || h.machine.starts[h.box(stage.RoleAgent)+"/agent-2"] != 1 {
		t.Errorf("starts: %v", h.machine.starts)
	}
}

// restartDuring changes the gateway's epoch once the command runs, and then lets
// it go on by making a file.
func (h *house) restartDuring(command, file string) {
	h.machine.onRun = func(id, c string) error {
		if c != command || h.machine.starts[id+"/"+c] > 0 {
			return nil
		}
		go func() {
			for {
				h.machine.mu.Lock()
				begun := h.machine.starts[id+"/"+c] > 0
				if begun {
					h.machine.epoch = "two"
				}
				h.machine.mu.Unlock()
				if begun {
					break
				}
				time.Sleep(time.Millisecond)
			}
			p, err := h.machine.place(id)
			if err == nil {
				err = os.WriteFile(mapped(p.dir, file), nil, 0o644)
			}
			if err != nil {
				h.t.Error(err)
			}
		}()
		return nil
	}
}
