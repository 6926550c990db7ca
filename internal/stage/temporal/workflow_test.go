package temporal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps"
	"github.com/cofferdam/cofferdam/internal/task"
)

// script is Steps that do what a test says and remember what was asked.
type script struct {
	mu    sync.Mutex
	calls []string
	stage func(ctx context.Context, name task.StageName, in stage.Input) stage.Outcome
	sweep func(n int) error
	swept int
	end   stage.Ending
	left  bool
}

func (s *script) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *script) Do(ctx context.Context, name task.StageName, in stage.Input) (stage.Outcome, error) {
	s.note("%s %d.%d", name, in.Attempt, in.Round)
	if s.stage != nil {
		if o := s.stage(ctx, name, in); o.State != "" || o.Ended {
			if errors.Is(context.Cause(ctx), steps.ErrStopping) {
				return stage.Outcome{}, steps.ErrStopping
			}
			return o, nil
		}
	}
	o := stage.Outcome{State: task.StageSucceeded}
	if name == task.Admit {
		o.Attempt, o.Time = 1, time.Hour
	}
	return o, nil
}

func (s *script) BeginClose(context.Context, stage.Input) error { s.note("begin"); return nil }

func (s *script) Sweep(context.Context, string) error {
	s.note("sweep")
	s.mu.Lock()
	s.swept++
	n := s.swept
	s.mu.Unlock()
	if s.sweep != nil {
		return s.sweep(n)
	}
	return nil
}

func (s *script) Finish(_ context.Context, in stage.Input, e stage.Ending, left bool) error {
	s.note("finish %d", in.Attempt)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end, s.left = e, left
	return nil
}

func run(t *testing.T, s *script, prepare func(*testsuite.TestWorkflowEnvironment)) {
	t.Helper()
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := suite.NewTestWorkflowEnvironment()
	data, failure := converters(keysOf(t, make([]byte, 32)))
	env.SetDataConverter(data)
	env.SetFailureConverter(failure)
	env.RegisterWorkflowWithOptions(taskWorkflow, workflow.RegisterOptions{Name: workflowName})
	(&activities{steps: s, log: slog.New(slog.DiscardHandler)}).register(env)
	env.SetTestTimeout(30 * time.Second)
	if prepare != nil {
		prepare(env)
	}
	env.ExecuteWorkflow(workflowName, taskInput{Task: "t-aaaaaaaaaaaaaaaa"})
	if !env.IsWorkflowCompleted() {
		t.Fatal("the workflow has not ended")
	}
	if err := env.GetWorkflowError(); err != nil {
		t.Fatal(err)
	}
}

func (s *script) want(t *testing.T, calls string, e stage.Ending) {
	t.Helper()
	if got := strings.Join(s.calls, ", "); got != calls {
		t.Errorf("calls\n%s\nwant\n%s", got, calls)
	}
	if s.end.State != e.State || s.end.Reason != e.Reason || !strings.Contains(s.end.Text, e.Text) {
		t.Errorf("ended with %+v, want %+v", s.end, e)
	}
}

const allStages = "admit 1.1, provision 1.1, checkout 1.1, setup 1.1, agent 1.1, export 1.1, verify 1.1, act 1.1"

func TestStagesInOrder(t *testing.T) {
	s := &script{}
	run(t, s, nil)
	s.want(t, allStages+", begin, sweep, finish 1", stage.Ending{State: task.Succeeded})
}

func failAt(name task.StageName, reason task.Reason, times int) func(context.Context, task.StageName, stage.Input) stage.Outcome {
	return func(_ context.Context, at task.StageName, _ stage.Input) stage.Outcome {
		if at != name || times == 0 {
			return stage.Outcome{}
		}
		times--
		return stage.Outcome{State: task.StageFailed, Reason: reason, Text: "because"}
	}
}

func TestFailureEndsTheTask(t *testing.T) {
	for _, reason := range []task.Reason{task.AgentFailed, task.LimitMemory, task.InputPolicy, task.PolicyDenied} {
		s := &script{stage: failAt(task.Agent, reason, 1)}
		run(t, s, nil)
		s.want(t, "admit 1.1, provision 1.1, checkout 1.1, setup 1.1, agent 1.1, begin, sweep, finish 1",
			stage.Ending{State: task.Failed, Reason: reason, Text: "because"})
	}
	s := &script{stage: failAt(task.Admit, task.InputPolicy, 1)}
	run(t, s, nil)
	s.want(t, "admit 1.1, begin, sweep, finish 1", stage.Ending{State: task.Failed, Reason: task.InputPolicy})
}

func TestLostSandboxGoesBackToProvision(t *testing.T) {
	s := &script{stage: failAt(task.Agent, task.InfraSandboxLost, 1)}
	run(t, s, nil)
	s.want(t, "admit 1.1, provision 1.1, checkout 1.1, setup 1.1, agent 1.1, sweep, "+
		"provision 2.1, checkout 2.1, setup 2.1, agent 2.1, export 2.1, verify 2.1, act 2.1, begin, sweep, finish 2",
		stage.Ending{State: task.Succeeded})
}

func TestWhatComesBackIsTakenUpInPlace(t *testing.T) {
	s := &script{stage: failAt(task.Agent, task.InfraWorkerLost, 2)}
	run(t, s, nil)
	s.want(t, "admit 1.1, provision 1.1, checkout 1.1, setup 1.1, agent 1.1, agent 1.2, agent 1.3, export 1.1, verify 1.1, act 1.1, begin, sweep, finish 1",
		stage.Ending{State: task.Succeeded})
}

