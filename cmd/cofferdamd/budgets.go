package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/budget"
	"github.com/cofferdam/cofferdam/internal/budget/price"
	serverbudgets "github.com/cofferdam/cofferdam/internal/server/budgets"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/spending"
	"github.com/cofferdam/cofferdam/internal/task"
)

// prices reads the operator's file of prices; an empty name is none.
func prices(file string) (price.Table, error) {
	if file == "" {
		return price.New("")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return price.Table{}, task.Fail(task.InputInvalid, "--prices: the file can't be read: "+err.Error(), nil)
	}
	return price.New(string(text))
}

// newBudgets makes the keeper over the open store and the fleet.
func (p *plane) newBudgets() *budget.Keeper {
	rows := spending.New(p.store.Base())
	return budget.New(budget.Options{
		Rows: rows, Waits: rows, Tasks: waiters{p.store}, Machines: p.fleet, Audit: p.audit, Prices: p.prices,
		Policy: p.policies.limits, Now: time.Now, Log: p.log,
	})
}

// limits are those of a task's policy, and those above its own file.
func (p *policies) limits(_ context.Context, t task.Task) (own, above task.Limits, err error) {
	plan, err := p.Compile(t.Spec, t.Layers)
	if err != nil {
		return own, above, err
	}
	silent := t.Spec
	silent.Policy = ""
	higher, err := p.Compile(silent, t.Layers)
	if err != nil {
		return own, above, err
	}
	return plan.Limits, higher.Limits, nil
}

// waiters moves tasks that wait for a budget.
type waiters struct{ *store.Store }

// Wait moves a task to waiting.
func (w waiters) Wait(ctx context.Context, id, text string) error {
	return w.SetTask(ctx, id, stage.TaskUpdate{State: task.Waiting, Reason: task.LimitSpend, Text: text})
}

// Go moves it back; one that does not wait stays as it is.
func (w waiters) Go(ctx context.Context, id string) error {
	t, err := w.Task(ctx, id)
	if err != nil || t.State != task.Waiting {
		return err
	}
	return w.SetTask(ctx, id, stage.TaskUpdate{State: task.Running})
}

// keepBudgets looks after tasks that wait for one, until end is called.
func (p *plane) keepBudgets(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { p.budgets.Run(ctx) })
	return func() { cancel(); running.Wait() }
}

// budgetDesk is the keeper as the API speaks of it.
func (p *plane) budgetDesk() *serverbudgets.Desk {
	return serverbudgets.New(p.budgets, p.store, p.fleet, p.log)
}
