package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// question reads a question about a policy; one that is too much is refused.
func question(w http.ResponseWriter, r *http.Request) (q api.PolicyQuestion, ok bool) {
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		refuse(w, 400, "input.invalid", err.Error())
		return q, false
	}
	if strings.Contains(q.Policy, "too much") {
		refuse(w, 403, "policy.ceiling", "policy line 2: agent.network.allow[0]: is more than the operator policy allows")
		return q, false
	}
	return q, true
}

func (s *site) explainPolicy(w http.ResponseWriter, r *http.Request) {
	if q, ok := question(w, r); ok {
		answer(w, 200, api.PolicyExplanation{
			PolicyDigest: "sha256:1234", Layers: []api.PolicyLayer{{Layer: "operator", Digest: "sha256:5678"}},
			Lines: []api.PolicyLine{
				{Field: "limits.memory", Text: "1GiB", Layer: "task", Line: 3},
				{Stage: "agent", Field: "network", Text: "allow a\x1b[2J.test:443" + q.Project + q.Stage, Layer: "project", Line: 7, Note: "spliced: trusts"},
			},
		})
	}
}

func (s *site) checkPolicy(w http.ResponseWriter, r *http.Request) {
	q, ok := question(w, r)
	if !ok {
		return
	}
	if strings.Contains(q.Policy, "none") {
		answer(w, 200, api.PolicyCheck{Passed: true, Examples: []api.PolicyExample{}})
		return
	}
	fails := strings.Contains(q.Policy, "failing")
	e := api.PolicyExample{Line: 9, Text: "agent a.test:443", Expect: "allowed", Got: "allowed", Rule: "agent.network.allow[0]", Passed: !fails}
	if fails {
		e.Got, e.Why, e.Rule, e.Reason = "denied", "is denied, not allowed", "", "policy.denied"
	}
	answer(w, 200, api.PolicyCheck{Passed: !fails, Examples: []api.PolicyExample{e}})
}

func (s *site) setProject(w http.ResponseWriter, r *http.Request) {
	var req api.ProjectRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, "input.invalid", err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.project = api.Project{Name: r.PathValue("name"), Text: req.Text, Digest: "sha256:9abc", By: "tester", At: time.Now()}
	answer(w, 200, s.project)
}

func (s *site) getProject(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.project.Name != r.PathValue("name") {
		refuse(w, 404, "input.not_found", `there is no project "`+r.PathValue("name")+`"`)
		return
	}
	if r.Method == http.MethodDelete {
		s.project = api.Project{}
		w.WriteHeader(204)
		return
	}
	answer(w, 200, s.project)
}

func (s *site) listProjects(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := api.ProjectList{Projects: []api.Project{}}
	if s.project.Name != "" {
		p := s.project
		p.Text = ""
		list.Projects = append(list.Projects, p)
	}
	answer(w, 200, list)
}
