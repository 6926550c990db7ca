package steps

import (
	"context"
	"io"
	"slices"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// agentLoop is the name of the agent of our own.
const agentLoop = "loop"

// loop runs the agent of our own: it decides in the control plane, and acts in
// the stage's sandbox.
func (w *Work) loop(ctx context.Context, r *run) error {
	if w.Loop == nil {
		return task.Fail(task.InputInvalid, "agent.name: this installation has no \"loop\"", nil)
	}
	own, err := r.giveLoop(ctx)
	if err != nil {
		return err
	}
	if err := r.openLog(ctx); err != nil {
		return err
	}
	repo := r.task.Repo
	if repo == "" {
		repo = r.task.Spec.Repo.URL
	}
	err = w.Loop.Run(ctx, stage.LoopJob{
		Task: r.in.Task, Attempt: r.in.Attempt, Agent: r.task.Spec.Agent, Prompt: r.task.Spec.Prompt, Repo: repo, Commit: r.task.Commit,
		Until: r.row.StartedAt.Add(r.plan.CommandTime(task.Agent)), Grant: own, Env: append(r.taskEnv(), r.leaseEnv()...),
		Hands: hands{r}, Gate: r.gate(), Log: r.log,
	})
	r.row.ExitCode = nil
	return err
}

// giveLoop parts what the stage may reach: the rule for models, and what is
// lent for it, are the loop's; everything else is the sandbox's.
func (r *run) giveLoop(ctx context.Context) (own task.Grant, err error) {
	own = r.plan.Grant(r.in.Task, task.Agent, r.row.Sandbox).From(r.row.StartedAt)
	r.granted = append(r.granted, own.Rules...)
	inside := own
	own.Rules, inside.Rules = nil, nil
	own.Unknown = task.Unknown{} // the loop asks its models and nobody else
	all := r.plan.Grant(r.in.Task, task.Agent, r.row.Sandbox).From(r.row.StartedAt)
	for _, rule := range all.Rules {
		if rule.ID == stage.ModelRule {
			own.Rules = append(own.Rules, rule)
		} else {
			inside.Rules = append(inside.Rules, rule)
		}
	}
	if !r.plan.Spec(r.in.Task, r.in.Attempt, stage.RoleAgent).Network {
		return own, nil // nothing may be reached, by either
	}
	r.gave = true
	err = r.SetGrant(ctx, inside, func(g *task.Grant) error {
		if err := r.answered(ctx, g); err != nil {
			return err
		}
		if err := r.lend(ctx, &all); err != nil {
			return err
		}
		g.Leases, own.Leases = leasesFor(all.Leases, inside.Rules), leasesFor(all.Leases, own.Rules)
		for _, l := range all.Leases {
			if l.OfIdentity() { // the sandbox's, whatever its rules lend
				g.Leases = append(g.Leases, l)
			}
		}
		r.lent = slices.DeleteFunc(r.lent, func(l task.Lent) bool { return !l.OfIdentity() && !lends(inside.Rules, l.Credential) })
		return nil
	})
	return own, err
}

// leasesFor are the leases of the credentials that rules name.
func leasesFor(leases []task.Lease, rules []task.Rule) []task.Lease {
	var out []task.Lease
	for _, l := range leases {
		if lends(rules, l.Credential) {
			out = append(out, l)
		}
	}
	return out
}

func lends(rules []task.Rule, credential string) bool {
	return slices.ContainsFunc(rules, func(rule task.Rule) bool { return rule.Credential == credential })
}

// hands are the run's sandbox, as the loop has it.
type hands struct{ r *run }

// Run starts the command, once per id, and copies its whole output.
func (h hands) Run(ctx context.Context, cmd sandbox.Command, out io.Writer) (stage.Result, error) {
	c := command{id: cmd.ID, argv: cmd.Argv, env: cmd.Env, timeout: cmd.Timeout}
	if err := h.r.recordCommand(ctx, c); err != nil {
		return stage.Result{}, err
	}
	return h.r.shown(ctx, c, 0, out)
}

// Put unpacks a tar stream beneath dir.
func (h hands) Put(ctx context.Context, dir string, tar io.Reader) error {
	return h.r.Sandboxes.Put(ctx, h.r.row.Sandbox, dir, tar)
}

// Adopt remembers a command of a run before.
func (h hands) Adopt(id string) {
	if !slices.Contains(h.r.commands, id) {
		h.r.commands = append(h.r.commands, id)
	}
}
