//go:build root

package e2e

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/acp/acptest"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// toolPolicy asks for every command but one, and never fetches.
const toolPolicy = `version: 1
agent:
  tools:
    default: ask
    wait: 10m
    allow: [read, search]
    refuse: [fetch]
    commands: [[./check.sh]]
`

// evilCommand is one whose text would clear the screen, write to the clipboard and
// turn what follows around.
const evilCommand = "echo evil > evil.txt; : \x1b[2J\x1b]52;c;eA==\a\u202e\u200b"

// hiddenCommand is one that Claude Code asks about as well: control characters it
// refuses by itself.
const hiddenCommand = "echo evil > evil.txt; : \u202e\u200b"

// askedSteps has what is denied last: opencode ends its turn with it.
func askedSteps() []modeltest.Step {
	return []modeltest.Step{{Shell: "echo 42 > answer.txt; echo x >> ran.txt"}, {Shell: "./check.sh"}, {Shell: hiddenCommand}, {Text: "The answer is mended."}}
}

// question waits for the task's one question that nobody answered.
func question(t *testing.T, s *testenv.Env, id string) api.Approval {
	t.Helper()
	var found api.Approval
	testenv.Until(t, patience, "a question", func() bool {
		list, err := s.Client.Approvals(context.Background(), false, id)
		if err != nil {
			return false
		}
		if len(list) > 1 {
			t.Fatalf("a person is asked twice: %+v", list)
		}
		if len(list) == 1 {
			found = list[0]
		}
		return len(list) == 1
	})
	return found
}

// answersTools lets the first thing be done that a task's agent asks for, although
// cofferdamd is killed while it waits, and denies the second.
func answersTools(t *testing.T, e *testenv.Env, id string) {
	t.Helper()
	first := question(t, e, id)
	if first.Kind != "tool" || first.Stage != "agent" || first.Tool == nil || !strings.Contains(strings.Join(first.Tool.Argv, " "), "echo 42 > answer.txt; echo x >> ran.txt") {
		t.Fatalf("asked %+v %+v", first, first.Tool)
	}
	kill(t, e, "cofferdamd")
	if again := question(t, e, id); again.ID != first.ID || again.Digest != first.Digest {
		t.Errorf("asked anew: %+v", again)
	}
	if out, err := e.CLI("approve", first.ID); err != nil {
		t.Fatalf("approve: %v\n%s", err, out)
	}
	var second api.Approval
	testenv.Until(t, patience, "the second question", func() bool {
		second = question(t, e, id)
		return second.ID != first.ID
	})
	out, err := e.CLI("approvals", "show", second.ID)
	if err != nil || strings.ContainsAny(out, "\x1b\a\u202e\u200b") || !strings.Contains(out, "echo evil > evil.txt; : ") || !strings.Contains(out, `\u202e\u200b`) {
		t.Errorf("approvals show: %v\n%q", err, out)
	}
	if out, err := e.CLI("deny", second.ID); err != nil {
		t.Fatalf("deny: %v\n%s", err, out)
	}
}

// checkTools looks at what such a run left: what was allowed was done once, what was
// denied was not, and all of it is in the task and in its receipt.
func checkTools(t *testing.T, e *testenv.Env, got api.Task) {
	t.Helper()
	must(t, e, got, api.Succeeded, "")
	if patch := string(output(t, e, got.ID, "patch")); !strings.Contains(patch, "+42") || strings.Contains(patch, "evil") || strings.Count(patch, "+x") != 1 {
		t.Errorf("the patch is\n%s", patch)
	}
	if got.Attempt != 1 {
		t.Errorf("attempt %d", got.Attempt)
	}
	list, err := e.Client.Approvals(context.Background(), true, got.ID)
	if err != nil || len(list) != 2 || list[1].State != "allowed" || !list[1].Used || list[0].State != "denied" {
		t.Errorf("questions: %v %+v", err, list)
	}
	out, err := e.CLI("task", "show", got.ID)
	if err != nil || !strings.Contains(out, "echo 42 > answer.txt") || strings.Contains(out, "\x1b]52") {
		t.Errorf("task show: %v\n%s", err, out)
	}
	var permissions []string
	for _, ev := range agentEvents(t, e, got.ID) {
		if ev.Type == "permission" {
			text, _, _ := strings.Cut(ev.Text, ";")
			permissions = append(permissions, text)
		}
	}
	for _, want := range []string{"a person allowed it (once)", "a person denied it", "allowed by the policy (task, tools.commands[0])"} {
		if !slices.Contains(permissions, want) {
			t.Errorf("no event %q among %q", want, permissions)
		}
	}
	if out, err = e.CLI("task", "receipt", got.ID); err != nil {
		t.Fatal(err)
	}
	var receipt struct {
		Body struct {
			Approvals []struct{ Kind, State, Digest string }
		}
	}
	asked := &receipt.Body.Approvals
	if json.Unmarshal([]byte(out), &receipt) != nil || len(*asked) != 2 || (*asked)[0].Kind != "tool" || (*asked)[0].Digest != list[1].Digest || (*asked)[1].State != "denied" {
		t.Errorf("the receipt has %+v", *asked)
	}
}

