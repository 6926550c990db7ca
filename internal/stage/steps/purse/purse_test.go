package purse

import (
	"context"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

type budgets struct{ vain bool }

func (budgets) Waiting(context.Context, string) bool { return true }
func (b budgets) Vain(context.Context, string) bool  { return b.vain }
func (budgets) Settle(context.Context, string) error { return context.Canceled }

func TestPurse(t *testing.T) {
	ctx := t.Context()
	if (Purse{}).Waits(ctx, "t") || (Purse{}).Settle(ctx, "t") != nil || !(Purse{budgets{}}).Waits(ctx, "t") || (Purse{budgets{}}).Settle(ctx, "t") == nil {
		t.Error("who is asked answers otherwise")
	}
	for _, c := range []struct {
		purse Purse
		stage task.StageName
		from  task.Reason
		want  task.Reason
	}{
		{Purse{}, task.Agent, task.AgentFailed, task.AgentFailed},
		{Purse{budgets{}}, task.Agent, task.AgentFailed, task.AgentFailed},
		{Purse{budgets{vain: true}}, task.Agent, task.AgentFailed, task.LimitSpend},
		{Purse{budgets{vain: true}}, task.Agent, task.ModelRefused, task.LimitSpend},
		{Purse{budgets{vain: true}}, task.Agent, task.InfraWorkerLost, task.InfraWorkerLost},
		{Purse{budgets{vain: true}}, task.Agent, task.LimitTime, task.LimitTime},
		{Purse{budgets{vain: true}}, task.Agent, "", ""},
		{Purse{budgets{vain: true}}, task.Verify, task.VerifyFailed, task.VerifyFailed},
	} {
		if got, _ := c.purse.Outcome(ctx, c.stage, "t", c.from, "x"); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
