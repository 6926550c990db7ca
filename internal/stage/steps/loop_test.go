package steps

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// decider is an agent of our own that does what a test says.
type decider struct {
	mu   sync.Mutex
	jobs []stage.LoopJob
	do   func(context.Context, stage.LoopJob) error
}

func (d *decider) Run(ctx context.Context, job stage.LoopJob) error {
	d.mu.Lock()
	d.jobs = append(d.jobs, job)
	d.mu.Unlock()
	return d.do(ctx, job)
}

func startLoop(t *testing.T, do func(context.Context, stage.LoopJob) error) (*house, *decider) {
	t.Helper()
	h := start(t, task.Spec{Agent: task.AgentSpec{Name: "loop"}, Prompt: "mend it"})
	d := &decider{do: do}
	h.work.Loop = d
	h.lender.env = map[string]string{"anthropic": "ANTHROPIC_API_KEY", "registry": "NPM_TOKEN"}
	h.plan.plan.Rules = map[task.StageName][]task.Rule{task.Agent: {
		{ID: "agent.network.allow[0]", Host: "registry.test", Ports: []uint16{443}, Credential: "registry"},
		{ID: stage.ModelRule, Host: "model.test", Ports: []uint16{443}, Protocol: task.ProtocolHTTP, Credential: "anthropic"},
	}}
	return h, d
}

// say runs a shell line through the job's hands.
func say(ctx context.Context, job stage.LoopJob, id, line string) error {
	var out bytes.Buffer
	res, err := job.Hands.Run(ctx, sandbox.Command{ID: id, Argv: []string{"sh", "-c", line}, Env: job.Env, Timeout: time.Minute}, &out)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(job.Log, "%s%d\n", out.String(), res.ExitCode)
	return err
}

// The model's rule and its lease are the loop's; the sandbox has the rest.
func TestLoopAloneReachesItsModel(t *testing.T) {
	h, d := startLoop(t, func(ctx context.Context, job stage.LoopJob) error {
		return say(ctx, job, "one", `echo "${NPM_TOKEN:-none} ${ANTHROPIC_API_KEY:-none}"; echo fixed > answer`)
	})
	succeeds(t, h.through(task.Export, 1))
	job := d.jobs[0]
	if job.Task != taskID || job.Attempt != 1 || job.Prompt != "mend it" || job.Commit != h.task.Commit || time.Until(job.Until) < time.Minute {
		t.Errorf("job %+v", job)
	}
	if len(job.Grant.Rules) != 1 || job.Grant.Rules[0].ID != stage.ModelRule || len(job.Grant.Leases) != 1 || job.Grant.Leases[0].Credential != "anthropic" {
		t.Errorf("the loop's grant is %+v", job.Grant)
	}
	given := 0
	for _, g := range h.machine.grants {
		for _, r := range g.Rules {
			given++
			if r.Host != "registry.test" {
				t.Errorf("the sandbox may reach %+v", r)
			}
		}
		for _, l := range g.Leases {
			if l.Credential != "registry" {
				t.Errorf("the sandbox was lent %+v", l)
			}
		}
	}
	if given != 1 {
		t.Errorf("the sandbox was given %d rules", given)
	}
	if got := h.bytes("log.agent"); !strings.HasPrefix(got, "placeholder") || !strings.HasSuffix(got, " none\n0\n") {
		t.Errorf("log %q", got)
	}
	if !strings.Contains(h.bytes("patch"), "+fixed") || h.audit["command.started/"+h.box(stage.RoleAgent)+"/one"] == "" {
		t.Errorf("audit %v", h.audit)
	}
}

// How the loop ends is how the stage ends, and what it started ends with it.
func TestLoopEndsItsStage(t *testing.T) {
	h, _ := startLoop(t, func(ctx context.Context, job stage.LoopJob) error {
		if err := say(ctx, job, "left", `(while :; do sleep 0.01; done) > /dev/null 2>&1 & echo begun`); err != nil {
			return err
		}
		return task.Fail(task.ModelLimited, "too many requests", nil)
	})
	fails(t, h.through(task.Act, 1), task.ModelLimited, "too many requests")
	h, _ = startLoop(t, nil)
	h.work.Loop = nil
	fails(t, h.through(task.Act, 1), task.InputInvalid, "loop")
}

// A run that is cut off is run again with the same job; its log has each byte once.
func TestLoopIsRunAgain(t *testing.T) {
	var cut context.CancelCauseFunc
	runs := 0
	h, d := startLoop(t, func(ctx context.Context, job stage.LoopJob) error {
		runs++
		job.Hands.Adopt("before")
		if err := say(ctx, job, "one", `echo x >> "$HOME/ran"; cat "$HOME/ran"`); err != nil {
			return err
		}
		if runs == 1 {
			cut(ErrStopping)
			return context.Cause(ctx)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: "content", Typeflag: tar.TypeReg, Mode: 0o600, Size: 2}); err != nil {
			return err
		}
		if _, err := w.Write([]byte("p\n")); err != nil {
			return err
		}
		if err := w.Close(); err != nil {
			return err
		}
		if err := job.Hands.Put(ctx, "/tmp/staged", &b); err != nil {
			return err
		}
		return say(ctx, job, "two", `cat /tmp/staged/content`)
	})
	succeeds(t, h.through(task.Setup, 1))
	ctx, cancel := context.WithCancelCause(t.Context())
	cut = cancel
	if _, err := h.work.Do(ctx, task.Agent, stage.Input{Task: taskID, Attempt: 1, Round: 1}); err == nil {
		t.Fatal("a run that was cut off has an outcome")
	}
	succeeds(t, h.do(task.Agent, 1))
	if got := h.bytes("log.agent"); got != "x\n0\np\n0\n" {
		t.Errorf("log %q", got)
	}
	if !d.jobs[0].Until.Equal(d.jobs[1].Until) || !slices.Equal(d.jobs[0].Env, d.jobs[1].Env) {
		t.Errorf("the job changed: %+v, %+v", d.jobs[0], d.jobs[1])
	}
	if n := h.machine.starts[h.box(stage.RoleAgent)+"/one"]; n != 1 {
		t.Errorf("the command ran %d times", n)
	}
}
