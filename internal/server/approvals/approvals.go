// Package approvals is the part of the server that speaks of the inbox: who may
// see and answer what, and which gateway asks about which sandbox. It translates
// between the API and the inbox.
package approvals

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/approval"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	"github.com/cofferdam/cofferdam/internal/server/turns"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Inbox asks persons. Implemented by approval. Errors are *task.Failure.
type Inbox interface {
	Get(ctx context.Context, id, user string, admin bool) (task.Approval, error)
	List(ctx context.Context, f approval.Filter) ([]task.Approval, error)
	Decide(ctx context.Context, id string, answer task.ApprovalAnswer) (task.Approval, error)
	Decisions(ctx context.Context, f approval.Filter) ([]task.Standing, error)
	Withdraw(ctx context.Context, id, user string, admin bool) (bool, error)
}

// Connections asks about connections that gateways hold. Implemented by
// approval.
type Connections interface {
	Ask(ctx context.Context, h task.Held, id string, wait time.Duration) (approval.Answer, error)
}

const listMost = 1000

// Desk answers what is asked of the inbox. All fields but the last are required.
type Desk struct {
	Inbox       Inbox
	Connections Connections
	Log         *slog.Logger

	turns *turns.Turns
}

// New returns a desk.
func New(i Inbox, c Connections, m turns.Machines, log *slog.Logger) *Desk {
	return &Desk{Inbox: i, Connections: c, Log: log, turns: turns.New(m, log)}
}

// Describe registers the operations.
func (d *Desk) Describe(door *operation.Door) {
	operation.Register(door, operation.Operation{
		ID: "list-approvals", Method: http.MethodGet, Path: "/v1/approvals", Access: operation.Users,
		Summary: "What waits for an answer, newest first; with all, what was answered too",
	}, d.list)
	operation.Register(door, operation.Operation{
		ID: "get-approval", Method: http.MethodGet, Path: "/v1/approvals/{id}", Access: operation.Users, Summary: "One question and its answer",
	}, d.get)
	operation.Register(door, operation.Operation{
		ID: "decide", Method: http.MethodPost, Path: "/v1/approvals/{id}/decide", Access: operation.Users, Status: http.StatusOK,
		Summary: "Answer a question that waits", Max: 4 << 10,
	}, d.decide)
	operation.Register(door, operation.Operation{
		ID: "list-decisions", Method: http.MethodGet, Path: "/v1/decisions", Access: operation.Users,
		Summary: "Answers that stand, newest first; with all, those that ended too",
	}, d.decisions)
	operation.Register(door, operation.Operation{
		ID: "withdraw-decision", Method: http.MethodPost, Path: "/v1/decisions/{id}/withdraw", Access: operation.Users, Status: http.StatusOK,
		Summary: "Take back a decision, or an answer for one use, and cut what passes under it",
	}, d.withdraw)
	operation.Register(door, operation.Operation{
		ID: "ask", Method: http.MethodPost, Path: "/v1/gateway/ask", Access: operation.Gateways, Status: http.StatusOK,
		Summary: "Ask what becomes of a connection that waits in one of the gateway's sandboxes", Max: 16 << 10,
	}, d.ask)
}

type listInput struct {
	All  bool   `query:"all"`
	Task string `query:"task" maxLength:"64"`
}

type listOutput struct{ Body api.ApprovalList }

// owner is whose entries are asked for; empty: everyone's.
func owner(p identity.Principal) string {
	if p.Role == identity.Admin {
		return ""
	}
	return p.User
}

