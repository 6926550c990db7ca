// Package budgets answers the API's questions about what tasks, users and
// projects may use of models, and those of gateways before a request to a model
// goes out. It decides nothing.
package budgets

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/budget"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/turns"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Keeper keeps budgets. Implemented by budget.Keeper.
type Keeper interface {
	Ask(ctx context.Context, sandbox string, counted bool, turn time.Duration) (budget.Answer, error)
	Of(ctx context.Context, t task.Task) (task.Spend, []budget.Standing, error)
	Waiting(ctx context.Context, taskID string) bool
	SetTask(ctx context.Context, t task.Task, c budget.Change) ([]budget.Standing, error)
	Set(ctx context.Context, scope task.BudgetScope, name string, c budget.Change) (budget.Standing, error)
	Remove(ctx context.Context, scope task.BudgetScope, name, by string) error
	List(ctx context.Context) ([]budget.Standing, error)
}

// Tasks reads tasks.
type Tasks interface {
	Task(ctx context.Context, id string) (task.Task, error)
}

// Desk answers. Its fields are set by New.
type Desk struct {
	keeper Keeper
	tasks  Tasks
	log    *slog.Logger
	turns  *turns.Turns
}

// New returns a desk.
func New(k Keeper, t Tasks, m turns.Machines, log *slog.Logger) *Desk {
	return &Desk{keeper: k, tasks: t, log: log, turns: turns.New(m, log)}
}

// Describe registers the operations.
func (d *Desk) Describe(door *operation.Door) {
	operation.Register(door, operation.Operation{
		ID: "list-budgets", Method: http.MethodGet, Path: "/v1/budgets", Access: operation.Users,
		Summary: "The budgets of users and projects; who is no administrator sees the own",
	}, d.list)
	operation.Register(door, operation.Operation{
		ID: "set-budget", Method: http.MethodPut, Path: "/v1/budgets/{scope}/{name}", Access: operation.Admins,
		Summary: "Change what a user or a project may use of models", Max: 4 << 10,
	}, d.set)
	operation.Register(door, operation.Operation{
		ID: "remove-budget", Method: http.MethodDelete, Path: "/v1/budgets/{scope}/{name}", Access: operation.Admins,
		Summary: "Take the budget of a user or a project away",
	}, d.remove)
	operation.Register(door, operation.Operation{
		ID: "get-task-budget", Method: http.MethodGet, Path: "/v1/tasks/{id}/budget", Access: operation.Users,
		Summary: "What a task used of models, and the budgets that bind it",
	}, d.ofTask)
	operation.Register(door, operation.Operation{
		ID: "set-task-budget", Method: http.MethodPut, Path: "/v1/tasks/{id}/budget", Access: operation.Users,
		Summary: "Change a task's own budget; a task that waits goes on where there is room again", Max: 4 << 10,
	}, d.setTask)
	operation.Register(door, operation.Operation{
		ID: "ask-spend", Method: http.MethodPost, Path: "/v1/gateway/spend", Access: operation.Gateways, Status: http.StatusOK,
		Summary: "Ask whether a request to a model may go, of one of the gateway's sandboxes", Max: 4 << 10,
	}, d.ask)
}

type listOutput struct{ Body api.BudgetList }

func (d *Desk) list(ctx context.Context, _ *struct{}) (*listOutput, error) {
	p := operation.Who(ctx)
	all, err := d.keeper.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &listOutput{api.BudgetList{Budgets: []api.Budget{}}}
	for _, s := range all {
		if p.Role == identity.Admin || s.Scope == task.BudgetUser && s.Name == p.User {
			out.Body.Budgets = append(out.Body.Budgets, shown(s))
		}
	}
	return out, nil
}

type budgetOutput struct{ Body api.Budget }

type setInput struct {
	Scope string `path:"scope" maxLength:"16"`
	Name  string `path:"name" maxLength:"128"`
	Body  api.BudgetChange
}

