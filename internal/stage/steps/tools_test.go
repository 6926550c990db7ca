package steps

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// asksFirst is a policy that asks for each tool but "free", and refuses "never".
type asksFirst struct{}

func (asksFirst) Decide(use task.ToolAsk) task.ToolDecision {
	v := map[string]task.ToolVerdict{"free": task.ToolAllowed, "never": task.ToolRefused}
	if verdict, ok := v[use.Tool]; ok {
		return task.ToolDecision{Verdict: verdict, Layer: "task", Rule: "tools." + verdict.String()}
	}
	return task.ToolDecision{Verdict: task.ToolAsked, Layer: "task", Rule: "tools.default"}
}

func (asksFirst) Harmless(task.ToolAsk) bool { return false }

func (asksFirst) Terms() task.Tools { return task.Tools{Wait: time.Hour} }

// persons answer what tools are asked about by their names, when they are there.
type persons struct {
	decisions
	mu    sync.Mutex
	keys  []string
	there chan struct{}
}

func (p *persons) Tool(ctx context.Context, q task.Question) (task.ToolAnswer, error) {
	p.mu.Lock()
	if !slices.Contains(p.keys, q.Key) {
		p.keys = append(p.keys, q.Key)
	}
	p.mu.Unlock()
	select {
	case <-ctx.Done():
		return task.ToolAnswer{}, errors.New("cut off")
	case <-p.there:
	}
	if strings.Contains(string(q.What), "good") {
		return task.ToolAnswer{Allow: true, Text: "a person allowed it", Approval: "ap-1"}, nil
	}
	return task.ToolAnswer{Reason: task.ApprovalDenied, Text: "a person denied it", Approval: "ap-2"}, nil
}

// askingHarness is a spokenHarness whose "ask X" waits for whether it may.
type askingHarness struct{ spokenHarness }

func (h askingHarness) Read(run stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessReader {
	s := &askingReader{spokenReader: h.spokenHarness.Read(run, emit).(*spokenReader)}
	s.emit = func(e task.AgentEvent) {
		switch e.Type {
		case "ask":
			s.number++
			s.open = append(s.open, nil)
			s.asks = append(s.asks, stage.HarnessAsk{Number: s.number, Call: e.Text, Use: task.ToolAsk{Agent: "asking", Tool: e.Text}})
		case "done":
			s.done = true
		}
		emit(e)
	}
	return s
}

type askingReader struct {
	*spokenReader
	number int
	asks   []stage.HarnessAsk
	open   []*task.ToolAnswer
	said   int
}

func (s *askingReader) Asks() []stage.HarnessAsk {
	asks := s.asks
	s.asks = nil
	return asks
}

func (s *askingReader) Answer(n int, a task.ToolAnswer) {
	s.open[n-1] = &a
	for s.said < len(s.open) && s.open[s.said] != nil {
		word := "no\n"
		if s.open[s.said].Allow {
			word = "yes\n"
		}
		s.words = append(s.words, word...)
		s.said++
	}
}

func asking(t *testing.T, line string) (*house, *persons) {
	h := start(t, task.Spec{Agent: task.AgentSpec{Name: "asking", Argv: []string{line}}})
	p := &persons{there: make(chan struct{})}
	h.work.Approvals = p
	h.plan.plan.Tools = asksFirst{}
	return h, p
}

// What a harness asks is decided by policy or by a person, who is asked once,
// however often the run is cut off; it is told before the harness knows it, and
// who waits is not silent.
func TestHarnessAsksForTools(t *testing.T) {
	h, p := asking(t, `
read h; echo "text $h"; echo ask free; read a; echo "text $a"; echo ask never; read b; echo "text $b"
echo ask good; read c; echo "text $c"; echo ask evil; read d; echo "text $d"; echo done; cat > rest; test ! -s rest || echo text more`)
	succeeds(t, h.through(task.Setup, 1))
	in := stage.Input{Task: taskID, Attempt: 1, Round: 1}
	for range 2 {
		ctx, cancel := context.WithCancelCause(t.Context())
		h.machine.onRun = func(string, string) error {
			go func() {
				for !slices.Contains(h.texts("agent"), "ask good") && ctx.Err() == nil {
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
	if len(p.abandoned) > 0 {
		t.Errorf("a run that was cut off gave up its questions: %v", p.abandoned)
	}
	close(p.there)
	succeeds(t, h.do(task.Agent, 1))
	want := []string{"text hello", "ask free", "text yes", "ask never", "text no", "ask good", "text yes", "ask evil", "text no", "done "}
	if got := h.texts("agent"); !slices.Equal(got, want) {
		t.Errorf("events: %q", got)
	}
	if want := []string{"tool/1/agent/3", "tool/1/agent/4"}; !slices.Equal(p.keys, want) {
		t.Errorf("persons were asked %q", p.keys)
	}
	for key, want := range map[string]string{
		"1/agent/asked/1": "free allowed by the policy (task, tools.allow)", "1/agent/asked/2": "never refused by the policy (task, tools.refuse)",
		"1/agent/asked/3": "good a person allowed it; approval ap-1", "1/agent/asked/4": "evil a person denied it; approval ap-2",
	} {
		if e := h.agent[key]; e.Type != "permission" || e.Tool+" "+e.Text != want || e.Failed != (strings.Contains(want, "refused") || strings.Contains(want, "denied")) {
			t.Errorf("%s: %+v", key, e)
		}
	}
	if n := h.machine.starts[h.box(stage.RoleAgent)+"/agent"]; n != 1 {
		t.Errorf("the agent was started %d times", n)
	}
	if !slices.Contains(p.abandoned, h.box(stage.RoleAgent)) {
		t.Error("what was asked is not given up with the stage")
	}
}

// A harness that waits for a person is not taken for one whose model is silent;
// one that goes takes its questions along; one that can't ask is not started
// under a policy that says something of tools.
func TestHarnessWaitsForAPerson(t *testing.T) {
	h, p := asking(t, `read h; echo ask good; read a; echo done`)
	h.plan.plan.Timeout = map[task.StageName]time.Duration{task.Agent: 3 * time.Second}
	time.AfterFunc(2*time.Second, func() { close(p.there) }) // a silent one is ended after one and a half
	succeeds(t, h.through(task.Agent, 1))
	if len(p.keys) != 1 || !slices.Contains(p.abandoned, h.box(stage.RoleAgent)) {
		t.Errorf("asked %q, given up %q", p.keys, p.abandoned)
	}
	h, _ = asking(t, `echo ask good; exit 0`)
	fails(t, h.through(task.Agent, 1), task.AgentFailed, "not done")
	h = start(t, task.Spec{Agent: spoken(`touch started; echo done`)})
	h.plan.plan.Tools = asksFirst{}
	fails(t, h.through(task.Agent, 1), task.InputPolicy, "does not ask")
	p2, err := h.machine.place(h.box(stage.RoleAgent))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(p2.dir, "workspace", "started")); err == nil {
		t.Error("it was started")
	}
}
