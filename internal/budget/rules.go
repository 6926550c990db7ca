package budget

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Any in place of a user's or a project's name stands for those without a
// budget of their own.
const Any = "*"

// Standing is a budget and what was used of it in its period.
type Standing struct {
	task.Budget
	Spent task.Spend
}

// met says why a budget has no room; empty: it has. The text holds for as long
// as the budget is not changed.
func (s Standing) met() string {
	of := map[task.BudgetScope]string{task.BudgetTask: "the task", task.BudgetUser: "user " + s.Name, task.BudgetProject: "project " + s.Name}[s.Scope]
	per := ""
	if s.Per != task.PerTask {
		per = " a " + string(s.Per)
	}
	switch unpriced := s.Spent.Unpriced(); {
	case s.Tokens > 0 && s.Spent.Tokens() >= s.Tokens:
		return fmt.Sprintf("%s may use %d tokens%s, and they are used up", of, s.Tokens, per)
	case s.MicroUSD > 0 && s.Spent.MicroUSD() >= s.MicroUSD:
		return fmt.Sprintf("%s may spend %s USD%s, and they are spent", of, Dollars(s.MicroUSD), per)
	case s.MicroUSD > 0 && unpriced != "":
		return fmt.Sprintf("%s may spend %s USD%s, and what the model %s costs is not known: give it a price (--prices), or take the limit of money away", of, Dollars(s.MicroUSD), per, unpriced)
	}
	return ""
}

// Dollars is an amount in words.
func Dollars(micro int64) string {
	text := strconv.FormatFloat(float64(micro)/1e6, 'f', 6, 64)
	text = strings.TrimRight(text, "0")
	if whole, cents, _ := strings.Cut(text, "."); len(cents) < 2 {
		text = whole + "." + cents + strings.Repeat("0", 2-len(cents))
	}
	return text
}

// ofTask is a task's own budget: what was set for it, and where nothing was,
// what its policy says.
func ofTask(t task.Task, policy task.Limits, set task.Budget) task.Budget {
	b := task.Budget{Scope: task.BudgetTask, Name: t.ID, Per: task.PerTask, Tokens: policy.Tokens, MicroUSD: policy.MicroUSD}
	if set.Tokens != 0 {
		b.Tokens, b.By, b.At = set.Tokens, set.By, set.At
	}
	if set.MicroUSD != 0 {
		b.MicroUSD, b.By, b.At = set.MicroUSD, set.By, set.At
	}
	return b
}

// budgets are those that bind a task, its own first; it may limit nothing.
func (k *Keeper) budgets(ctx context.Context, t task.Task) ([]task.Budget, error) {
	policy, _, err := k.Policy(ctx, t)
	if err != nil {
		return nil, err
	}
	set, err := k.Rows.Budget(ctx, task.BudgetTask, t.ID)
	if err != nil {
		return nil, err
	}
	list := []task.Budget{ofTask(t, policy, set)}
	for _, of := range []struct {
		scope task.BudgetScope
		name  string
	}{{task.BudgetUser, t.RequestedBy}, {task.BudgetProject, t.Spec.Project}} {
		if of.name == "" {
			continue
		}
		b, err := k.Rows.Budget(ctx, of.scope, of.name)
		if err == nil && b.Scope == "" {
			b, err = k.Rows.Budget(ctx, of.scope, Any)
			b.Name = of.name
		}
		if err != nil {
			return nil, err
		}
		if b.Limits() {
			list = append(list, b)
		}
	}
	return list, nil
}

// standing adds what was used.
func (k *Keeper) standing(ctx context.Context, b task.Budget) (Standing, error) {
	list, err := k.Rows.Spent(ctx, b.Scope, b.Name, b.Per.Start(k.Now()))
	return Standing{Budget: b, Spent: k.Prices.Of(list)}, err
}

// Of tells what a task used, and how the budgets that bind it stand.
func (k *Keeper) Of(ctx context.Context, t task.Task) (task.Spend, []Standing, error) {
	list, err := k.budgets(ctx, t)
	if err != nil {
		return task.Spend{}, nil, err
	}
	standings := make([]Standing, 0, len(list))
	for _, b := range list {
		s, err := k.standing(ctx, b)
		if err != nil {
			return task.Spend{}, nil, err
		}
		standings = append(standings, s)
	}
	return standings[0].Spent, standings, nil
}

// room says whether a budget limits the task at all, and why there is no room;
// empty: there is.
func (k *Keeper) room(ctx context.Context, t task.Task) (limited bool, why string, err error) {
	list, err := k.budgets(ctx, t)
	if err != nil {
		return false, "", err
	}
	money := false
	for _, b := range list {
		if !b.Limits() {
			continue
		}
		limited, money = true, money || b.MicroUSD > 0
		s, err := k.standing(ctx, b)
		if err != nil {
			return true, "", err
		}
		if why := s.met(); why != "" {
			return true, why, nil
		}
	}
	if m := t.Spec.Agent.Model; money && m != "" && !k.Prices.Known(m) {
		return true, fmt.Sprintf("money is limited, and what the model %.128s costs is not known: give it a price (--prices), or take the limit of money away", m), nil
	}
	return limited, "", nil
}
