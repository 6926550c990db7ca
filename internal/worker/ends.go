package worker

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// ends remembers which sandboxes were destroyed, by the order of the control
// plane's requests. A request to make one, given up by who sent it, may arrive
// after the one that destroys it: what it made would be nobody's. The zero value
// is ready.
type ends struct {
	mu    sync.Mutex
	noted map[string]end
}

type end struct {
	order int64
	at    time.Time
}

// late is longer than a request may be under way.
const late = 10 * time.Minute

// note remembers the order of a destroy, and forgets those of long ago.
func (e *ends) note(id string, order int64, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.noted == nil {
		e.noted = map[string]end{}
	}
	for other, old := range e.noted {
		if now.Sub(old.at) > late {
			delete(e.noted, other)
		}
	}
	e.noted[id] = end{max(order, e.noted[id].order), now}
}

// check refuses to make what a later request has destroyed.
func (e *ends) check(id string, order int64) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if order < e.noted[id].order {
		return task.Fail(task.InfraSandboxCreate, "the sandbox was destroyed before the request to make it arrived", nil)
	}
	return nil
}

// orderOf reads a request's order; none is 0.
func orderOf(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("order")
	if text == "" {
		return 0, nil
	}
	order, err := strconv.ParseInt(text, 10, 64)
	if err != nil || order < 0 {
		return 0, task.Fail(task.InputInvalid, "order is not a number of 0 or more", nil)
	}
	return order, nil
}
