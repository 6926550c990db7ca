package credential

import (
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What a task was lent is known from its lease on until the task is over, after a
// restart too; what it was not lent never.
func TestValuesOfATaskAreKnown(t *testing.T) {
	r := newRig(t)
	r.add(nil)
	tk, other := r.task("alice"), r.task("alice")
	u := use(tk, task.Agent)
	seal := func(id string) string { return r.leases.Masker(id).Seal("is " + realValue) }
	if got := seal(tk.ID); got != "is "+realValue {
		t.Errorf("before the lease: %s", got)
	}
	r.lend(u, "key")
	if got := seal(tk.ID); got != "is [sealed]" {
		t.Errorf("lent: %s", got)
	}
	if err := r.leases.End(t.Context(), tk.ID, u.Sandbox, task.EndedStage); err != nil {
		t.Fatal(err)
	}
	r.reopen(func() {})
	var masks stage.Masks = r.leases
	for _, id := range []string{tk.ID, other.ID} {
		if err := masks.Learn(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if got := seal(tk.ID); got != "is [sealed]" {
		t.Errorf("after the lease's end and a restart: %s", got)
	}
	if got := seal(other.ID); got != "is "+realValue {
		t.Errorf("another task: %s", got)
	}
	if err := r.leases.Settle(t.Context(), tk.ID); err != nil {
		t.Fatal(err)
	}
	if r.leases.Masker(tk.ID) != nil {
		t.Error("a task that is over is remembered")
	}
}
