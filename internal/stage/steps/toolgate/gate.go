// Package toolgate stops an agent's uses of tools until policy, or a person, has
// said whether they may be.
//
// Words. A gate is of one run of the agent stage. A use is decided by policy, or
// asked about; its key names it in the stage's attempt. A listener's reader that
// asks is an asker; an asking puts its questions to the gate, each on its own, and
// gives it the answers.
//
// The same run again, after a restart, puts the same questions with the same keys
// and has the same answers: those of policy since it is pure, those of persons
// since the inbox keeps them.
//
// Not promised: that an agent's own program asks before everything it does. What
// runs in the sandbox is bounded by the sandbox, whatever was asked.
package toolgate

import (
	"context"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Gate is a stage.ToolGate.
type Gate struct {
	Policy    stage.ToolPolicy
	Approvals stage.Approvals // nil: nobody can be asked
	Question  task.Question   // with what is the same of each question
	Until     time.Time       // the stage's time ends here
	Now       func() time.Time
}

var _ stage.ToolGate = (*Gate)(nil)

// New returns the gate of a run of a task's agent stage; nil where policy says
// nothing of tools.
func New(policy stage.ToolPolicy, approvals stage.Approvals, t task.Task, row task.Stage, until time.Time, now func() time.Time) stage.ToolGate {
	if policy == nil {
		return nil
	}
	return &Gate{
		Policy: policy, Approvals: approvals, Until: until, Now: now,
		Question: task.Question{
			Kind: task.AskTool, Task: t.ID, Project: t.Spec.Project, Stage: task.Agent, Attempt: row.Attempts, Sandbox: row.Sandbox, Requester: t.RequestedBy,
		},
	}
}

// Judge implements stage.ToolGate.
func (g *Gate) Judge(use task.ToolAsk) task.ToolDecision { return g.Policy.Decide(use) }

// May implements stage.ToolGate.
func (g *Gate) May(ctx context.Context, key string, use task.ToolAsk) (task.ToolAnswer, error) {
	d := g.Policy.Decide(use)
	by := fmt.Sprintf("the policy (%s, %s)", d.Layer, d.Rule)
	switch {
	case d.Verdict == task.ToolAllowed:
		return task.ToolAnswer{Allow: true, Text: "allowed by " + by}, nil
	case d.Verdict != task.ToolAsked:
		return task.ToolAnswer{Reason: task.PolicyDenied, Text: "refused by " + by}, nil
	case g.Approvals == nil:
		return task.ToolAnswer{Reason: task.ApprovalDenied, Text: "asked for by " + by + ", and nobody can be asked"}, nil
	}
	use.ByName = g.Policy.Harmless(use)
	what, err := task.Canonical(use)
	if err != nil {
		return task.ToolAnswer{Reason: task.ApprovalDenied, Text: "it can't be shown to anybody"}, nil //nolint:nilerr // the use is refused for it
	}
	q, terms := g.Question, g.Policy.Terms()
	q.Key, q.What, q.Admins = fmt.Sprintf("tool/%d/%s", q.Attempt, key), what, terms.Admins
	// Never longer than there is somebody to use the answer.
	q.Wait = max(time.Second, min(terms.Wait, g.Until.Sub(g.Now())))
	return g.Approvals.Tool(ctx, q)
}