// The loop's tools, Claude Code's control protocol and Codex's app-server ask
// before they do anything that policy does not allow; a kill of cofferdamd neither
// asks twice nor does twice.
func TestToolsAreAsked(t *testing.T) {
	asksWith(t, append(harnessCases()[:2], harnessCase{name: "loop"})...)
}

func asksWith(t *testing.T, cases ...harnessCase) {
	harnesses := slices.DeleteFunc(slices.Clone(cases), func(c harnessCase) bool { return c.name == "loop" })
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: askedSteps()}, harnesses...)
	before := s.env.Census()
	source := bundle(t, s.env, small(t))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			agent := c.agent(s)
			if c.name == "loop" {
				agent.Credential = "claude"
			}
			id := submit(t, s.env, api.TaskRequest{Prompt: "mend the answer", Repo: source, Agent: agent, Verify: "./check.sh", Policy: toolPolicy}).ID
			answersTools(t, s.env, id)
			checkTools(t, s.env, s.env.WaitTask(id, patience))
		})
	}
	s.env.Unchanged(before)
}

// Any agent that speaks the Agent Client Protocol asks in the same inbox. What
// nobody answers in time is denied, and a decision for the task is for the very
// bytes.
func TestToolsOfACP(t *testing.T) {
	e := testenv.Start(t, testenv.Config{})
	source := bundle(t, e, withPeer(t))
	run := func(policy string, acts ...acptest.Act) string {
		return submit(t, e, api.TaskRequest{Prompt: acptest.Prompt(acts...), Repo: source, Agent: api.Agent{Name: "acp", Argv: []string{"./peer"}}, Policy: policy}).ID
	}
	mend := acptest.Act{Run: "echo 42 > answer.txt; echo x >> ran.txt"}
	id := run(toolPolicy, mend, acptest.Act{Run: evilCommand}, acptest.Act{Run: "./check.sh"}, acptest.Act{Say: "Done."})
	answersTools(t, e, id)
	checkTools(t, e, e.WaitTask(id, patience))

	id = run(strings.Replace(toolPolicy, "10m", "1s", 1), mend, acptest.Act{Say: "Done."})
	must(t, e, e.WaitTask(id, patience), api.Succeeded, "")
	if list, err := e.Client.Approvals(context.Background(), true, id); err != nil || len(list) != 1 || list[0].State != "expired" {
		t.Errorf("nobody answered: %v %+v", err, list)
	}

	id = run(toolPolicy, mend, mend, acptest.Act{Run: "echo 42 > answer.txt; echo y >> ran.txt"}, acptest.Act{Say: "Done."})
	if out, err := e.CLI("approve", question(t, e, id).ID, "--scope", "task"); err != nil {
		t.Fatalf("approve: %v\n%s", err, out)
	}
	var other api.Approval
	testenv.Until(t, patience, "a question about other bytes", func() bool {
		other = question(t, e, id)
		return strings.Contains(strings.Join(other.Tool.Argv, " "), "echo y")
	})
	if out, err := e.CLI("task", "cancel", id); err != nil {
		t.Fatalf("cancel: %v\n%s", err, out)
	}
	e.WaitTask(id, patience)
	list, err := e.Client.Approvals(context.Background(), true, id)
	if err != nil || len(list) != 3 || list[0].State != "withdrawn" || list[1].State != "allowed" || list[1].Decision == "" || list[1].Decision != list[2].Decision {
		t.Errorf("questions: %v %+v", err, list)
	}
}
