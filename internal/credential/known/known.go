// Package known remembers which values tasks were lent, so that what comes out of
// a task can be searched for them. It is in memory only. A value counts until its
// task is forgotten, also when its lease has ended.
//
// Not promised: that a value is remembered over a restart; who has it adds it
// again.
package known

import (
	"sync"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

// Values are the values of all tasks. The zero Values has none. It is safe for
// concurrent use.
type Values struct {
	mu    sync.Mutex
	tasks map[string]*values
}

// values are those of one task.
type values struct {
	list   []task.Secret
	masker *mask.Masker
}

// Add remembers values of a task.
func (v *Values) Add(taskID string, add ...task.Secret) {
	v.mu.Lock()
	defer v.mu.Unlock()
	have := v.tasks[taskID]
	if have == nil {
		have = &values{}
	}
	before := len(have.list)
	for _, a := range add {
		if !a.Empty() && !have.has(a) {
			have.list = append(have.list, a)
		}
	}
	if len(have.list) == before {
		return
	}
	have.masker = mask.New(have.list...)
	if v.tasks == nil {
		v.tasks = map[string]*values{}
	}
	v.tasks[taskID] = have
}

func (h *values) has(a task.Secret) bool {
	for _, b := range h.list {
		if a.Reveal() == b.Reveal() {
			return true
		}
	}
	return false
}

// Masker finds the task's values; nil when it has none.
func (v *Values) Masker(taskID string) *mask.Masker {
	v.mu.Lock()
	defer v.mu.Unlock()
	if have := v.tasks[taskID]; have != nil {
		return have.masker
	}
	return nil
}

// Forget forgets a task that is over.
func (v *Values) Forget(taskID string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.tasks, taskID)
}
