package budgets

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/budget"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

// keeper answers as it is told, and keeps the last change.
type keeper struct {
	Keeper
	answer budget.Answer
	change budget.Change
}

func (k *keeper) Ask(context.Context, string, bool, time.Duration) (budget.Answer, error) {
	return k.answer, nil
}

func (k *keeper) SetTask(_ context.Context, _ task.Task, c budget.Change) ([]budget.Standing, error) {
	k.change = c
	return nil, nil
}

func (k *keeper) Of(_ context.Context, t task.Task) (task.Spend, []budget.Standing, error) {
	spend := task.Spend{Models: []task.ModelSpend{{ModelTokens: task.ModelTokens{Model: "m", Input: 5}, Requests: 1, MicroUSD: 1_500_000, Priced: true}}}
	return spend, []budget.Standing{
		{Budget: task.Budget{Scope: task.BudgetTask, Name: t.ID, Tokens: task.NoLimit}, Spent: spend},
		{Budget: task.Budget{Scope: task.BudgetUser, Name: "alice", Tokens: task.NoLimit, MicroUSD: 2_000_000, Per: task.PerDay, By: "admin", At: time.Unix(1, 0)}, Spent: spend},
	}, nil
}

func (k *keeper) Waiting(context.Context, string) bool { return true }

func (k *keeper) List(context.Context) ([]budget.Standing, error) {
	return []budget.Standing{
		{Budget: task.Budget{Scope: task.BudgetUser, Name: "alice", Tokens: 1}},
		{Budget: task.Budget{Scope: task.BudgetUser, Name: "bob", Tokens: 1}},
		{Budget: task.Budget{Scope: task.BudgetProject, Name: "alice", Tokens: 1}},
	}, nil
}

type world struct{ holds bool }

func (world) Task(_ context.Context, id string) (task.Task, error) {
	return task.Task{ID: id, RequestedBy: "alice"}, nil
}

func (w world) Holds(context.Context, string, string) (bool, error) { return w.holds, nil }

func as(t *testing.T, user string, role identity.Role) context.Context {
	return operation.As(t.Context(), identity.Principal{User: user, Role: role})
}

// A gateway is told what the keeper says, about its own sandboxes only.
func TestAsk(t *testing.T) {
	k := &keeper{}
	d := New(k, world{true}, world{true}, slog.New(slog.DiscardHandler))
	for want, a := range map[string]budget.Answer{
		"refused": {}, "go": {Go: true}, "free": {Go: true, Free: true}, "waiting": {Waiting: true, Reason: task.LimitSpend},
	} {
		k.answer = a
		out, err := d.ask(as(t, "worker", identity.Gateway), &askInput{})
		if err != nil || out.Body.State != want || out.Body.Reason != string(a.Reason) {
			t.Errorf("%+v %v, want %s", out, err, want)
		}
	}
	d = New(k, world{}, world{}, slog.New(slog.DiscardHandler))
	if _, err := d.ask(as(t, "other", identity.Gateway), &askInput{}); task.ReasonOf(err) != task.InfraControlAway {
		t.Errorf("another's sandbox: %v", err)
	}
}

// Who asked for a task and administrators see and change its budget; to others
// it does not exist.
func TestWhoMay(t *testing.T) {
	k := &keeper{}
	d := New(k, world{}, world{}, slog.New(slog.DiscardHandler))
	tokens, usd := int64(7), 2.5
	for user, want := range map[string]task.Reason{"alice": "", "bob": task.InputNotFound} {
		ctx := as(t, user, identity.User)
		_, err := d.ofTask(ctx, &taskInput{ID: "t-1"})
		_, err2 := d.setTask(ctx, &setTaskInput{ID: "t-1", Body: api.BudgetChange{Tokens: &tokens}})
		if task.ReasonOf(err) != want || task.ReasonOf(err2) != want {
			t.Errorf("%s: %v, %v", user, err, err2)
		}
	}
	if k.change.Admin || k.change.Tokens != 7 || k.change.By != "alice" {
		t.Errorf("%+v", k.change)
	}
	out, err := d.setTask(as(t, "root", identity.Admin), &setTaskInput{ID: "t-1", Body: api.BudgetChange{USD: &usd}})
	if err != nil || !k.change.Admin || k.change.MicroUSD != 2_500_000 || !out.Body.Waiting || len(out.Body.Models) != 1 || out.Body.Models[0].USD != 1.5 {
		t.Errorf("%+v %+v %v", out, k.change, err)
	}
	if b := out.Body.Budgets; len(b) != 1 || b[0].Tokens != 0 || b[0].USD != 2 || b[0].UsedUSD != 1.5 || b[0].At == nil { // the one that limits something
		t.Errorf("%+v", b)
	}
	for role, want := range map[identity.Role]int{identity.User: 1, identity.Admin: 3} {
		list, err := d.list(as(t, "alice", role), nil)
		if err != nil || len(list.Body.Budgets) != want {
			t.Errorf("%s sees %+v %v", role, list, err)
		}
	}
}

// What is no amount is refused.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		tokens int64
		usd    float64
		ok     bool
	}{{1, 1, true}, {-1, -1, true}, {0, 1, false}, {-2, 1, false}, {1, 0, false}, {1, -2, false}, {1, 1e12, false}} {
		_, err := change(t.Context(), api.BudgetChange{Tokens: &c.tokens, USD: &c.usd})
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
