//go:build soak

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// job is one task and what it should end as.
type job struct {
	name, kind string
	state      string
	reason     task.Reason
	after      time.Duration // of a cancelled one: when
	request    api.TaskRequest
	task       api.Task
	err        error
}

// tell is what every agent does first: it draws a number and tells it until it
// is heard, so that a cut connection is no second run.
const tell = `nonce=$(cat /proc/sys/kernel/random/uuid)
until curl -sf -m 5 -d job=%s -d run=$nonce http://counter.test:%d/began; do sleep 0.3; done
`

// kinds are the jobs by their weight.
func kinds() []string {
	return []string{
		"mend", "mend", "mend", "mend", "wrong", "fails", "denied", "noisy",
		"loop", "loop", "loop", "cancel", "cancel",
	}
}

func newJob(i int, r *rand.Rand) *job {
	all := kinds()
	return &job{name: fmt.Sprintf("job-%05d", i), kind: all[r.IntN(len(all))], after: time.Duration(r.IntN(4000)) * time.Millisecond}
}

// prepare fills the request and what it should come to.
func (j *job) prepare(w *world) {
	began := fmt.Sprintf(tell, j.name, w.port)
	script := began
	j.state = api.Succeeded
	j.request = api.TaskRequest{Repo: w.source, Policy: w.policy, Prompt: j.name}
	switch j.kind {
	case "mend":
		script += "echo 42 > answer.txt; sleep 0.5"
		j.request.Setup, j.request.Verify = "echo set", "./check.sh"
	case "wrong":
		script += "echo 43 > answer.txt"
		j.request.Verify, j.state, j.reason = "./check.sh", api.Failed, task.VerifyFailed
	case "fails":
		script += "exit 3"
		j.state, j.reason = api.Failed, task.AgentFailed
	case "denied":
		script += "curl -s -m 5 http://elsewhere.test/ || true; curl -s -m 5 https://169.254.169.254/ || true; echo x > x"
	case "noisy":
		script += "head -c 3000000 /dev/urandom | base64; head -c 200000 /dev/urandom > blob"
	case "cancel":
		script += "sleep 600"
		j.state, j.reason = api.Cancelled, task.Cancelled
	case "loop":
		// The loop's shell call runs what setup left, outside of the patch.
		j.request.Setup = fmt.Sprintf("cat > /tmp/soak.sh <<'END'\n%sEND\n", began)
		j.request.Verify = "./check.sh"
		j.request.Agent = api.Agent{Name: "loop", ModelURL: w.model}
		return
	}
	j.request.Agent = api.Agent{Name: "command", Argv: []string{"sh", "-c", script}}
}

// run submits the job and waits for its end, through whatever is killed.
func (j *job) run(w *world) {
	j.prepare(w)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	j.err = persist(ctx, func() (err error) {
		j.task, _, err = w.api.CreateTask(ctx, j.request, j.name)
		return err
	})
	if j.err != nil {
		j.err = fmt.Errorf("submit: %w", j.err)
		return
	}
	if j.kind == "cancel" {
		<-time.After(j.after) // at any moment of its life
		if err := persist(ctx, func() error { return w.api.CancelTask(ctx, j.task.ID) }); err != nil {
			j.err = fmt.Errorf("cancel: %w", err)
			return
		}
	}
	j.err = persist(ctx, func() error {
		got, err := w.api.Task(ctx, j.task.ID)
		if err == nil {
			j.task = got
		}
		if err == nil && !got.Ended() {
			err = errOpen
		}
		return err
	})
}

var errOpen = errors.New("the task has not ended")

// persist asks again until the answer is good, since the one who is asked may
// be dead at the moment.
func persist(ctx context.Context, ask func() error) error {
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}
