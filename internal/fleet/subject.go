package fleet

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Holds says whether the sandbox is on a worker that connected with a token of
// the subject. What is on a worker that is quarantined is nobody's. A sandbox that no worker has is a *task.Failure with
// task.InputNotFound; a worker that can't be asked, one of class infra.
func (f *Fleet) Holds(ctx context.Context, id, subject string) (bool, error) {
	worker, err := f.where(ctx, id)
	if err != nil {
		return false, err
	}
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	m := f.registry.members[worker]
	if m == nil && subject != "" && !f.registry.marks[worker].Apart() {
		// After a restart of ours a machine's gateway may be back before its worker.
		return false, task.Fail(task.InfraWorkerLost, "the worker that has the sandbox is not connected at this moment", nil)
	}
	return m != nil && !f.registry.marks[worker].Apart() && subject != "" && m.subject == subject, nil
}

// Where names the worker that has the sandbox. One that no worker has is a
// *task.Failure with task.InputNotFound.
func (f *Fleet) Where(ctx context.Context, id string) (string, error) { return f.where(ctx, id) }
