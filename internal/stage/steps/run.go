package steps

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/task"
)

// run is one run of one stage.
type run struct {
	*Work
	name    task.StageName
	in      stage.Input
	task    task.Task
	plan    stage.Plan
	asked   task.Spec // the request as it came; task.Spec has what the repository fills in
	row     task.Stage
	done    *stage.Outcome // the stage has ended in this attempt already
	outcome stage.Outcome  // what the step adds to its outcome

	log      *stageLog
	commands []string    // started in the stage's sandbox, to be ended with the stage
	ran      []string    // the same, in sandboxes of the stage that are gone
	granted  []task.Rule // what the sandbox could reach in this stage
	lent     []task.Lent // the credentials lent to what was granted last
	gave     bool
	traffic  *traffic // nil: nothing was granted

	trialName string // of the run of the verify command that is under way
	protected bool   // the file rules apply to the stage's sandbox
	notes     string // what people should know of the stage, also when it succeeded
}

// begin reads the facts and records that the stage runs.
func (w *Work) begin(ctx context.Context, name task.StageName, in stage.Input) (*run, error) {
	r := &run{Work: w, name: name, in: in, row: task.Stage{Name: name, Attempts: in.Attempt, Round: in.Round}}
	var err error
	if r.task, err = w.Facts.Task(ctx, in.Task); err != nil {
		if hasReason(err, task.InputNotFound) { // removed, so it had ended
			r.done, err = &stage.Outcome{State: task.StageSkipped, Ended: true}, nil
		}
		return r, err
	}
	if r.task.State.Ended() {
		r.done = &stage.Outcome{State: task.StageSkipped, Ended: true}
		return r, nil
	}
	if w.Masks != nil {
		if err := w.Masks.Learn(ctx, in.Task); err != nil {
			return r, err
		}
	}
	if r.plan, err = w.Policies.Compile(r.task.Spec, r.task.Layers); err != nil {
		return r, err
	}
	r.asked, r.task.Spec = r.task.Spec, r.plan.Effective(r.task.Spec)
	if name == task.Admit {
		return r, r.start(ctx)
	}
	if have := r.task.PolicyDigest; have != "" && have != r.plan.Digest {
		return r, task.Fail(task.InputPolicy, "this program compiles policies in another way than the one that admitted the task; run the task again", nil)
	}
	for _, row := range r.task.Stages {
		if row.Name != name || row.Attempts != in.Attempt {
			continue
		}
		switch row.State {
		case task.StageSucceeded, task.StageSkipped, task.StageCancelled, task.StageFailed:
			if !row.Reason.Retryable() {
				r.done = &stage.Outcome{State: row.State, Reason: row.Reason, Text: row.Text, ExitCode: row.ExitCode}
				return r, nil
			}
		case task.StageRunning:
			r.row.StartedAt = row.StartedAt
		case task.StagePending:
		}
	}
	return r, r.start(ctx)
}

func (r *run) start(ctx context.Context) error {
	r.row.State = task.StageRunning
	if role := roleOf(r.name); role != "" {
		r.row.Sandbox = stage.SandboxID(r.in.Task, r.in.Attempt, role)
		if role == stage.RoleVerify {
			r.row.Sandbox = stage.RoundSandboxID(r.in.Task, r.in.Attempt, role, r.in.Round)
		}
	}
	if r.row.StartedAt == nil {
		now := r.Now()
		r.row.StartedAt = &now
	}
	return r.Facts.SetStage(ctx, r.in.Task, r.in.Attempt, r.row)
}

