package steps

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// spokenHarness is told "hello", and to each "ask X" of its own "answer X", in a
// line each, until it says "done".
type spokenHarness struct{ fakeHarness }

func (h spokenHarness) Package() string { return "" }

func (h spokenHarness) Start(run stage.HarnessRun) (stage.HarnessStart, error) {
	start, err := h.fakeHarness.Start(run)
	start.Stdin = true
	return start, err
}

func (h spokenHarness) Read(_ stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessReader {
	s := &spokenReader{words: []byte("hello\n")}
	s.emit = func(e task.AgentEvent) {
		switch e.Type {
		case "ask":
			s.words = append(s.words, "answer "+e.Text+"\n"...)
		case "done":
			s.done = true
		}
		emit(e)
	}
	return s
}

type spokenReader struct {
	fakeReader
	words []byte
	done  bool
}

func (s *spokenReader) Say() []byte {
	words := s.words
	s.words = nil
	return words
}

func (s *spokenReader) Done() bool { return s.done }

func (s *spokenReader) End(int) stage.HarnessEnd {
	if !s.done {
		return stage.HarnessEnd{Failure: task.Fail(task.AgentFailed, "not done", nil)}
	}
	return stage.HarnessEnd{}
}

func spoken(line string) task.AgentSpec { return task.AgentSpec{Name: "spoken", Argv: []string{line}} }

// texts are the agent's events in order.
func (h *house) texts(command string) []string {
	h.desk.mu.Lock()
	defer h.desk.mu.Unlock()
	var out []string
	for n := 1; ; n++ {
		e, ok := h.agent[fmt.Sprintf("1/%s/%d", command, n)]
		if !ok {
			return out
		}
		out = append(out, e.Type+" "+e.Text)
	}
}

func TestHarnessIsSpokenTo(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	h := start(t, task.Spec{Agent: spoken(`read a; echo "text $a"; echo ask 1; echo ask ` + long + `; read b; read c; echo "text $b ${#c}"; echo done; cat > rest; test ! -s rest || echo text more`)})
	succeeds(t, h.through(task.Agent, 1))
	want := []string{"text hello", "ask 1", "ask " + long, fmt.Sprintf("text answer 1 %d", len(long)+len("answer ")), "done "}
	if got := h.texts("agent"); !slices.Equal(got, want) {
		t.Errorf("events: %.300q", got)
	}
	if spec := h.machine.made[h.box(stage.RoleAgent)]; len(spec.Agents) > 0 {
		t.Errorf("the sandbox has the agents %v", spec.Agents)
	}
}

// A harness that stays after its turn is ended, and has succeeded; one that goes
// before its turn is over has not.
func TestHarnessThatStaysOrGoes(t *testing.T) {
	h := start(t, task.Spec{Agent: spoken(`read a; echo done; sleep 1000`)})
	h.plan.plan.Timeout = map[task.StageName]time.Duration{task.Agent: 2 * time.Second}
	succeeds(t, h.through(task.Agent, 1))
	h = start(t, task.Spec{Agent: spoken(`exec <&-; echo ask 1; exit 0`)})
	fails(t, h.through(task.Agent, 1), task.AgentFailed, "not done")
	h = start(t, task.Spec{Agent: spoken(`echo text silent; sleep 1000`)})
	h.plan.plan.Timeout = map[task.StageName]time.Duration{task.Agent: 2 * time.Second}
	fails(t, h.through(task.Agent, 1), task.ModelSilent, "said nothing")
	h = start(t, task.Spec{Agent: spoken(`true`)})
	h.machine.deaf = true
	fails(t, h.through(task.Agent, 1), task.AgentFailed, "not done")
}

// A run that is cut off in the middle of a turn goes on in it: the process is the
// same, and has each word once.
func TestHarnessIsSpokenToAfterACut(t *testing.T) {
	h := start(t, task.Spec{Agent: spoken(`
read a; echo "text $a"; echo ask 1; read b; echo "text $b"
until test -e go; do sleep 0.01; done
echo ask 2; read c; echo "text $c"; echo done; cat > rest; test ! -s rest || echo text more`)})
	succeeds(t, h.through(task.Setup, 1))
	in := stage.Input{Task: taskID, Attempt: 1, Round: 1}
	for range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		h.machine.onRun = func(string, string) error {
			go func() {
				for !slices.Contains(h.texts("agent"), "text answer 1") && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel(ErrStopping)
			}()
			return nil
		}
		if _, err := h.work.Do(ctx, task.Agent, in); err == nil {
			t.Fatal("a run that was cut off has an outcome")
		}
	}
	h.machine.onRun = nil
	p, err := h.machine.place(h.box(stage.RoleAgent))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "workspace", "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	succeeds(t, h.do(task.Agent, 1))
	want := []string{"text hello", "ask 1", "text answer 1", "ask 2", "text answer 2", "done "}
	if got := h.texts("agent"); !slices.Equal(got, want) {
		t.Errorf("events: %q", got)
	}
	if got := h.bytes("log.agent"); got != strings.Join(want[:5], "\n")+"\ndone\n" {
		t.Errorf("log %q", got)
	}
	if n := h.machine.starts[h.box(stage.RoleAgent)+"/agent"]; n != 1 {
		t.Errorf("the agent was started %d times", n)
	}
}
