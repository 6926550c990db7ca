package fleet

import (
	"slices"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Mark sets a worker apart, or with an empty state takes that back. What it means
// holds from here on: no sandbox is placed on a marked worker, nothing is lent to
// one that is quarantined, and one that is forgotten is cut off, does not come
// back, and has lost what it had. Who calls it keeps marks over restarts.
func (r *Registry) Mark(m task.WorkerMark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.State == "" {
		delete(r.marks, m.Worker)
	} else {
		r.marks[m.Worker] = m
	}
	if have := r.members[m.Worker]; have != nil && have.conn != nil && m.State == task.WorkerForgotten {
		go have.conn.session.Close() // waits for its own goroutines
		have.conn = nil
	}
	r.signal()
}

// marked is the worker's mark.
func (r *Registry) marked(worker string) task.WorkerMark {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.marks[worker]
}

// apart says that every worker that is connected is marked, so that none takes
// new sandboxes.
func (r *Registry) apart() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	connected, marked := 0, 0
	for _, m := range r.members {
		if m.conn == nil {
			continue
		}
		connected++
		if r.marks[m.id].State != "" {
			marked++
		}
	}
	return connected > 0 && connected == marked
}

// absent lists the workers that are marked and were not here since the start.
// r.mu is held.
func (r *Registry) absent() []Worker {
	var out []Worker
	for name, mark := range r.marks {
		if r.members[name] == nil {
			out = append(out, Worker{ID: name, State: Lost, Mark: mark})
		}
	}
	return out
}

// Mark sets a worker apart.
func (f *Fleet) Mark(m task.WorkerMark) { f.registry.Mark(m) }

// Connected says whether the worker is here at this moment, and known whether it
// was since the start or is marked.
func (f *Fleet) Connected(worker string) (connected, known bool) {
	all := f.registry.Workers()
	i := slices.IndexFunc(all, func(w Worker) bool { return w.ID == worker })
	return i >= 0 && all[i].State == Connected, i >= 0
}

// forgotten is the failure for a sandbox of a worker that never returns.
func (f *Fleet) forgotten(worker string) error {
	if f.registry.marked(worker).State != task.WorkerForgotten {
		return nil
	}
	return task.Fail(task.InfraSandboxLost, "its worker was forgotten, and the sandbox with it", nil)
}

// Reconnect ends every worker's connection, so that each comes back with the token
// that it is given now. What goes on in sandboxes does not notice.
func (r *Registry) Reconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.members {
		if m.conn != nil {
			go m.conn.session.Close() // waits for its own goroutines
		}
	}
}