// finish settles the run and records how it ended.
func (r *run) finish(ctx context.Context, err error) stage.Outcome {
	o := outcomeOf(ctx, err)
	if o.State == task.StageFailed {
		o.Reason, o.Text = r.Budgets.Outcome(ctx, r.name, r.in.Task, o.Reason, o.Text)
		r.Logger.Warn("stage failed", "task", r.in.Task, "stage", r.name, "attempt", r.in.Attempt, "reason", o.Reason, "err", err)
	}
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
		defer cancel()
	}
	if err := r.settle(ctx); err != nil {
		r.Logger.Warn("stage not settled", "task", r.in.Task, "stage", r.name, "err", err)
		if o.State == task.StageSucceeded {
			o = outcomeOf(ctx, err)
		}
	}
	if r.name == task.Verify || throwAway(r.name) && !o.Reason.Retryable() {
		r.destroy(ctx)
	}
	o.ExitCode, o.Text = r.row.ExitCode, r.sealed(r.withNotes(o.Text))
	o.Ended, o.Attempt, o.Time = r.outcome.Ended, r.outcome.Attempt, r.outcome.Time
	o.Resumable = r.outcome.Resumable && o.Reason == task.InfraEgressRestarted
	now := r.Now()
	r.row.State, r.row.Reason, r.row.Text, r.row.EndedAt = o.State, o.Reason, o.Text, &now
	if err := r.conclude(ctx, o); err != nil {
		r.Logger.Error("stage end not recorded", "task", r.in.Task, "stage", r.name, "err", err)
		if o.State != task.StageCancelled {
			return outcomeOf(ctx, err)
		}
	}
	return o
}

// conclude stores the log and writes the end to the audit and to the facts, in
// this order: a stage that the facts call ended is never run again.
func (r *run) conclude(ctx context.Context, o stage.Outcome) error {
	if r.task.ID == "" {
		return nil // the facts could not even be read
	}
	if _, err := r.storeLog(ctx); err != nil {
		return err
	}
	key := fmt.Sprintf("stage.ended/%d/%s/%d", r.in.Attempt, r.name, r.in.Round)
	err := r.Recorder.Record(ctx, r.in.Task, key, "stage.ended", seenByControl, fact.StageEnded{
		Task: r.in.Task, Attempt: r.in.Attempt, Round: r.in.Round, Stage: r.name, Sandbox: r.row.Sandbox,
		State: o.State, Reason: o.Reason, ExitCode: o.ExitCode, Commands: append(r.ran, r.commands...),
		Rules: r.granted, PolicyDigest: r.plan.Digest,
	})
	if err != nil {
		return err
	}
	return r.Facts.SetStage(ctx, r.in.Task, r.in.Attempt, r.row)
}

// settle ends what the stage left running and takes its grant away.
func (r *run) settle(ctx context.Context) error {
	var errs []error
	for _, id := range r.commands {
		if err := r.Sandboxes.Kill(ctx, r.row.Sandbox, id); err != nil && !hasReason(err, task.InputNotFound) && !hasReason(err, task.InputConflict) { // Frozen: nothing runs.
			errs = append(errs, err)
		}
	}
	r.endTraffic()
	if !r.gave && r.name == task.Agent && r.plan.Tools != nil {
		errs = append(errs, r.abandon(ctx))
	}
	if r.gave {
		errs = append(errs, r.Leases.End(ctx, r.in.Task, r.row.Sandbox, task.EndedStage), r.abandon(ctx))
		errs = append(errs, r.SetGrant(ctx, task.Grant{Task: r.in.Task, Sandbox: r.row.Sandbox, PolicyDigest: r.plan.Digest}, nil))
		if err := r.collect(ctx, r.in.Task, r.row.Sandbox); err != nil {
			r.Logger.Warn("egress records not collected; close tries again", "task", r.in.Task, "sandbox", r.row.Sandbox, "err", err)
		}
	}
	r.settleFiles(ctx)
	return errors.Join(errs...)
}

// give lets the stage's sandbox reach what the rules of the named stage say.
func (r *run) give(ctx context.Context, name task.StageName, role string) error {
	if !r.plan.Spec(r.in.Task, r.in.Attempt, role).Network {
		return nil // not even a device
	}
	r.gave = true
	r.watchTraffic(ctx)
	grant := r.plan.Grant(r.in.Task, name, r.row.Sandbox).From(r.row.StartedAt)
	r.granted = append(r.granted, grant.Rules...)
	return r.SetGrant(ctx, grant, func(g *task.Grant) error {
		if err := r.answered(ctx, g); err != nil {
			return err
		}
		return r.lend(ctx, g)
	})
}

