package budget

import (
	"context"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Change is what somebody wants a budget to be. A number of 0 leaves what there
// is; task.NoLimit takes the limit away.
type Change struct {
	Tokens   int64
	MicroUSD int64
	Per      task.BudgetPeriod // of users and projects; empty: as it is, else a month
	By       string
	Admin    bool
}

// most bounds what can be said, so that sums don't overflow.
const most = int64(1e15)

func (c Change) check() error {
	for field, n := range map[string]int64{"tokens": c.Tokens, "usd": c.MicroUSD} {
		if n < task.NoLimit || n > most {
			return task.Fail(task.InputInvalid, field+": must be more than nothing, and less than 10^15 (of money, millionths of a dollar)", nil)
		}
	}
	if c.Tokens == 0 && c.MicroUSD == 0 && c.Per == "" {
		return task.Fail(task.InputInvalid, "tokens: neither tokens nor usd is given", nil)
	}
	return nil
}

// SetTask changes a task's own budget. Whoever may change the task may do so
// within what the layers above its policy allow; an administrator may beyond.
func (k *Keeper) SetTask(ctx context.Context, t task.Task, c Change) ([]Standing, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.Per != "" && c.Per != task.PerTask {
		return nil, task.Fail(task.InputInvalid, "per: a task's budget is for its whole life", nil)
	}
	if t.State.Ended() {
		return nil, task.Fail(task.InputConflict, "task "+t.ID+" has ended", nil)
	}
	_, above, err := k.Policy(ctx, t)
	if err != nil {
		return nil, err
	}
	if !c.Admin {
		for _, n := range []struct {
			field      string
			want, most int64
			show       func(int64) string
		}{
			{"tokens", c.Tokens, above.Tokens, func(n int64) string { return fmt.Sprint(n) }},
			{"usd", c.MicroUSD, above.MicroUSD, Dollars},
		} {
			if n.most > 0 && (n.want == task.NoLimit || n.want > n.most) {
				return nil, task.Fail(task.PolicyCeiling, fmt.Sprintf("%s: the layers above the task allow %s at most; an administrator may raise it", n.field, n.show(n.most)), nil)
			}
		}
	}
	b, err := k.Rows.Budget(ctx, task.BudgetTask, t.ID)
	if err != nil {
		return nil, err
	}
	b.Scope, b.Name, b.Per = task.BudgetTask, t.ID, task.PerTask
	if err := k.set(ctx, t.ID, b, c); err != nil {
		return nil, err
	}
	_, standings, err := k.Of(ctx, t)
	return standings, err
}

// Set changes the budget of a user or a project. Who may is not asked here.
func (k *Keeper) Set(ctx context.Context, scope task.BudgetScope, name string, c Change) (Standing, error) {
	if err := c.check(); err != nil {
		return Standing{}, err
	}
	if err := known(scope, name); err != nil {
		return Standing{}, err
	}
	b, err := k.Rows.Budget(ctx, scope, name)
	if err != nil {
		return Standing{}, err
	}
	b.Scope, b.Name = scope, name
	switch {
	case c.Per == task.PerDay || c.Per == task.PerMonth:
		b.Per = c.Per
	case c.Per != "":
		return Standing{}, task.Fail(task.InputInvalid, "per: must be day or month", nil)
	case b.Per == "":
		b.Per = task.PerMonth
	}
	if err := k.set(ctx, "", b, c); err != nil {
		return Standing{}, err
	}
	b, err = k.Rows.Budget(ctx, scope, name)
	if err != nil {
		return Standing{}, err
	}
	return k.standing(ctx, b)
}

// set puts a change on record and makes it.
func (k *Keeper) set(ctx context.Context, taskID string, b task.Budget, c Change) error {
	if c.Tokens != 0 {
		b.Tokens = c.Tokens
	}
	if c.MicroUSD != 0 {
		b.MicroUSD = c.MicroUSD
	}
	if b.Tokens == 0 && b.MicroUSD == 0 {
		return task.Fail(task.InputInvalid, "tokens: neither tokens nor usd is given, and there is no budget yet", nil)
	}
	b.By, b.At = c.By, k.Now().UTC()
	key := fmt.Sprintf("budget.set/%s/%s/%d", b.Scope, b.Name, b.At.UnixNano())
	if err := k.Audit.Record(ctx, taskID, key, "budget.set", seenBy, b); err != nil {
		return err
	}
	if err := k.Rows.SetBudget(ctx, b); err != nil {
		return err
	}
	k.wake()
	return nil
}

// Remove forgets the budget of a user or a project.
func (k *Keeper) Remove(ctx context.Context, scope task.BudgetScope, name, by string) error {
	if err := known(scope, name); err != nil {
		return err
	}
	b, err := k.Rows.Budget(ctx, scope, name)
	if err != nil {
		return err
	}
	if b.Scope == "" {
		return task.Fail(task.InputNotFound, fmt.Sprintf("%s %q has no budget; `cofferdam budget ls` lists them", scope, name), nil)
	}
	now := k.Now().UTC()
	facts := task.Budget{Scope: scope, Name: name, Per: b.Per, By: by, At: now}
	if err := k.Audit.Record(ctx, "", fmt.Sprintf("budget.removed/%s/%s/%d", scope, name, now.UnixNano()), "budget.removed", seenBy, facts); err != nil {
		return err
	}
	if err := k.Rows.SetBudget(ctx, task.Budget{Scope: scope, Name: name}); err != nil {
		return err
	}
	k.wake()
	return nil
}

// List tells how the budgets of users and projects stand.
func (k *Keeper) List(ctx context.Context) ([]Standing, error) {
	list, err := k.Rows.Budgets(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Standing, 0, len(list))
	for _, b := range list {
		s, err := k.standing(ctx, b)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func known(scope task.BudgetScope, name string) error {
	switch {
	case scope != task.BudgetUser && scope != task.BudgetProject:
		return task.Fail(task.InputInvalid, "scope: must be user or project", nil)
	case name == Any, scope == task.BudgetProject && task.ValidProject(name), scope == task.BudgetUser && name != "" && len(name) <= 128:
		return nil
	}
	return task.Fail(task.InputInvalid, fmt.Sprintf("name: not the name of a %s", scope), nil)
}
