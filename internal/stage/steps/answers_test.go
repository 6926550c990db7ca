package steps

import (
	"context"
	"slices"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// decisions stand for a stage, and remember who is gone.
type decisions struct {
	rules     []task.Rule
	abandoned []string
}

func (d *decisions) Rules(_ context.Context, _, _ string, name task.StageName, _ string) ([]task.Rule, error) {
	if name != task.Agent {
		return nil, nil
	}
	return d.rules, nil
}

func (d *decisions) Tool(context.Context, task.Question) (task.ToolAnswer, error) {
	return task.ToolAnswer{}, nil
}

func (d *decisions) Abandon(_ context.Context, _, sandbox string) error {
	d.abandoned = append(d.abandoned, sandbox)
	return nil
}

// What persons decided is in the grant that a stage begins with, is added to it
// while it runs, and is taken out of it and named when it is taken back.
func TestDecisionsAreInTheGrant(t *testing.T) {
	rule := func(id string) task.Rule {
		return task.Rule{ID: "ask/" + id, Host: "a.test", Ports: []uint16{443}, Protocol: "tls"}
	}
	h := start(t, task.Spec{Setup: "true", Agent: shell("true")})
	d := &decisions{rules: []task.Rule{rule("d-1")}}
	h.work.Approvals = d
	h.plan.plan.Unknown = map[task.StageName]task.Unknown{task.Agent: {Mode: task.UnknownAsk}}
	box := h.box(stage.RoleAgent)
	var seen [][]string
	look := func() {
		g := h.lastGrant(box)
		ids := slices.Clone(g.Withdrawn)
		for _, r := range g.Rules {
			ids = append(ids, "+"+r.ID)
		}
		seen = append(seen, ids)
	}
	h.machine.onRun = func(id, command string) error {
		if command != "agent" {
			return nil
		}
		ctx := t.Context()
		held, ok := h.work.Held(id)
		if !ok || held.Task != taskID || held.Stage != task.Agent || held.Unknown.Mode != task.UnknownAsk {
			t.Errorf("held %+v %v", held, ok)
		}
		look()
		for _, f := range []func() error{
			func() error { return h.work.Extend(ctx, id, task.Agent, rule("d-2")) },
			func() error { return h.work.Extend(ctx, id, task.Agent, rule("d-2")) },
			func() error { return h.work.Extend(ctx, id, task.Setup, rule("d-3")) },
			func() error {
				return h.work.Extend(ctx, id, task.Agent, task.Rule{ID: "agent.network.allow[9]", Host: "b.test"})
			},
			func() error { return h.work.Retract(ctx, taskID, id, "ask/d-1") },
			func() error { return h.work.Extend(ctx, id, task.Agent, rule("d-1")) },
			func() error { return h.work.Retract(ctx, taskID, id, "ask/ap-7") },
		} {
			if err := f(); err != nil {
				t.Error(err)
			}
			look()
		}
		return nil
	}
	succeeds(t, h.through(task.Agent, 1))
	want := [][]string{
		{"+ask/d-1"},
		{"+ask/d-1", "+ask/d-2"},
		{"+ask/d-1", "+ask/d-2"},
		{"+ask/d-1", "+ask/d-2"},
		{"+ask/d-1", "+ask/d-2"},
		{"ask/d-1", "+ask/d-2"},
		{"ask/d-1", "+ask/d-2"},
		{"ask/d-1", "ask/ap-7", "+ask/d-2"},
	}
	if !slices.EqualFunc(seen, want, slices.Equal) {
		t.Errorf("%v, want %v", seen, want)
	}
	if !slices.Contains(d.abandoned, box) {
		t.Errorf("nobody is gone: %v", d.abandoned)
	}
	if _, ok := h.work.Held(box); ok {
		t.Error("a stage that ended holds a grant")
	}
	// What is not known here, since the process began later, loses all of it.
	if err := h.work.Retract(t.Context(), taskID, box, "ask/d-1"); err != nil {
		t.Error(err)
	}
	if g := h.lastGrant(box); len(g.Rules) > 0 || !g.Unknown.IsZero() {
		t.Errorf("%+v", g)
	}
}
