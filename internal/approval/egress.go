package approval

import (
	"context"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Connections asks about connections that wait at a gateway. All fields are
// required.
type Connections struct {
	Inbox *Inbox
	// Held is what a running stage's sandbox may reach; false where that is not
	// known now, as for a moment after a restart.
	Held func(sandbox string) (task.Grant, bool)
	// May says whether policy lets the connection be asked about.
	May func(u task.Unknown, e task.EgressAsk) bool
	// Task finds a task.
	Task func(ctx context.Context, id string) (task.Task, error)
	// Running tells the commands of a sandbox that run now, as far as its machine
	// answers.
	Running func(ctx context.Context, sandbox string) []task.RunningCommand
}

// Ask asks about a held connection, or looks after the entry id that an earlier
// turn gave. It waits for at most wait. Errors are *task.Failure:
// task.PolicyDenied for what is not to be asked, task.InfraControlAway for what
// can't be known now.
func (c *Connections) Ask(ctx context.Context, h task.Held, id string, wait time.Duration) (Answer, error) {
	grant, ok := c.Held(h.Sandbox)
	if !ok {
		return Answer{}, task.Fail(task.InfraControlAway, "what the sandbox's stage may reach is not known at this moment; ask again", nil)
	}
	if grant.Task == "" || !c.May(grant.Unknown, h.EgressAsk) {
		return Answer{}, task.Fail(task.PolicyDenied, "policy does not let this be asked", nil)
	}
	t, err := c.Task(ctx, grant.Task)
	if err != nil {
		return Answer{}, err
	}
	what, err := task.Canonical(h.EgressAsk)
	if err != nil {
		return Answer{}, task.Fail(task.InputInvalid, "the connection can't be told", err)
	}
	q := task.Question{
		Key:  fmt.Sprintf("egress/%s/%s/%s", h.Sandbox, grant.Stage, task.DigestOf(what)),
		Kind: task.AskEgress, Task: t.ID, Project: t.Spec.Project, Stage: grant.Stage, Attempt: t.Attempt, Sandbox: h.Sandbox,
		Requester: t.RequestedBy, What: what, Wait: grant.Unknown.Wait, Admins: grant.Unknown.Admins,
	}
	if id == "" {
		q.Commands = c.Running(ctx, h.Sandbox)
	}
	return c.Inbox.Poll(ctx, q, h.Use, id, wait)
}
