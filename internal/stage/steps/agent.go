package steps

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// setup runs the task's setup command in the agent's sandbox.
func (w *Work) setup(ctx context.Context, r *run) error {
	// What checkout needed goes before anything foreign runs. Checkout itself
	// can't remove it: a repeated run of it reads it again.
	res, err := r.exec(ctx, command{
		id: "setup-tidy", argv: []string{"rm", "-rf", "/tmp/cofferdam-in", "/tmp/cofferdam-work"},
	}, 0, nil)
	if err == nil {
		err = r.judge(res, task.InfraInternal, "removing the checkout's files")
	}
	r.row.ExitCode = nil
	if err != nil {
		return err
	}
	if r.task.Spec.Setup == "" {
		return errSkipped
	}
	return r.shell(ctx, task.Setup, stage.RoleAgent, "setup", r.task.Spec.Setup, task.SetupFailed)
}

// shell runs a command line of the task under the grant of the named stage as
// the only command of its run.
func (r *run) shell(ctx context.Context, name task.StageName, role, id, line string, reason task.Reason) error {
	if err := r.give(ctx, name, role); err != nil {
		return err
	}
	res, err := r.only(ctx, command{
		id: id, argv: []string{"sh", "-c", line}, env: append(r.taskEnv(), r.leaseEnv()...), timeout: r.plan.CommandTime(name),
	})
	if err != nil {
		return err
	}
	return r.judge(res, reason, "the "+string(name)+" command")
}

func (r *run) taskEnv() []string {
	return []string{"COFFERDAM_TASK=" + r.in.Task, "COFFERDAM_STAGE=" + string(r.name)}
}

// agent runs the agent. It decides; nothing here relies on what it decides.
func (w *Work) agent(ctx context.Context, r *run) error {
	if err := r.protect(ctx); err != nil {
		return err
	}
	if r.task.Spec.Agent.Name == agentLoop {
		return w.loop(ctx, r)
	}
	if err := r.give(ctx, task.Agent, stage.RoleAgent); err != nil {
		return err
	}
	if r.task.Spec.Agent.Name != "command" {
		return w.harness(ctx, r)
	}
	res, err := r.only(ctx, command{
		id: "agent", argv: r.task.Spec.Agent.Argv,
		env:     append(append(r.taskEnv(), "COFFERDAM_PROMPT="+r.task.Spec.Prompt), r.leaseEnv()...),
		timeout: r.plan.CommandTime(task.Agent),
	})
	if err != nil {
		return err
	}
	return r.judge(res, task.AgentFailed, "the agent")
}
