//go:build root

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/testenv"
)

// realKey of a vendor whose keys have no shape of their own here.
const realKey = "cfd-real-key-0123456789abcdef0123456789abcdef"

// harnessCase is one harness and where its vendor's key goes.
type harnessCase struct {
	name, model, path string
	header, prefix    string
}

func harnessCases() []harnessCase {
	return []harnessCase{
		{"claude", "", "", "X-Api-Key", ""},
		{"codex", "scripted", "/v1", "Authorization", "Bearer "},
		{"opencode", "scripted", "/v1", "Authorization", "Bearer "},
		{"gemini", "", "", "X-Goog-Api-Key", ""},
	}
}

func (c harnessCase) agent(s *scripted) api.Agent {
	return api.Agent{Name: c.name, Model: c.model, ModelURL: s.url + c.path, Credential: c.name}
}

// startAgents starts a platform and a model's server, and installs the
// harnesses as a person would.
func startAgents(t *testing.T, o modeltest.Options, cases ...harnessCase) *scripted {
	t.Helper()
	s := startScripted(t, o)
	for _, c := range cases {
		if out, err := s.env.CLI("agent", "install", c.name); err != nil {
			t.Fatalf("agent install %s: %v\n%s", c.name, err, out)
		}
		s.keepFor(t, c, c.name, realKey)
	}
	return s
}

// keepFor puts a key for a harness into the vault.
func (s *scripted) keepFor(t *testing.T, c harnessCase, name, key string) {
	t.Helper()
	args := []string{"credential", "add", name, "--header", c.header, "--host", "model.test", "--port", fmt.Sprint(s.port)}
	if c.prefix != "" {
		args = append(args, "--prefix", c.prefix)
	}
	cmd := s.env.Command(args...)
	cmd.Stdin = strings.NewReader(key)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("credential add: %v\n%s", err, out)
	}
}

// mend is a script that looks at everything a sandbox can see and mends the
// small repository.
func mend() []modeltest.Step {
	return []modeltest.Step{
		{Shell: `env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n'; grep -rIl "cfd-real-ke[y]-0123456789" "$HOME" /workspace /etc /run /tmp /var 2>/dev/null | sed 's/^/fou''nd:/'; true`},
		{Shell: "cd /workspace && echo 42 > answer.txt && ./check.sh && echo mended"},
		{Text: "The answer is mended."},
	}
}

// checkHarness looks at what a good run of a harness left.
func checkHarness(t *testing.T, s *scripted, c harnessCase, got api.Task) {
	t.Helper()
	must(t, s.env, got, api.Succeeded, "")
	if patch := string(output(t, s.env, got.ID, "patch")); !strings.Contains(patch, "+42") {
		t.Errorf("the patch is\n%s", patch)
	}
	var kinds []string
	err := s.env.Client.WatchTask(context.Background(), got.ID, 0, func(ev api.Event) error {
		var e api.AgentEvent
		if ev.Type == "agent" && json.Unmarshal(ev.Data, &e) == nil {
			kinds = append(kinds, e.Type)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"call", "result", "text", "usage", "end"} {
		if !slices.Contains(kinds, kind) {
			t.Errorf("no event of type %s among %v", kind, kinds)
		}
	}
	if u := got.Usage.Model; u.Input < 300 || u.Output < 60 || u.Requests < 1 {
		t.Errorf("usage %+v", u)
	}
	text := log(t, s.env, got.ID, "agent")
	if !strings.Contains(text, "mended") || strings.Contains(text, realKey) || strings.Contains(text, "found:") {
		t.Errorf("the log is\n%s", text)
	}
	if out, err := s.env.CLI("task", "logs", got.ID); err != nil || !strings.Contains(out, "The answer is mended.") {
		t.Errorf("task logs: %v\n%s", err, out)
	}
	records, err := s.env.Client.Egress(context.Background(), got.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		// The self-test of a lease is the gateway's own, and reaches nothing.
		if r.Verdict == "allowed" && r.Name != "model.test" && r.Rule != "self-test" {
			t.Errorf("%s reached %+v", c.name, r)
		}
	}
}

// sawOnlyTheRealKey looks at what reached the model's server.
func sawOnlyTheRealKey(t *testing.T, s *scripted) {
	t.Helper()
	asked := 0
	for _, q := range s.Seen() {
		if strings.HasSuffix(q.Path, "/messages") || strings.Contains(q.Path, "/responses") || strings.Contains(q.Path, "completions") || strings.Contains(q.Path, "enerateContent") {
			asked++
			if q.Key != realKey {
				t.Errorf("%s %s came with the key %q", q.Method, q.Path, q.Key)
			}
		}
		if bytes.Contains(q.Body, []byte(realKey)) {
			t.Errorf("the body of %s holds the key: somebody inside knows it", q.Path)
		}
	}
	if asked < 3 {
		t.Errorf("the model was asked %d times", asked)
	}
	nowhere(t, s.env, realKey)
}

// Real harnesses mend a repository through the gateway: the model's server sees
// the real key and nothing else does.
func TestClaudeAndCodex(t *testing.T) { mendWith(t, harnessCases()[:2]...) }

func mendWith(t *testing.T, cases ...harnessCase) {
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: mend()}, cases...)
	before := s.env.Census()
	source := bundle(t, s.env, small(t))
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			created := submit(t, s.env, api.TaskRequest{Prompt: "mend the answer", Repo: source, Agent: c.agent(s), Verify: "./check.sh"})
			checkHarness(t, s, c, s.env.WaitTask(created.ID, patience))
		})
	}
	sawOnlyTheRealKey(t, s)
	s.env.Unchanged(before)
}