func (d *Desk) list(ctx context.Context, in *listInput) (*listOutput, error) {
	f := approval.Filter{Task: in.Task, Requester: owner(operation.Who(ctx)), Waiting: !in.All, Limit: listMost}
	list, err := d.Inbox.List(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &listOutput{api.ApprovalList{Approvals: []api.Approval{}}}
	for _, a := range list {
		out.Body.Approvals = append(out.Body.Approvals, translate.Approval(a))
	}
	return out, nil
}

// Of gives every question of a task, in the order they were asked. Who may see
// the task is asked before.
func (d *Desk) Of(ctx context.Context, taskID string) ([]api.Approval, error) {
	list, err := d.Inbox.List(ctx, approval.Filter{Task: taskID})
	if err != nil {
		return nil, err
	}
	out := make([]api.Approval, 0, len(list))
	for i := len(list) - 1; i >= 0; i-- {
		out = append(out, translate.Approval(list[i]))
	}
	return out, nil
}

type idPath struct {
	ID string `path:"id" maxLength:"64"`
}

type approvalOutput struct{ Body api.Approval }

func (d *Desk) get(ctx context.Context, in *idPath) (*approvalOutput, error) {
	p := operation.Who(ctx)
	a, err := d.Inbox.Get(ctx, in.ID, p.User, p.Role == identity.Admin)
	if err != nil {
		return nil, err
	}
	return &approvalOutput{translate.Approval(a)}, nil
}

type decideInput struct {
	ID   string `path:"id" maxLength:"64"`
	Body api.ApprovalAnswer
}

func (d *Desk) decide(ctx context.Context, in *decideInput) (*approvalOutput, error) {
	p := operation.Who(ctx)
	a, err := d.Inbox.Decide(ctx, in.ID, task.ApprovalAnswer{
		Allow: in.Body.Allow, Scope: task.ApprovalScope(in.Body.Scope), For: time.Duration(in.Body.ForSeconds) * time.Second,
		By: p.User, Admin: p.Role == identity.Admin,
	})
	if err != nil {
		return nil, err
	}
	return &approvalOutput{translate.Approval(a)}, nil
}

type decisionsInput struct {
	All bool `query:"all"`
}

type decisionsOutput struct{ Body api.DecisionList }

func (d *Desk) decisions(ctx context.Context, in *decisionsInput) (*decisionsOutput, error) {
	list, err := d.Inbox.Decisions(ctx, approval.Filter{Requester: owner(operation.Who(ctx)), Waiting: !in.All, Limit: listMost})
	if err != nil {
		return nil, err
	}
	out := &decisionsOutput{api.DecisionList{Decisions: []api.Decision{}}}
	for _, s := range list {
		out.Body.Decisions = append(out.Body.Decisions, api.Decision{
			ID: s.ID, Approval: s.Approval, Kind: string(s.Kind), Allow: s.Allow, Scope: string(s.Scope), Task: s.Task, Project: s.Project, Stage: string(s.Stage),
			Host: s.Match.Host, Port: s.Match.Port, Protocol: s.Match.Protocol, Tool: s.Match.Tool, Digest: string(s.Match.Digest),
			By: s.By, From: s.From, Until: s.Until, Withdrawn: s.Withdrawn, Ended: s.Ended,
		})
	}
	return out, nil
}

type endOutput struct{ Body api.DecisionEnd }

func (d *Desk) withdraw(ctx context.Context, in *idPath) (*endOutput, error) {
	p := operation.Who(ctx)
	cut, err := d.Inbox.Withdraw(ctx, in.ID, p.User, p.Role == identity.Admin)
	if err != nil {
		return nil, err
	}
	return &endOutput{api.DecisionEnd{ID: in.ID, Cut: cut}}, nil
}

type askInput struct{ Body api.AskRequest }

type askOutput struct{ Body api.AskAnswer }

// ask answers a gateway. The sandbox must be on the gateway's own machine.
func (d *Desk) ask(ctx context.Context, in *askInput) (*askOutput, error) {
	end, err := d.turns.Begin(ctx, in.Body.Sandbox)
	if err != nil {
		return nil, err
	}
	defer end()
	r := in.Body
	a, err := d.Connections.Ask(ctx, task.Held{Sandbox: r.Sandbox, Use: r.Use, EgressAsk: task.EgressAsk(r.Egress)}, r.Approval, turns.Length)
	if err != nil {
		return nil, err
	}
	out := api.AskAnswer{State: string(task.AskedDenied), Approval: a.Approval.ID, ID: a.ID, Once: a.Once, Reason: string(a.Reason)}
	switch {
	case a.Waiting:
		out.State = string(task.AskedWaiting)
	case a.Allow:
		out.State = string(task.AskedAllowed)
	case a.Approval.State != "" && a.Approval.State != task.AskedAllowed:
		out.State = string(a.Approval.State)
	}
	return &askOutput{out}, nil
}
