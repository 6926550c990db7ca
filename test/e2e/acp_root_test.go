//go:build root

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/acp/acptest"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// withPeer is the small repository with an agent in it that speaks the Agent
// Client Protocol.
func withPeer(t *testing.T) string {
	t.Helper()
	dir := small(t)
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "peer"), "../../internal/agent/acp/acptest/peer")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the agent is not built: %v\n%s", err, out)
	}
	git(t, dir, "add", "peer")
	git(t, dir, "commit", "-qm", "the agent")
	return dir
}

func agentEvents(t *testing.T, e *testenv.Env, id string) []api.AgentEvent {
	t.Helper()
	var events []api.AgentEvent
	err := e.Client.WatchTask(context.Background(), id, 0, func(ev api.Event) error {
		var a api.AgentEvent
		if ev.Type == "agent" && json.Unmarshal(ev.Data, &a) == nil {
			events = append(events, a)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func kinds(events []api.AgentEvent) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

// An agent that speaks the Agent Client Protocol mends a repository, although
// the control plane and the worker are killed in the middle of its turn: it is
// spoken to by the next ones where it was, and no word comes twice.
func TestACP(t *testing.T) {
	s := startScripted(t, modeltest.Options{})
	e, signal := s.env, fmt.Sprintf("http://signal.test:%d", s.signal.port)
	before := e.Census()
	source := bundle(t, e, withPeer(t))
	agent := api.Agent{Name: "acp", Argv: []string{"./peer"}, Model: "large"}
	prompt := acptest.Prompt(
		acptest.Act{Say: "I look."}, acptest.Act{Run: "cat answer.txt"}, acptest.Act{Run: "curl -s " + signal + "/began; until curl -sf " + signal + "/go; do sleep 0.1; done"},
		acptest.Act{Read: "/etc/passwd"}, acptest.Act{Run: "echo 42 > answer.txt && ./check.sh && echo mended"}, acptest.Act{Say: "Done."}, acptest.Act{Stay: true},
	)
	id := submit(t, e, api.TaskRequest{Prompt: prompt, Repo: source, Agent: agent, Verify: "./check.sh", Policy: fmt.Sprintf(
		"version: 1\nagent: {network: {allow: [{host: signal.test, ports: [%d]}]}}\n", s.signal.port)}).ID
	testenv.Until(t, patience, "the agent's second command", func() bool { return s.signal.began.Load() == 1 })
	kill(t, e, "cofferdamd")
	kill(t, e, "worker")
	box := testenv.Stage(mustTask(t, e, id), "agent").Sandbox
	s.signal.open.Store(true)
	got := e.WaitTask(id, patience)
	must(t, e, got, api.Succeeded, "")
	if testenv.Stage(got, "agent").Sandbox != box || got.Attempt != 1 {
		t.Errorf("it was begun anew: attempt %d", got.Attempt)
	}
	events := agentEvents(t, e, id)
	want := []string{"text", "text", "call", "permission", "result", "call", "permission", "result", "call", "permission", "result", "text", "usage", "end"}
	if !slices.Equal(kinds(events), want) {
		t.Errorf("events %v, want %v", kinds(events), want)
	}
	if events[0].Text != "mode default, model large" || !strings.Contains(events[10].Text, "mended") || s.signal.began.Load() != 1 {
		t.Errorf("events %+v", events)
	}
	if u := got.Usage.Model; u.Input != 100 || u.Output != 20 {
		t.Errorf("usage %+v", u)
	}
	if out, err := e.CLI("task", "logs", id); err != nil || !strings.Contains(out, "+ asked, and was allowed: Yes") {
		t.Errorf("task logs: %v\n%s", err, out)
	}
	e.Unchanged(before)
}

// Each way in which such an agent fails ends its task with a code.
func TestACPEndings(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	source := bundle(t, e, withPeer(t))
	for name, c := range map[string]struct {
		argv, model string
		act         acptest.Act
		reason      string
	}{
		"no agent":  {"true", "", acptest.Act{Say: "x"}, "agent.failed"},
		"goes":      {"./peer", "", acptest.Act{Exit: 3}, "agent.failed"},
		"gives up":  {"./peer", "", acptest.Act{Stop: "max_tokens"}, "agent.failed"},
		"its model": {"./peer", "", acptest.Act{Fail: "API Error: 500 oh"}, "agent.model_faulty"},
		"silent":    {"./peer", "", acptest.Act{Need: "/nowhere"}, "agent.model_silent"},
	} {
		t.Run(name, func(t *testing.T) {
			got := e.WaitTask(submit(t, e, api.TaskRequest{
				Prompt: acptest.Prompt(c.act), Repo: source, Agent: api.Agent{Name: "acp", Argv: []string{c.argv}, Model: c.model}, Policy: "version: 1\nlimits: {time: 40s}\n",
			}).ID, patience)
			must(t, e, got, api.Failed, c.reason)
		})
	}
}