// The server says no without the real key, and what is lent to a task ends with
// it: the good runs above are good because of the gateway.
func TestWithoutTheKeyNothingWorks(t *testing.T) {
	c := harnessCases()[0]
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: mend()}, c)
	s.keepFor(t, c, "wrong", "not-the-key-of-the-server-0123456789")
	source := bundle(t, s.env, small(t))
	agent := c.agent(s)
	agent.Credential = "wrong"
	got := s.env.WaitTask(submit(t, s.env, api.TaskRequest{Prompt: "mend", Repo: source, Agent: agent}).ID, patience)
	must(t, s.env, got, api.Failed, "agent.model_refused")
}

// Each way a model's server fails has its code, for both harnesses.
func TestModelFaultsOfHarnesses(t *testing.T) {
	faults := []struct {
		fault  modeltest.Fault
		reason string
	}{
		{"400", "agent.model_refused"},
		{"401", "agent.model_refused"},
		{"429", "agent.model_limited"},
		{"500", "agent.model_faulty"},
		{modeltest.Garbage, "agent.model_faulty"},
		{modeltest.Silent, "agent.model_silent"},
	}
	cases := harnessCases()[:2]
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: mend(), FaultOf: func(body []byte) modeltest.Fault {
		for _, f := range faults {
			if bytes.Contains(body, []byte("wanted fault: "+f.fault+".")) {
				return f.fault
			}
		}
		return modeltest.None
	}}, cases...)
	source := bundle(t, s.env, small(t))
	for _, f := range faults {
		t.Run(string(f.fault), func(t *testing.T) {
			ids := map[string]string{}
			for _, c := range cases {
				ids[c.name] = submit(t, s.env, api.TaskRequest{
					Prompt: "wanted fault: " + string(f.fault) + ".", Repo: source, Agent: c.agent(s), Policy: "version: 1\nlimits: {time: 40s}\n",
				}).ID
			}
			for _, id := range ids {
				must(t, s.env, s.env.WaitTask(id, patience), api.Failed, f.reason)
			}
		})
	}
}

// The gateway is killed while the model is being asked: the harness goes on in
// the same sandbox, by its own session.
func TestHarnessIsResumed(t *testing.T) {
	for _, c := range harnessCases()[:2] {
		t.Run(c.name, func(t *testing.T) { resumes(t, c, harnessCase.agent, checkHarness) })
	}
}

// resumes runs the task of an agent, kills the gateway under its second question
// and checks what came of it.
func resumes(t *testing.T, c harnessCase, agent func(harnessCase, *scripted) api.Agent, check func(*testing.T, *scripted, harnessCase, api.Task)) {
	gate := make(chan struct{})
	s := startAgents(t, modeltest.Options{Key: realKey, Steps: mend(), Gate: gate}, c)
	id := submit(t, s.env, api.TaskRequest{Prompt: "mend the answer", Repo: bundle(t, s.env, small(t)), Agent: agent(c, s), Verify: "./check.sh"}).ID
	gate <- struct{}{}
	s.event(t, id, func(e api.AgentEvent) bool { return e.Type == "result" })
	sandbox := testenv.Stage(mustTask(t, s.env, id), "agent").Sandbox
	testenv.Until(t, patience, "the second question", func() bool { return s.Asked() >= 2 })
	s.env.Reborn("gateway", s.env.Kill("gateway"))
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go func() {
		for {
			select {
			case gate <- struct{}{}:
			case <-done:
				return
			}
		}
	}()
	got := s.env.WaitTask(id, patience)
	check(t, s, c, got)
	if got.Attempt != 1 || testenv.Stage(got, "agent").Sandbox != sandbox {
		t.Errorf("attempt %d in sandbox %s, it began in %s", got.Attempt, testenv.Stage(got, "agent").Sandbox, sandbox)
	}
}

// What can't be installed or run says what to do.
func TestAgentsThatAreNotThere(t *testing.T) {
	s := startScripted(t, modeltest.Options{Key: realKey})
	e, c := s.env, harnessCases()[0]
	s.keepFor(t, c, c.name, realKey)
	source := bundle(t, e, small(t))
	got := e.WaitTask(submit(t, e, api.TaskRequest{Prompt: "mend", Repo: source, Agent: c.agent(s)}).ID, patience)
	if got.State != api.Failed || got.Reason != "input.invalid" || !strings.Contains(got.Text, "cofferdam agent install claude@") {
		t.Errorf("a task whose agent is not installed: %s %s: %s", got.State, got.Reason, got.Text)
	}
	for what, want := range map[string]string{
		"emacs": "input.invalid", "claude@latest": "input.invalid", "claude@0.0.999": "input.not_found",
	} {
		out, err := e.CLI("--json", "agent", "install", what)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("agent install %s: %v\n%s", what, err, out)
		}
	}
	var p *api.Problem
	for _, a := range []api.Agent{{Name: "emacs"}, {Name: "claude", Version: "x"}, {Name: "codex", Provider: "anthropic"}, {Name: "opencode"}} {
		_, _, err := e.Client.CreateTask(context.Background(), api.TaskRequest{Repo: source, Agent: a}, "")
		if !errors.As(err, &p) || p.Code != "input.invalid" || !strings.HasPrefix(p.Detail, "body.agent.") {
			t.Errorf("agent %+v: %v", a, err)
		}
	}
}
