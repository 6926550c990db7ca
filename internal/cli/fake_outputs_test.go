package cli

import (
	"net/http"
	"slices"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// removeTask removes a task that has ended, and says so again when asked again.
func (s *site) removeTask(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.PathValue("id")
	at := slices.IndexFunc(s.tasks, func(t *fakeTask) bool { return t.ID == id })
	if at < 0 {
		refuse(w, 404, "input.not_found", "no task "+id)
		return
	}
	if !s.tasks[at].Ended() {
		refuse(w, 409, "input.conflict", "task "+id+" has not ended; cancel it first")
		return
	}
	s.tasks = slices.Delete(s.tasks, at, at+1)
	answer(w, 200, api.TaskRemoval{Task: id, RemovedBy: "me", RemovedAt: time.Now(), Freed: 3, FreedBytes: 11, Shared: 1, Later: 1, Stays: []string{"its receipt\x1b[2J"}})
}
