//go:build root

package e2e

import (
	"context"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
)

// Real harnesses and our own loop work where their models are limited to those
// that they ask, and where they ask others the models' server hears nothing.
func TestModelsAllowList(t *testing.T) {
	cases := harnessCases()[:2]
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: mend()}, cases...)
	source := bundle(t, s.env, small(t))
	loop := s.loop()
	loop.Credential = "claude" // the same header
	agents := map[string]api.Agent{"loop": loop}
	for _, c := range cases {
		agents[c.name] = c.agent(s)
	}
	for name, agent := range agents {
		t.Run(name, func(t *testing.T) {
			ask := api.TaskRequest{Prompt: "mend the answer", Repo: source, Agent: agent, Policy: "version: 1\nagent: {models: ['*']}\n"}
			before := len(s.Seen())
			got := s.env.WaitTask(submit(t, s.env, ask).ID, patience)
			must(t, s.env, got, api.Succeeded, "")
			if len(s.Seen()) < before+3 {
				t.Errorf("the models' server was asked %d times", len(s.Seen())-before)
			}
			ask.Policy, ask.Agent.Model = "version: 1\nagent: {models: [no-such-model]}\n", ""
			before = len(s.Seen())
			got = s.env.WaitTask(submit(t, s.env, ask).ID, patience)
			if got.State == api.Succeeded {
				t.Errorf("a task that may ask no model succeeded")
			}
			for _, q := range s.Seen()[before:] {
				if q.Method == "POST" && len(q.Body) > 0 {
					t.Errorf("the models' server heard %s %s", q.Path, q.Body[:min(len(q.Body), 200)])
				}
			}
			records, err := s.env.Client.Egress(context.Background(), got.ID)
			if err != nil {
				t.Fatal(err)
			}
			refused := 0
			for _, r := range records {
				if r.Reason == "policy.model" {
					refused++
				}
			}
			if refused == 0 {
				t.Errorf("no refusal is on record: %+v", records)
			}
		})
	}
}
