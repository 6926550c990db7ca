package steps

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/toolgate"
	"github.com/cofferdam/cofferdam/internal/task"
)

// agentHome is the workload's HOME.
const agentHome = "/home/agent"

// maxSilence bounds how long a model's server may say nothing to a harness.
const maxSilence = 10 * time.Minute

// patience is how many silences a harness is given, for tries of its own, before
// it is ended.
const patience = 4

// harness runs an agent that is a program of its own. A run that broke off
// because the gateway was restarted is gone on with in the next round, by the
// harness's own session: the earlier commands are read again, so that a repeated
// run comes to the same session.
func (w *Work) harness(ctx context.Context, r *run) error {
	h, err := w.Harnesses.Find(r.task.Spec.Agent)
	if err != nil {
		return err
	}
	session := ""
	for n := 1; ; n++ {
		end, failed := r.harnessRun(ctx, h, n, session)
		if !hasReason(failed, task.InfraEgressRestarted) || end.Session == "" {
			return failed
		}
		if n >= r.in.Round {
			r.outcome.Resumable = true
			return failed
		}
		session = end.Session
	}
}

// harnessRun runs the nth command of the harness, or reads it again.
func (r *run) harnessRun(ctx context.Context, h stage.Harness, n int, session string) (stage.HarnessEnd, error) {
	silence := min(maxSilence, r.plan.CommandTime(task.Agent)/(2*patience))
	job := stage.HarnessRun{Prompt: r.task.Spec.Prompt, Placeholder: r.placeholder(r.task.Spec.Agent.CredentialName()), Session: session, Silence: silence, Asks: r.plan.Tools != nil}
	job.Kind, job.Header = r.carried(r.task.Spec.Agent.CredentialName())
	start, err := h.Start(job)
	if err != nil {
		return stage.HarnessEnd{}, err
	}
	id := "agent"
	if n > 1 {
		id = fmt.Sprintf("agent-%d", n)
	}
	if err := r.putFiles(ctx, start.Files); err != nil {
		return stage.HarnessEnd{}, err
	}
	if err := r.openLog(ctx); err != nil {
		return stage.HarnessEnd{}, err
	}
	c := command{
		id: id, argv: start.Argv, env: slices.Concat(r.taskEnv(), r.leaseEnv(), start.Env), timeout: r.plan.CommandTime(task.Agent),
		stdin: start.Stdin,
	}
	if err := r.recordCommand(ctx, c); err != nil {
		return stage.HarnessEnd{}, err
	}
	l := &listener{run: r, ctx: ctx, command: id, open: map[string]bool{}, heard: time.Now()}
	var stop func()
	if l.reader, stop, err = toolgate.Ask(ctx, h.Read(job, l.event), r.gate(), id, l.told, l.heed); err != nil {
		return stage.HarnessEnd{}, err
	}
	defer stop()
	unwatch := l.watch(patience*silence, silence/10)
	hush := l.speak(start.Stdin)
	res, err := r.shown(ctx, c, 0, l)
	hush()
	unwatch()
	if err != nil {
		return stage.HarnessEnd{}, err
	}
	exit := res.ExitCode
	if res.Signal != 0 || res.Error != "" {
		exit = -1
	}
	end := l.reader.End(exit)
	if l.failed != nil {
		return end, l.failed
	}
	return end, r.judgeHarness(res, end, l)
}

// judgeHarness puts the machine's own facts before what the harness says. Of one
// whose turn is over the end does not count: it may have been ended from here.
func (r *run) judgeHarness(res stage.Result, end stage.HarnessEnd, l *listener) error {
	class := res.Reason.Class()
	switch {
	case l.ended != nil:
		return l.ended
	case l.mouth.done && class != "infra" && class != "limit" && end.Failure == nil:
		return nil
	case class == "infra" || class == "limit" || class == "cancelled" || res.Phase != sandbox.CommandExited || res.Error != "" || res.Signal != 0:
		return r.judge(res, task.AgentFailed, "the agent")
	case end.Failure == nil:
		return nil
	case r.gave && res.EpochBefore != res.EpochAfter:
		return task.Fail(task.InfraEgressRestarted, "the agent failed while the gateway was restarted", nil)
	}
	return end.Failure
}

// agents are the programs that the sandbox of a role must have.
func (r *run) agents(role string) ([]string, error) {
	switch r.task.Spec.Agent.Name {
	case "command", "loop", "": // named by the repository, it is one of the two
		return nil, nil
	}
	if role != stage.RoleAgent {
		return nil, nil
	}
	h, err := r.Harnesses.Find(r.task.Spec.Agent)
	if err != nil || h.Package() == "" {
		return nil, err
	}
	return []string{h.Package()}, nil
}

