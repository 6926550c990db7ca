// Package steps does the work of each stage through the ports that package
// stage declares. It knows nothing of the engine: a stage run is one call of
// Do, which may be cut off at any moment and repeated with the same input.
//
// Words. A run is one run of one stage. A step is the part of a run that
// differs from stage to stage. What a step starts in a sandbox has a fixed id,
// so that a repeated run attaches to it. To settle a run is to end the
// processes it left and to take its grant away, before the next stage's grant
// applies. The base is a git bundle of the checked-out commit, taken before
// anything of the repository or the agent ran; export and verify start from it
// and from nothing else.
//
// Not promised: that a run which ended with an infrastructure fault left its
// sandbox usable.
package steps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/granted"
	"github.com/cofferdam/cofferdam/internal/stage/steps/purse"
	"github.com/cofferdam/cofferdam/internal/stage/steps/sealed"
	"github.com/cofferdam/cofferdam/internal/task"
)

// ErrStopping is the cause with which a run's context is cancelled when the
// program that does the run goes down: the run is then left as it is, to be
// taken up again. Any other cause means that the task is cancelled.
var ErrStopping = errors.New("the control plane is stopping")

// Who saw a fact.
const (
	seenByControl = "control plane"
	seenByWorker  = "worker"
	seenByGateway = "gateway"
)

// settleLimit bounds how long a cancelled run may take to end its processes.
const settleLimit = 30 * time.Second

// Deps is what the steps reach the world through. All but Masks, Loop and
// Approvals are required.
type Deps struct {
	Sandboxes  stage.Sandboxes
	Facts      stage.Facts
	Logs       stage.Logs
	Blobs      stage.Blobs
	Recorder   stage.Recorder
	Policies   stage.Policies
	Leases     stage.Leases
	Masks      stage.Masks // nil: nothing is masked
	Harnesses  stage.Harnesses
	Permission stage.FilePermission
	FileFacts  stage.FileFacts
	Judge      stage.PatchJudge
	Loop       stage.Loop      // nil: a task that asks for it is refused
	Approvals  stage.Approvals // nil: nobody is asked anything
	Budgets    purse.Purse
	Now        func() time.Time
	Logger     *slog.Logger
}

// Work does the stages of tasks.
type Work struct {
	Deps
	*granted.Grants
}

// New returns the work of d.
func New(d Deps) *Work {
	d.Sandboxes = present{d.Sandboxes}
	if d.Masks != nil {
		d.Facts = sealed.Facts{Facts: d.Facts, Masks: d.Masks}
	}
	return &Work{Deps: d, Grants: granted.New(d.Sandboxes)}
}

// errSkipped is what a step returns that has nothing to do.
var errSkipped = errors.New("skipped")

// Do runs one stage. The outcome holds every failure of the stage; the error
// is ErrStopping, and then nothing was decided.
func (w *Work) Do(ctx context.Context, name task.StageName, in stage.Input) (stage.Outcome, error) {
	r, err := w.begin(ctx, name, in)
	if err == nil && r.done != nil {
		return *r.done, nil
	}
	if err == nil {
		err = w.step(ctx, r)
	}
	if errors.Is(context.Cause(ctx), ErrStopping) {
		r.leave()
		return stage.Outcome{}, ErrStopping
	}
	o := r.finish(ctx, err)
	if errors.Is(context.Cause(ctx), ErrStopping) {
		return stage.Outcome{}, ErrStopping
	}
	return o, nil
}

func (w *Work) step(ctx context.Context, r *run) error {
	switch r.name {
	case task.Admit:
		return w.admit(ctx, r)
	case task.Provision:
		return w.provision(ctx, r)
	case task.Checkout:
		return w.checkout(ctx, r)
	case task.Setup:
		return w.setup(ctx, r)
	case task.Agent:
		return w.agent(ctx, r)
	case task.Export:
		return w.export(ctx, r)
	case task.Verify:
		return w.verify(ctx, r)
	case task.Act:
		return errSkipped // no action exists yet: nothing outside is changed
	default:
		return fmt.Errorf("stage %q has no step", r.name)
	}
}

// roleOf is the role of the sandbox that a stage works in; empty: none.
func roleOf(name task.StageName) string {
	switch name {
	case task.Provision, task.Checkout, task.Setup, task.Agent:
		return stage.RoleAgent
	case task.Export:
		return stage.RoleExport
	case task.Verify:
		return stage.RoleVerify
	default:
		return ""
	}
}

// outcomeOf turns a step's error into the stage's outcome.
func outcomeOf(ctx context.Context, err error) stage.Outcome {
	var failure *task.Failure
	switch {
	case err == nil:
		return stage.Outcome{State: task.StageSucceeded}
	case errors.Is(err, errSkipped):
		return stage.Outcome{State: task.StageSkipped}
	case ctx.Err() != nil:
		return stage.Outcome{State: task.StageCancelled, Reason: task.Cancelled, Text: "cancelled on request"}
	case errors.As(err, &failure) && failure.Reason == task.Cancelled:
		return stage.Outcome{State: task.StageCancelled, Reason: task.Cancelled, Text: failure.Text}
	case errors.As(err, &failure):
		return stage.Outcome{State: task.StageFailed, Reason: failure.Reason, Text: failure.Text}
	default:
		return stage.Outcome{State: task.StageFailed, Reason: task.InfraInternal, Text: "a fault of the control plane; its log has the details"}
	}
}

// hasReason says whether err is a failure with the reason.
func hasReason(err error, reason task.Reason) bool {
	var failure *task.Failure
	return errors.As(err, &failure) && failure.Reason == reason
}