func TestExhaustion(t *testing.T) {
	s := &script{stage: failAt(task.Provision, task.InfraSandboxCreate, -1)}
	run(t, s, nil)
	s.want(t, "admit 1.1, provision 1.1, sweep, provision 2.1, sweep, provision 3.1, begin, sweep, finish 3",
		stage.Ending{State: task.Failed, Reason: task.InfraExhausted, Text: "infra.sandbox_create: because"})
}

// After the engine's file was lost, the task goes on with an attempt of its own.
func TestFirstAttemptIsAdmitsChoice(t *testing.T) {
	s := &script{stage: func(_ context.Context, name task.StageName, _ stage.Input) stage.Outcome {
		if name == task.Admit {
			return stage.Outcome{State: task.StageSucceeded, Attempt: 5, Time: time.Minute}
		}
		return failAt(task.Provision, task.InfraSandboxCreate, -1)(context.Background(), name, stage.Input{})
	}}
	run(t, s, nil)
	s.want(t, "admit 1.1, provision 5.1, sweep, provision 6.1, sweep, provision 7.1, begin, sweep, finish 7",
		stage.Ending{State: task.Failed, Reason: task.InfraExhausted, Text: "3 attempts"})
}

func TestEndedTaskIsLeftAlone(t *testing.T) {
	s := &script{stage: func(context.Context, task.StageName, stage.Input) stage.Outcome {
		return stage.Outcome{State: task.StageSkipped, Ended: true}
	}}
	run(t, s, nil)
	s.want(t, "admit 1.1", stage.Ending{})
}

func TestCancelRunsClose(t *testing.T) {
	s := &script{stage: func(ctx context.Context, name task.StageName, _ stage.Input) stage.Outcome {
		if name != task.Agent {
			return stage.Outcome{}
		}
		<-ctx.Done()
		return stage.Outcome{State: task.StageCancelled, Reason: task.Cancelled}
	}}
	run(t, s, func(env *testsuite.TestWorkflowEnvironment) {
		env.RegisterDelayedCallback(env.CancelWorkflow, time.Second)
	})
	s.want(t, "admit 1.1, provision 1.1, checkout 1.1, setup 1.1, agent 1.1, begin, sweep, finish 1",
		stage.Ending{State: task.StateCancelled, Reason: task.Cancelled})
}

func TestCancelWhileWaitingForTheNextRound(t *testing.T) {
	s := &script{stage: failAt(task.Setup, task.InfraWorkerLost, -1)}
	run(t, s, func(env *testsuite.TestWorkflowEnvironment) {
		env.RegisterDelayedCallback(env.CancelWorkflow, time.Second)
	})
	s.want(t, "admit 1.1, provision 1.1, checkout 1.1, setup 1.1, begin, sweep, finish 1",
		stage.Ending{State: task.StateCancelled, Reason: task.Cancelled})
}

func TestPanicIsTriedAgain(t *testing.T) {
	n := 0
	s := &script{stage: func(_ context.Context, name task.StageName, _ stage.Input) stage.Outcome {
		if n++; name == task.Checkout && n < 5 {
			panic("a fault of ours")
		}
		return stage.Outcome{}
	}}
	run(t, s, nil)
	if s.end.State != task.Succeeded {
		t.Errorf("ended with %+v", s.end)
	}
}

// A machine that does not answer keeps no task open, and is tried again.
func TestSandboxesLeft(t *testing.T) {
	gone := 14
	s := &script{sweep: func(n int) error {
		if n < gone {
			return errors.New("worker away")
		}
		return nil
	}}
	run(t, s, nil)
	if !s.left || s.end.State != task.Succeeded {
		t.Errorf("ended with %+v, left %t", s.end, s.left)
	}
	at := slices.Index(s.calls, "finish 1")
	if at < 0 || at == len(s.calls)-1 || s.swept != gone {
		t.Errorf("finish at %d of %d calls, %d sweeps", at, len(s.calls), s.swept)
	}
}

func TestTurns(t *testing.T) {
	var turns turns
	release, err := turns.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := turns.take(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := turns.take(ctx, "a"); err == nil {
		t.Fatal("two runs of one task")
	}
	release()
	if release, err = turns.take(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	release()
}

func (s *script) called(call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.calls, call)
}

// A verify that the infrastructure failed goes again by itself, and the agent
// never; when its rounds are used up the task ends.
func TestVerifyGoesAgainWithoutTheAgent(t *testing.T) {
	lost := stage.Outcome{State: task.StageFailed, Reason: task.InfraSandboxLost, Text: "its kernel died"}
	for _, c := range []struct {
		fails int // rounds that fail
		calls string
		end   stage.Ending
	}{
		{1, "verify 1.1, verify 1.2, act 1.1", stage.Ending{State: task.Succeeded}},
		{stage.MaxRounds, "verify 1.1, verify 1.2, verify 1.3", stage.Ending{State: task.Failed, Reason: task.InfraExhausted, Text: "verify was run 3 times"}},
	} {
		s := &script{}
		s.stage = func(_ context.Context, name task.StageName, in stage.Input) stage.Outcome {
			if name == task.Verify && in.Round <= c.fails {
				return lost
			}
			return stage.Outcome{}
		}
		run(t, s, nil)
		s.want(t, "admit 1.1, provision 1.1, checkout 1.1, setup 1.1, agent 1.1, export 1.1, "+c.calls+", begin, sweep, finish 1", c.end)
	}
}
