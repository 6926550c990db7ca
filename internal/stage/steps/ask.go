package steps

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/stage/steps/fact"
	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxAsk bounds what a repository may ask for, in bytes.
const maxAsk = 64 << 10

// repositoryAsks reads what the commit's own .cofferdam/task.yaml asks for and
// takes it into the task's layers. It is a stranger's request: it can fail no
// task, and gives nothing but what a higher layer lets it have. The update says
// what changes with it.
func (r *run) repositoryAsks(ctx context.Context, commit string) (stage.TaskUpdate, error) {
	u := stage.TaskUpdate{Commit: commit}
	text := &bounded{max: maxAsk}
	res, err := r.exec(ctx, command{id: "checkout-asks", argv: []string{"sh", "-c", script.Ask, "checkout-asks", commit}, env: gitEnv()}, 0, text)
	if err != nil {
		return u, err
	}
	r.row.ExitCode = nil
	if res.ExitCode == script.AskMissing {
		return u, r.agentKnown(r.plan)
	}
	if err := r.judge(res, task.CheckoutFailed, "reading the repository's .cofferdam/task.yaml"); err != nil {
		return u, err
	}
	layers := r.task.Layers
	layers.Repository, layers.Narrowed = text.String(), nil
	switch {
	case text.cut:
		layers.Repository = ""
		layers.Narrowed = []string{"all of it was left out, since it is longer than 64 KiB"}
	case !utf8.ValidString(layers.Repository):
		layers.Repository = ""
		layers.Narrowed = []string{"all of it was left out, since it is not UTF-8"}
	}
	plan, err := r.Policies.Compile(r.asked, layers)
	if err != nil {
		return u, err
	}
	if err := r.Leases.Check(ctx, r.task.RequestedBy, plan.Rules); err != nil {
		return u, err
	}
	if err := r.agentKnown(plan); err != nil {
		return u, err
	}
	layers.Narrowed = append(layers.Narrowed, plan.Narrowed...)
	sum := sha256.Sum256(text.Bytes())
	u.Layers, u.PolicyDigest = &layers, plan.Digest
	return u, r.Recorder.Record(ctx, r.in.Task, "policy.repository/"+string(plan.Digest), "policy.repository", seenByControl, fact.RepositoryAsked{
		Task: r.in.Task, Commit: commit, Digest: task.Digest("sha256:" + hex.EncodeToString(sum[:])),
		PolicyDigest: plan.Digest, Rules: plan.Rules, Files: plan.Files, Asked: plan.Repository, Narrowed: layers.Narrowed, Model: plan.Model,
	})
}

// bounded keeps the first max bytes that are written to it.
type bounded struct {
	bytes.Buffer
	max int
	cut bool
}

// Write never fails, so that the command ends as it would.
func (b *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), b.max-b.Len())
	b.cut = b.cut || keep < len(p)
	b.Buffer.Write(p[:keep])
	return len(p), nil
}

// agentKnown refuses a task for which neither the request nor the repository
// names an agent that can be asked for, once both are known.
func (r *run) agentKnown(plan stage.Plan) error {
	if r.asked.Agent.Name != "" {
		return nil
	}
	spec := plan.Effective(r.asked)
	if spec.Agent.Name == "" {
		return task.Fail(task.InputInvalid, "agent.name: neither the task nor the repository's .cofferdam/task.yaml names an agent that may be used; name one", nil)
	}
	if name := spec.Agent.Name; name != "command" && name != agentLoop {
		return task.Fail(task.InputInvalid, fmt.Sprintf("agent.name: the repository asks for %q, whose program must be in the sandbox from its beginning; name it in the request", name), nil)
	}
	return stage.CheckAgent(spec.Agent, r.Harnesses)
}