// create makes the sandbox of the run's role: first on record, then in fact.
func (r *run) create(ctx context.Context, role string) error {
	spec := r.plan.Spec(r.in.Task, r.in.Attempt, role)
	spec.ID = r.row.Sandbox
	var err error
	if spec.Agents, err = r.agents(role); err != nil {
		return err
	}
	if err := r.Facts.AddSandbox(ctx, r.in.Task, spec); err != nil {
		return err
	}
	worker, info, err := r.Sandboxes.Create(ctx, spec)
	if err != nil {
		return err
	}
	if role == stage.RoleAgent {
		if err := r.Facts.SetTask(ctx, r.in.Task, stage.TaskUpdate{Worker: worker}); err != nil {
			return err
		}
	}
	return r.Recorder.Record(ctx, r.in.Task, "sandbox.created/"+spec.ID, "sandbox.created", seenByWorker, fact.SandboxCreated{
		Task: r.in.Task, Attempt: r.in.Attempt, Role: role, Sandbox: spec.ID, Worker: worker,
		Kernel: info.Kernel, Network: spec.Network, Limits: spec.Limits,
	})
}

// throwAway says whether the stage has a sandbox of its own, which ends with
// it. A run that may be taken up again keeps it, but verify has another one in
// each round.
func throwAway(name task.StageName) bool { return name == task.Export || name == task.Verify }

// destroy ends the run's throw-away sandbox at once; close does it again.
func (r *run) destroy(ctx context.Context) {
	if r.row.Sandbox == "" {
		return
	}
	if err := r.discard(ctx, r.in.Task, r.row.Sandbox); err != nil {
		r.Logger.Warn("sandbox not destroyed yet; close tries again", "task", r.in.Task, "sandbox", r.row.Sandbox, "err", err)
	}
}

// command is a command of ours or of the task in the run's sandbox.
type command struct {
	id      string
	argv    []string
	env     []string
	timeout time.Duration // zero: the limit of the sandbox's commands
	stdin   bool          // its standard input is what is given to it while it runs
}

func (r *run) exec(ctx context.Context, c command, offset int64, out writer) (stage.Result, error) {
	if c.timeout <= 0 {
		c.timeout = r.plan.Limits.WithDefaults().Time
	}
	r.commands = append(r.commands, c.id)
	cmd := sandbox.Command{ID: c.id, Argv: c.argv, Env: c.env, Timeout: c.timeout, Stdin: c.stdin}
	if out == nil {
		out = discard{}
	}
	res, err := r.Sandboxes.Run(ctx, r.row.Sandbox, cmd, offset, out, func() {})
	if err != nil {
		return res, err
	}
	if res.ExitCode >= 0 && res.Error == "" {
		code := res.ExitCode
		r.row.ExitCode = &code
	}
	return res, nil
}

// judge returns nil when the command ended well, else the failure: a limit and
// the infrastructure's faults as what they are, the rest with reason.
func (r *run) judge(res stage.Result, reason task.Reason, what string) error {
	class := res.Reason.Class()
	switch {
	case class == "infra" || class == "limit" || class == "cancelled":
		return task.Fail(res.Reason, what+" was ended: "+describe(res), nil)
	case res.Phase != sandbox.CommandExited:
		return task.Fail(task.InfraInternal, what+" did not end", nil)
	case res.ExitCode == 0 && res.Error == "" && res.Signal == 0:
		return nil
	case r.gave && res.EpochBefore != res.EpochAfter:
		return task.Fail(task.InfraEgressRestarted, what+" failed while the gateway was restarted", nil)
	default:
		return task.Fail(reason, what+" "+describe(res), nil)
	}
}

func describe(res stage.Result) string {
	switch {
	case res.Error != "":
		return "could not be started: " + res.Error
	case res.TimedOut:
		return "it took longer than it may"
	case res.Signal != 0:
		return fmt.Sprintf("was killed by signal %d", res.Signal)
	case res.Reason != "":
		return string(res.Reason)
	default:
		return fmt.Sprintf("exited with %d", res.ExitCode)
	}
}
