package main

import (
	"context"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/approval"
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	serverapprovals "github.com/cofferdam/cofferdam/internal/server/approvals"
	"github.com/cofferdam/cofferdam/internal/store/approvals"
	"github.com/cofferdam/cofferdam/internal/task"
)

// answers changes the grants of running stages. The work is made after the
// inbox, which it asks in its turn.
type answers struct{ p *plane }

// Extend adds a rule that follows from a decision.
func (a answers) Extend(ctx context.Context, sandbox string, stage task.StageName, rule task.Rule) error {
	return a.p.work.Extend(ctx, sandbox, stage, rule)
}

// Retract takes such a rule away.
func (a answers) Retract(ctx context.Context, taskID, sandbox, rule string) error {
	return a.p.work.Retract(ctx, taskID, sandbox, rule)
}

// newInbox makes the inbox over the open store.
func (p *plane) newInbox() *approval.Inbox {
	return approval.New(approval.Options{
		Rows: approvals.New(p.store.Base()), Audit: p.audit, Grants: answers{p}, Now: time.Now, Log: p.log,
	})
}

// ask expires what nobody answers until end is called.
func (p *plane) ask(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { p.inbox.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// inboxDesk is the inbox as the API speaks of it.
func (p *plane) inboxDesk() *serverapprovals.Desk {
	return serverapprovals.New(p.inbox, &approval.Connections{
		Inbox: p.inbox, Held: p.work.Held, May: mayAsk, Task: p.store.Task, Running: p.runningIn,
	}, p.fleet, p.log)
}

// mayAsk says whether policy lets a person be asked about a connection.
func mayAsk(u task.Unknown, e task.EgressAsk) bool {
	if u.Mode != task.UnknownAsk {
		return false
	}
	rule, ok := decide.Passing(u, decide.Use{Name: e.Name, Address: e.Address, Port: e.Port}, e.Seen)
	return ok && rule.Protocol == e.Protocol && rule.Host == e.Host()
}

const (
	runningWait = 3 * time.Second // for a machine to say what runs
	runningMost = 32              // commands
	runningText = 32 << 10        // bytes of what their processes call themselves, all together
)

// runningIn tells the commands of a sandbox that run now, as far as its machine
// answers.
func (p *plane) runningIn(ctx context.Context, id string) []task.RunningCommand {
	ctx, cancel := context.WithTimeout(ctx, runningWait)
	defer cancel()
	list, err := p.fleet.Inspect(ctx, id, "")
	if err != nil {
		p.log.WarnContext(ctx, "what runs in a sandbox that asks is not known", "sandbox", id, "error", err.Error())
		return nil
	}
	var out []task.RunningCommand
	left := runningText
	for _, s := range list {
		if s.Phase != sandbox.CommandRunning || len(out) == runningMost {
			continue
		}
		c := task.RunningCommand{ID: s.ID}
		for _, process := range s.Processes {
			if left -= len(process.Command); left < 0 {
				break
			}
			c.Processes = append(c.Processes, process.Command)
		}
		out = append(out, c)
	}
	return out
}
