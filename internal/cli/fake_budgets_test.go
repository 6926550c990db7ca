package cli

import (
	"encoding/json"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// fakeBudgets answers about budgets, the last change of which it keeps.
func (s *site) fakeBudgets(mux *http.ServeMux) {
	var last api.Budget
	change := func(w http.ResponseWriter, r *http.Request) bool {
		var c api.BudgetChange
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields()
		if err := dec.Decode(&c); err != nil {
			refuse(w, 400, "input.invalid", err.Error())
			return false
		}
		if c.Tokens != nil {
			last.Tokens = max(*c.Tokens, 0)
		}
		if c.USD != nil {
			last.USD = max(*c.USD, 0)
		}
		if last.Per = c.Per; c.Per == "" {
			last.Per = "month"
		}
		last.By = "admin\x1b[2J"
		return true
	}
	ofTask := func(w http.ResponseWriter, r *http.Request) {
		b := last
		b.Scope, b.Name, b.Per, b.UsedTokens, b.UsedUSD, b.Unpriced = "task", r.PathValue("id"), "task", 1234, 0.5, "local"
		out := api.TaskBudget{Task: b.Name, Waiting: last.Tokens == 0, Models: []api.ModelSpend{
			{Model: "big\x1b[2J", Requests: 3, Input: 1000, Output: 200, CacheRead: 30, CacheWrite: 4, Estimates: 1, USD: 0.5, Priced: true},
			{Model: "local", Requests: 1, Input: 5},
		}, Budgets: []api.Budget{}}
		if last.Tokens > 0 || last.USD > 0 {
			out.Budgets = append(out.Budgets, b)
		}
		answer(w, 200, out)
	}
	for pattern, handle := range map[string]http.HandlerFunc{
		"GET /v1/tasks/{id}/budget": ofTask,
		"PUT /v1/tasks/{id}/budget": func(w http.ResponseWriter, r *http.Request) {
			if change(w, r) {
				ofTask(w, r)
			}
		},
		"GET /v1/budgets": func(w http.ResponseWriter, _ *http.Request) {
			answer(w, 200, api.BudgetList{Budgets: []api.Budget{last}})
		},
		"PUT /v1/budgets/{scope}/{name}": func(w http.ResponseWriter, r *http.Request) {
			if change(w, r) {
				last.Scope, last.Name = r.PathValue("scope"), r.PathValue("name")
				answer(w, 200, last)
			}
		},
		"DELETE /v1/budgets/{scope}/{name}": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
	} {
		mux.HandleFunc(pattern, s.authorized(handle))
	}
}
