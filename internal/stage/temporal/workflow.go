package temporal

import (
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// workflowName names the workflow in histories; it never changes.
const workflowName = "task"

// taskInput is what the workflow is started with; the request itself is in our
// record.
type taskInput struct {
	Task string `json:"task"`
}

// heartbeat is how long an activity may be silent. It is how fast the death of
// cofferdamd is noticed.
const heartbeat = 5 * time.Second

// taskWorkflow takes one task through its stages, and through close whatever
// happened. Histories of earlier versions of it are replayed by the tests: a
// change of what it does needs workflow.GetVersion.
func taskWorkflow(ctx workflow.Context, in taskInput) error {
	first := runLocal(ctx, task.Admit, stage.Input{Task: in.Task, Attempt: 1, Round: 1})
	if first.Ended {
		return nil
	}
	attempt := max(1, first.Attempt)
	last, tried := first, 1
	if stage.After(first, stage.MaxRounds) == stage.Proceed {
		for {
			last = runAttempt(ctx, in.Task, attempt, first.Time)
			if ctx.Err() != nil || stage.After(last, stage.MaxRounds) != stage.NewAttempt || tried >= stage.MaxAttempts {
				break
			}
			// The lost attempt's sandboxes go first; what can't be reached is
			// tried again by close.
			_ = sweep(ctx, in.Task, time.Minute)
			attempt++
			tried++
		}
	}
	e := stage.EndingOf(last, tried, errors.Is(ctx.Err(), workflow.ErrCanceled))
	closing, _ := workflow.NewDisconnectedContext(ctx)
	return closeTask(closing, stage.Input{Task: in.Task, Attempt: attempt, Round: 1}, e)
}

// runAttempt goes through the stages between admit and close once.
func runAttempt(ctx workflow.Context, taskID string, attempt int, command time.Duration) stage.Outcome {
	var last stage.Outcome
	for _, name := range task.StageNames() {
		if name == task.Admit || name == task.Close {
			continue
		}
		last = runStage(ctx, name, stage.Input{Task: taskID, Attempt: attempt}, command)
		if stage.After(last, stage.MaxRounds) != stage.Proceed {
			return last
		}
	}
	return last
}

// runStage runs one stage, in as many rounds as its outcomes ask for.
func runStage(ctx workflow.Context, name task.StageName, in stage.Input, command time.Duration) stage.Outcome {
	for in.Round = 1; ; in.Round++ {
		var o stage.Outcome
		if name == task.Act {
			o = runLocal(ctx, name, in)
		} else {
			o = runRemote(ctx, name, in, command)
		}
		if ctx.Err() != nil {
			return o
		}
		next := stage.After(o, in.Round)
		if name == task.Verify && o.Reason.Retryable() && verifiesAlone(ctx) {
			if next = stage.AfterVerify(o, in.Round); next == stage.EndTask {
				return stage.Exhausted(name, o, in.Round)
			}
		}
		if next != stage.AgainRound {
			return o
		}
		if err := workflow.Sleep(ctx, stage.Backoff(in.Round)); err != nil {
			return outcomeOf(ctx, o, err)
		}
	}
}

// verifiesAlone says whether a verify that the infrastructure failed is run
// again by itself. Tasks that met such a fault under an earlier version went
// back to provision, and replay so.
func verifiesAlone(ctx workflow.Context) bool {
	return workflow.GetVersion(ctx, "verify-alone", workflow.DefaultVersion, 1) != workflow.DefaultVersion
}

// runRemote runs a stage as an activity with a heartbeat. What ends the
// activity's process is retried here without end; what fails in the stage is
// its outcome.
func runRemote(ctx workflow.Context, name task.StageName, in stage.Input, command time.Duration) stage.Outcome {
	limit := stageLimit(name, command)
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    limit,
		ScheduleToCloseTimeout: 2*limit + 24*time.Hour,
		HeartbeatTimeout:       heartbeat,
		WaitForCancellation:    true,
		RetryPolicy:            endless(10 * time.Second),
	})
	var o stage.Outcome
	err := workflow.ExecuteActivity(ctx, activityName(name), in).Get(ctx, &o)
	return outcomeOf(ctx, o, err)
}

// runLocal runs a short stage of the control plane.
func runLocal(ctx workflow.Context, name task.StageName, in stage.Input) stage.Outcome {
	ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: time.Minute,
		RetryPolicy:         endless(10 * time.Second),
	})
	var o stage.Outcome
	err := workflow.ExecuteLocalActivity(ctx, activityName(name), in).Get(ctx, &o)
	return outcomeOf(ctx, o, err)
}

// outcomeOf is the outcome of a stage whose activity may have ended with err:
// then nobody could say more than that.
func outcomeOf(ctx workflow.Context, o stage.Outcome, err error) stage.Outcome {
	switch {
	case err == nil:
		return o
	case ctx.Err() != nil || temporal.IsCanceledError(err):
		return stage.Outcome{State: task.StageCancelled, Reason: task.Cancelled, Text: "cancelled on request"}
	default:
		return stage.Outcome{State: task.StageFailed, Reason: task.InfraInternal, Text: fmt.Sprintf("the control plane could not run the stage: %v", err)}
	}
}

// stageLimit bounds one run of a stage: its commands' own limits, and what
// surrounds them.
func stageLimit(name task.StageName, command time.Duration) time.Duration {
	switch name {
	case task.Provision:
		return 15 * time.Minute
	case task.Verify:
		return 10*command + time.Hour // three runs, each with setup twice at most
	default:
		return command + time.Hour
	}
}

// closeTask always runs: it destroys, records, seals, and goes on destroying
// what could not be reached at first.
func closeTask(ctx workflow.Context, in stage.Input, e stage.Ending) error {
	begin := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: time.Minute, RetryPolicy: endless(10 * time.Second),
	})
	if err := workflow.ExecuteLocalActivity(begin, beginCloseName, in).Get(begin, nil); err != nil {
		return err
	}
	left := sweep(ctx, in.Task, 5*time.Minute) != nil
	finish := workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Minute, HeartbeatTimeout: heartbeat, RetryPolicy: endless(time.Minute),
	})
	err := workflow.ExecuteActivity(finish, finishName, finishInput{Input: in, Ending: e, Left: left}).Get(finish, nil)
	if err != nil {
		return err
	}
	if left {
		// What is left after that long is for `doctor`; the task ended long ago.
		_ = sweep(ctx, in.Task, 30*24*time.Hour)
	}
	return nil
}

// sweep destroys the task's sandboxes, trying again until limit has passed.
func sweep(ctx workflow.Context, taskID string, limit time.Duration) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 15 * time.Minute, ScheduleToCloseTimeout: limit,
		HeartbeatTimeout: heartbeat, RetryPolicy: endless(time.Minute),
	})
	return workflow.ExecuteActivity(ctx, sweepName, taskID).Get(ctx, nil)
}

// endless retries without a bound of its own.
func endless(most time.Duration) *temporal.RetryPolicy {
	return &temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: most}
}
