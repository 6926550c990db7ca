package cli

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

func (s *site) listWorkers(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, 200, api.WorkerList{Workers: []api.Worker{{Name: "m1", State: "connected", Sandboxes: 2, Leftovers: []api.Leftover{}, Mark: s.mark}}})
}

func (s *site) markWorker(w http.ResponseWriter, r *http.Request) {
	var req api.WorkerMarking
	if r.Method == http.MethodPut {
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			refuse(w, 400, "input.invalid", err.Error())
			return
		}
	}
	if name := r.PathValue("name"); name != "m1" {
		refuse(w, 404, "input.not_found", "no worker "+name)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark = nil
	if req.State != "" {
		s.mark = &api.WorkerMark{State: req.State, Reason: req.Reason, By: "tester", At: time.Now()}
	}
	answer(w, 200, api.WorkerMarked{Worker: "m1", Mark: s.mark, Sandboxes: 2})
}