func (d *Desk) set(ctx context.Context, in *setInput) (*budgetOutput, error) {
	c, err := change(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	s, err := d.keeper.Set(ctx, task.BudgetScope(in.Scope), in.Name, c)
	if err != nil {
		return nil, err
	}
	return &budgetOutput{shown(s)}, nil
}

type removeInput struct {
	Scope string `path:"scope" maxLength:"16"`
	Name  string `path:"name" maxLength:"128"`
}

func (d *Desk) remove(ctx context.Context, in *removeInput) (*struct{}, error) {
	return nil, d.keeper.Remove(ctx, task.BudgetScope(in.Scope), in.Name, operation.Who(ctx).User)
}

// change reads what is wanted.
func change(ctx context.Context, b api.BudgetChange) (budget.Change, error) {
	p := operation.Who(ctx)
	c := budget.Change{Per: task.BudgetPeriod(b.Per), By: p.User, Admin: p.Role == identity.Admin}
	if b.Tokens != nil {
		if c.Tokens = *b.Tokens; c.Tokens == 0 || c.Tokens < task.NoLimit {
			return c, task.Fail(task.InputInvalid, "tokens: must be more than 0, or -1 for no limit", nil)
		}
	}
	if b.USD != nil {
		switch v := *b.USD; {
		case v == task.NoLimit:
			c.MicroUSD = task.NoLimit
		case v >= 0.0001 && v <= 1e9:
			c.MicroUSD = int64(math.Round(v * 1e6))
		default:
			return c, task.Fail(task.InputInvalid, "usd: must be from 0.0001 to 1000000000, or -1 for no limit", nil)
		}
	}
	return c, nil
}

type taskInput struct {
	ID string `path:"id" maxLength:"64"`
}

type setTaskInput struct {
	ID   string `path:"id" maxLength:"64"`
	Body api.BudgetChange
}

type taskOutput struct{ Body api.TaskBudget }

// task is a task that the caller may see.
func (d *Desk) task(ctx context.Context, id string) (task.Task, error) {
	t, err := d.tasks.Task(ctx, id)
	if p := operation.Who(ctx); err == nil && p.Role != identity.Admin && t.RequestedBy != p.User {
		err = task.Fail(task.InputNotFound, fmt.Sprintf("no task %.64q", id), nil)
	}
	return t, err
}

func (d *Desk) ofTask(ctx context.Context, in *taskInput) (*taskOutput, error) {
	t, err := d.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return d.answer(ctx, t)
}

func (d *Desk) setTask(ctx context.Context, in *setTaskInput) (*taskOutput, error) {
	t, err := d.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	c, err := change(ctx, in.Body)
	if err != nil {
		return nil, err
	}
	if _, err := d.keeper.SetTask(ctx, t, c); err != nil {
		return nil, err
	}
	return d.answer(ctx, t)
}

func (d *Desk) answer(ctx context.Context, t task.Task) (*taskOutput, error) {
	spent, standings, err := d.keeper.Of(ctx, t)
	if err != nil {
		return nil, err
	}
	return &taskOutput{api.TaskBudget{Task: t.ID, Waiting: d.keeper.Waiting(ctx, t.ID), Models: models(spent), Budgets: all(standings)}}, nil
}

// Fill adds to what is told of one task. Who may see it is asked before.
func (d *Desk) Fill(ctx context.Context, t task.Task, out *api.Task) error {
	spent, standings, err := d.keeper.Of(ctx, t)
	if err != nil {
		// A policy that does not compile any more takes nothing else away.
		d.log.WarnContext(ctx, "the budgets of a task can't be told", "task", t.ID, "error", err.Error())
		return nil
	}
	out.Usage.Models, out.Usage.USD = models(spent), dollars(spent.MicroUSD())
	out.Budgets = all(standings)
	return nil
}

func models(s task.Spend) []api.ModelSpend {
	out := make([]api.ModelSpend, 0, len(s.Models))
	for _, m := range s.Models {
		out = append(out, api.ModelSpend{
			Model: m.Model, Requests: m.Requests, Input: m.Input, Output: m.Output, CacheRead: m.CacheRead, CacheWrite: m.CacheWrite,
			Estimates: m.Estimates, USD: dollars(m.MicroUSD), Priced: m.Priced,
		})
	}
	return out
}

// all are the budgets that limit something.
func all(list []budget.Standing) []api.Budget {
	out := []api.Budget{}
	for _, s := range list {
		if s.Limits() {
			out = append(out, shown(s))
		}
	}
	return out
}

func shown(s budget.Standing) api.Budget {
	b := api.Budget{
		Scope: string(s.Scope), Name: s.Name, Tokens: max(s.Tokens, 0), USD: dollars(max(s.MicroUSD, 0)), Per: string(s.Per),
		UsedTokens: s.Spent.Tokens(), UsedUSD: dollars(s.Spent.MicroUSD()), Unpriced: s.Spent.Unpriced(), By: s.By,
	}
	if !s.At.IsZero() {
		at := s.At
		b.At = &at
	}
	return b
}

func dollars(micro int64) float64 { return float64(micro) / 1e6 }

type askInput struct{ Body api.SpendQuestion }

type askOutput struct{ Body api.SpendAnswer }

// ask answers a gateway. The sandbox must be on the gateway's own machine.
func (d *Desk) ask(ctx context.Context, in *askInput) (*askOutput, error) {
	end, err := d.turns.Begin(ctx, in.Body.Sandbox)
	if err != nil {
		return nil, err
	}
	defer end()
	a, err := d.keeper.Ask(ctx, in.Body.Sandbox, in.Body.Counted, turns.Length)
	if err != nil {
		return nil, err
	}
	out := api.SpendAnswer{State: "refused", Reason: string(a.Reason), Text: a.Text}
	switch {
	case a.Go && a.Free:
		out = api.SpendAnswer{State: "free"}
	case a.Go:
		out = api.SpendAnswer{State: "go"}
	case a.Waiting:
		out.State = "waiting"
	}
	return &askOutput{out}, nil
}
