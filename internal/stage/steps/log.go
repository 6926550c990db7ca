package steps

import (
	"context"
	"fmt"
	"io"

	"github.com/cofferdam/cofferdam/internal/output/evidence"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/stage/steps/sealed"
	"github.com/cofferdam/cofferdam/internal/stage/steps/verified"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

type writer = io.Writer

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// stageLog appends the output of a stage's commands, one after the other, to
// the stage's log. After a crash the commands are attached to again from their
// beginning and what the log has already is skipped.
type stageLog struct {
	to   stage.LogWriter
	skip int64
}

// Write appends what the log does not have yet.
func (l *stageLog) Write(b []byte) (int, error) {
	n := int(min(l.skip, int64(len(b))))
	l.skip -= int64(n)
	if n == len(b) {
		return n, nil
	}
	m, err := l.to.Write(b[n:])
	return n + m, err
}

// openLog opens the run's log once.
func (r *run) openLog(ctx context.Context) error {
	if r.log != nil {
		return nil
	}
	to, err := r.Facts.Log(ctx, r.in.Task, r.in.Attempt, r.logName())
	if err != nil {
		return err
	}
	r.log = &stageLog{to: to, skip: to.Offset()}
	return nil
}

// logName is the log of this run. Each run of the verify command has its own.
func (r *run) logName() task.StageName {
	if r.name == task.Verify {
		return stage.RoundLog(r.name, verified.Round(r.trialName, r.in.Round))
	}
	return r.name
}

// logged runs one of several commands whose output is the stage's log.
func (r *run) logged(ctx context.Context, c command) (stage.Result, error) {
	if err := r.openLog(ctx); err != nil {
		return stage.Result{}, err
	}
	if err := r.recordCommand(ctx, c); err != nil {
		return stage.Result{}, err
	}
	return r.shown(ctx, c, 0, r.log)
}

// only runs the one command whose output is the stage's log, going on where
// the log ends.
func (r *run) only(ctx context.Context, c command) (stage.Result, error) {
	if err := r.openLog(ctx); err != nil {
		return stage.Result{}, err
	}
	if err := r.recordCommand(ctx, c); err != nil {
		return stage.Result{}, err
	}
	return r.shown(ctx, c, r.log.to.Offset(), r.log.to)
}

// shown runs a command whose output is kept or shown: no value that its task was
// lent is in it.
func (r *run) shown(ctx context.Context, c command, offset int64, out writer) (stage.Result, error) {
	if r.Masks == nil {
		return r.exec(ctx, c, offset, out)
	}
	to := sealed.NewOutput(out, func() *mask.Masker { return r.Masks.Masker(r.in.Task) })
	res, err := r.exec(ctx, c, offset, to)
	return res, to.End(err)
}

// sealed takes what the task was lent out of a text that tells of it.
func (r *run) sealed(text string) string {
	if r.Masks == nil {
		return text
	}
	return r.Masks.Masker(r.in.Task).Seal(text)
}

// clean reads what can't be kept with a value in it.
func (r *run) clean(what string, from io.Reader) io.Reader {
	if r.Masks == nil {
		return from
	}
	return sealed.Clean(from, r.Masks.Masker(r.in.Task), task.Fail(task.PolicyCredential,
		what+" has the value of a credential that was lent to the task, so it is not kept; find out where it comes from, and replace the credential", nil))
}

// leave lets go of the log without ending the run.
func (r *run) leave() {
	if r.log == nil {
		return
	}
	if err := r.log.to.Close(); err != nil {
		r.Logger.Warn("log not closed", "task", r.in.Task, "stage", r.name, "err", err)
	}
}

// recordCommand says what is about to run before it runs.
func (r *run) recordCommand(ctx context.Context, c command) error {
	digest, err := fact.Digest(c.argv)
	if err != nil {
		return err
	}
	return r.Recorder.Record(ctx, r.in.Task, fmt.Sprintf("command.started/%s/%s", r.row.Sandbox, c.id),
		"command.started", seenByControl, fact.CommandStarted{
			Task: r.in.Task, Attempt: r.in.Attempt, Stage: r.name, Sandbox: r.row.Sandbox, Command: c.id, Digest: digest,
		})
}

// maxLog bounds a stored log. The commands' own limit bounds it long before.
const maxLog = 1 << 40

// storeLog keeps the stage's log by hash as output "log.<stage>".
func (r *run) storeLog(ctx context.Context) (task.Digest, error) {
	if r.log == nil {
		return "", nil
	}
	if err := r.log.to.Close(); err != nil {
		return "", err
	}
	r.log = nil
	name, as := r.name, "log."+string(r.name)
	if r.trialName != "" && r.trialName != evidence.Patch {
		name, as = r.logName(), verified.Log(r.trialName)
	}
	from, _, err := r.Logs.OpenLog(ctx, r.in.Task, r.in.Attempt, name, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }() // it was only read
	return r.keep(ctx, as, "log", from, maxLog)
}

// keep stores bytes and records them as an output of the task.
func (r *run) keep(ctx context.Context, name, kind string, from io.Reader, limit int64, flags ...string) (task.Digest, error) {
	digest, size, err := r.Blobs.Put(ctx, from, limit)
	if err != nil {
		return "", err
	}
	if flags == nil {
		flags = []string{}
	}
	return digest, r.addOutput(ctx, task.Output{Name: name, Kind: kind, Digest: digest, Size: size, Flags: flags})
}

// addOutput records an output whose bytes are stored.
func (r *run) addOutput(ctx context.Context, o task.Output) error {
	err := r.Recorder.Record(ctx, r.in.Task, fmt.Sprintf("output.kept/%d/%s/%s", r.in.Attempt, o.Name, o.Digest),
		"output.kept", seenByControl, fact.OutputKept{Task: r.in.Task, Attempt: r.in.Attempt, Output: o})
	if err != nil {
		return err
	}
	return r.Facts.AddOutput(ctx, r.in.Task, o)
}

// output finds an output of the task by name.
func (r *run) output(name string) (task.Output, bool) {
	for _, o := range r.task.Outputs {
		if o.Name == name {
			return o, true
		}
	}
	return task.Output{}, false
}
