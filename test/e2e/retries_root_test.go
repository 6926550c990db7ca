//go:build root

package e2e

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// The seed failures from the outside: which stage fails, with which code, after
// how many attempts, and that the task's history tells all of it.
func TestSeedFailures(t *testing.T) {
	e := testenv.Start(t, testenv.Config{OperatorPolicy: "version: 1\nprivate: [{host: 127.0.0.9, ports: [9]}]\n"})
	before := e.Census()
	source := bundle(t, e, small(t))
	for name, c := range map[string]struct {
		req    api.TaskRequest
		stage  string
		reason string
		text   string
	}{
		"clone fails": {
			api.TaskRequest{Repo: api.Repo{URL: "https://192.0.2.1:9/none"}, Agent: sh("true")}, "checkout", "checkout.failed", "git clone",
		},
		"install times out": {
			api.TaskRequest{Repo: source, Agent: sh("true"), Setup: "sleep 1000", Policy: "version: 1\nsetup: {time: 2s}\n"}, "setup", "limit.time", "longer than it may",
		},
		"registry down": {
			api.TaskRequest{
				Repo: source, Agent: sh("true"), Setup: "exec 3<>/dev/tcp/127.0.0.9/9 || exit 7",
				Policy: "version: 1\nsetup: {network: {allow: [{host: 127.0.0.9, ports: [9]}]}}\n",
			}, "setup", "setup.failed", "exited with",
		},
		"tests fail": {
			api.TaskRequest{Repo: source, Agent: sh("true"), Verify: "exit 3"}, "verify", "verify.failed", "exited with 3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, e, c.req)
			must(t, e, got, api.Failed, c.reason)
			if !strings.Contains(got.Text, c.text) {
				t.Errorf("the task says %q, want %q", got.Text, c.text)
			}
			failed := 0
			for _, r := range got.History {
				if r.Attempt != 1 || r.Round != 1 {
					t.Errorf("it was tried again: %+v", r)
				}
				if r.State == "failed" {
					failed++
					if r.Stage != c.stage || r.Reason != c.reason {
						t.Errorf("history has %+v", r)
					}
				}
			}
			if failed != 1 {
				t.Errorf("%d failed runs in %+v", failed, got.History)
			}
		})
	}
	e.Unchanged(before)
}

// A worker that is killed while a task runs costs nothing but time: the task
// ends well, its agent has run once, and what was tried is told.
func TestWorkerKilledIsRetried(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	req := api.TaskRequest{
		Repo: bundle(t, e, small(t)), Agent: sh("echo x >> runs; sleep 3; echo 42 > answer.txt"), Verify: "test $(wc -l < runs) = 1 && ./check.sh",
	}
	task := submit(t, e, req)
	testenv.Until(t, patience, "the agent to run", func() bool {
		got, err := e.Client.Task(t.Context(), task.ID)
		return err == nil && testenv.Stage(got, "agent").State == "running"
	})
	old := e.Kill("worker")
	e.Reborn("worker", old)
	got := e.WaitTask(task.ID, patience)
	must(t, e, got, api.Succeeded, "")
	if len(got.History) < 8 {
		t.Errorf("the history is short: %+v", got.History)
	}
}