// putFiles puts a harness's files beneath HOME.
func (r *run) putFiles(ctx context.Context, files []stage.HarnessFile) error {
	if len(files) == 0 {
		return nil
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{}
	for _, f := range files {
		for i, c := range f.Path {
			if dir := f.Path[:i]; c == '/' && !made[dir] {
				made[dir] = true
				if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
					return err
				}
			}
		}
		if path.Clean(f.Path) != f.Path || strings.HasPrefix(f.Path, "/") || strings.HasPrefix(f.Path, "..") {
			return fmt.Errorf("harness file %q is not beneath HOME", f.Path)
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: 0o644, Size: int64(len(f.Data))}); err != nil {
			return err
		}
		if _, err := w.Write(f.Data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return r.Sandboxes.Put(ctx, r.row.Sandbox, agentHome, &b)
}

// listener takes a harness's output: all of it goes to the reader of events, and
// what the log does not have to the log.
type listener struct {
	run     *run
	ctx     context.Context //nolint:containedctx // of the one command it listens to
	command string
	reader  stage.HarnessReader
	events  int
	failed  error // of keeping an event

	mu    sync.Mutex
	ended *task.Failure   // why it was ended from here; nil: it was not
	open  map[string]bool // calls without a result yet: then a command may work in silence
	heard time.Time
	mouth mouth
}

// Write implements io.Writer.
func (l *listener) Write(b []byte) (int, error) { return l.WriteFd(1, b) }

// WriteFd implements stage.FdWriter.
func (l *listener) WriteFd(fd int, b []byte) (int, error) {
	l.mu.Lock()
	l.heard = time.Now()
	l.mu.Unlock()
	n, err := l.run.log.Write(b)
	if err != nil {
		return n, err
	}
	l.reader.Output(fd, b)
	l.answer()
	if why := l.reader.Hopeless(); why != nil {
		l.mu.Lock()
		l.ended = why
		l.mu.Unlock()
	}
	return n, l.failed
}

// event keeps one event, once whatever is read again.
func (l *listener) event(e task.AgentEvent) {
	l.mu.Lock()
	switch e.Type {
	case "call":
		l.open[e.Call] = true
	case "result":
		delete(l.open, e.Call)
	}
	l.mu.Unlock()
	if l.failed != nil {
		return
	}
	l.events++
	e.Time = l.run.Now()
	key := fmt.Sprintf("%d/%s/%d", l.run.in.Attempt, l.command, l.events)
	if err := l.run.Facts.AddAgentEvent(l.ctx, l.run.in.Task, key, e); err != nil {
		l.failed = err
	}
}

// told keeps what became of a question of the harness's.
func (l *listener) told(key string, e task.AgentEvent) error {
	e.Time = l.run.Now()
	return l.run.Facts.AddAgentEvent(l.ctx, l.run.in.Task, fmt.Sprintf("%d/%s", l.run.in.Attempt, key), e)
}

// heed has what was answered said.
func (l *listener) heed() {
	l.mu.Lock()
	l.heard = time.Now()
	l.mu.Unlock()
	l.answer()
}

// gate is where the agent's uses of tools are stopped; nil: they are not.
func (r *run) gate() stage.ToolGate {
	return toolgate.New(r.plan.Tools, r.Approvals, r.task, r.row, r.row.StartedAt.Add(r.plan.CommandTime(task.Agent)), r.Now)
}

// watch ends the command when nothing was heard for limit and no call is open:
// then the model is what it waits for; or when its reader says that it is
// hopeless. The function it returns ends the watch.
func (l *listener) watch(limit, pace time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(max(pace, 10*time.Millisecond))
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				if l.run.Budgets.Waits(ctx, l.run.in.Task) {
					l.mu.Lock()
					l.heard = time.Now()
					l.mu.Unlock()
				}
			}
			asks := toolgate.Waiting(l.reader)
			l.mu.Lock()
			if l.ended == nil && !asks && len(l.open) == 0 && time.Since(l.heard) > limit {
				l.ended = task.Fail(task.ModelSilent, "the model's server said nothing in time, and the agent was ended", nil)
			}
			ended := l.ended != nil
			l.mu.Unlock()
			if !ended {
				continue
			}
			if err := l.run.Sandboxes.Kill(ctx, l.run.row.Sandbox, l.command); err != nil && ctx.Err() == nil {
				l.run.Logger.Warn("a silent agent could not be ended yet", "task", l.run.in.Task, "err", err)
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}
