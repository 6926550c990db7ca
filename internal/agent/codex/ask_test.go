package codex

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The lines are as 0.171.0 writes them, made shorter.
const (
	greeting = `{"id":1,"result":{"userAgent":"x"}}` + "\n"
	began    = `{"id":2,"result":{"thread":{"id":"th-1"}}}` + "\n"
	ran      = `{"id":3,"result":{"turn":{"id":"tu-1","status":"inProgress"}}}` + "\n"
	change   = `{"method":"item/started","params":{"item":{"type":"fileChange","id":"c1","changes":[{"path":"/workspace/n","kind":{"type":"add"},"diff":"hi\n"}],"status":"inProgress"}}}` + "\n"
	patch    = `{"method":"item/fileChange/requestApproval","id":1,"params":{"threadId":"th-1","turnId":"tu-1","itemId":"c1","startedAtMs":1,"reason":null,"grantRoot":null}}` + "\n"
	over1    = `{"method":"turn/completed","params":{"turn":{"id":"tu-1","status":"completed","error":null}}}` + "\n"
)

func command(id int, text string) string {
	return fmt.Sprintf(`{"method":"item/commandExecution/requestApproval","id":%d,"params":{"kind":"command","threadId":"th-1","itemId":"c0","startedAtMs":5,"command":%q,"cwd":"/workspace","commandActions":[],"availableDecisions":["accept"]}}`, id, text) + "\n"
}

func speak(t testing.TB, session string) (stage.HarnessAsker, *[]string) {
	t.Helper()
	h, err := New(task.AgentSpec{Name: "codex", Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	run := stage.HarnessRun{Prompt: "do it", Session: session, Asks: true}
	start, err := h.Start(run)
	if err != nil || !start.Stdin || start.Argv[1] != "app-server" || slices.Contains(start.Argv, "--dangerously-bypass-approvals-and-sandbox") {
		t.Fatalf("%+v %v", start, err)
	}
	var events []string
	s := h.Read(run, func(e task.AgentEvent) { events = append(events, e.Type) }).(stage.HarnessAsker)
	return s, &events
}

func TestAppServer(t *testing.T) {
	s, events := speak(t, "")
	said := string(s.Say())
	s.Output(1, []byte(greeting+began+ran))
	said += string(s.Say())
	for _, want := range []string{`"method":"initialize"`, `"method":"initialized"`, `"approvalPolicy":"untrusted"`, `"approvalsReviewer":"user"`, `"sandbox":"danger-full-access"`, `"model":"m"`, `"threadId":"th-1"`, `"text":"do it"`} {
		if !strings.Contains(said, want) {
			t.Errorf("%s is not in\n%s", want, said)
		}
	}
	s.Output(1, []byte(command(0, `/bin/bash -lc 'echo hi'`)+change+patch))
	asks := s.Asks()
	if len(asks) != 2 {
		t.Fatalf("%+v", asks)
	}
	if u := asks[0].Use; u.Tool != "shell" || u.Kind != task.ToolShell || !slices.Equal(u.Argv, []string{"sh", "-c", "/bin/bash -lc 'echo hi'"}) || u.Dir != "/workspace" || string(u.Input) != `{"command":"/bin/bash -lc 'echo hi'","cwd":"/workspace","kind":"command"}` {
		t.Errorf("%+v %s", u, u.Input)
	}
	if u := asks[1].Use; u.Kind != task.ToolEdit || asks[1].Call != "c1" || string(u.Input) != `{"changes":[{"diff":"hi\n","kind":{"type":"add"},"path":"/workspace/n"}]}` {
		t.Errorf("%+v %s", u, u.Input)
	}
	s.Answer(2, task.ToolAnswer{Allow: true})
	s.Answer(1, task.ToolAnswer{})
	if got := string(s.Say()); got != `{"id":0,"jsonrpc":"2.0","result":{"decision":"decline"}}`+"\n"+`{"id":1,"jsonrpc":"2.0","result":{"decision":"accept"}}`+"\n" {
		t.Errorf("said %s", got)
	}
	s.Output(1, []byte(`{"method":"thread/tokenUsage/updated","params":{"tokenUsage":{"last":{"inputTokens":100,"outputTokens":20}}}}`+"\n"+over1))
	if end := s.End(0); !s.Done() || end.Failure != nil || end.Session != "th-1" {
		t.Errorf("%+v", end)
	}
	if want := []string{"call", "usage", "end"}; !slices.Equal(*events, want) {
		t.Errorf("events %v", *events)
	}
}

// What is no question that can be shown is never allowed.
func TestHostileApprovals(t *testing.T) {
	for name, line := range map[string]string{
		"a change that nobody saw": patch,
		"no command":               `{"method":"item/commandExecution/requestApproval","id":1,"params":{"kind":"command","itemId":"c"}}` + "\n",
		"no object":                `{"method":"item/commandExecution/requestApproval","id":1,"params":[1]}` + "\n",
		"more permissions":         `{"method":"item/permissions/requestApproval","id":1,"params":{"permissions":{"network":{}}}}` + "\n",
		"the older way":            `{"method":"execCommandApproval","id":1,"params":{"command":["x"]}}` + "\n",
		"an id that is an object":  `{"method":"item/commandExecution/requestApproval","id":{},"params":{"command":"x"}}` + "\n",
	} {
		s, _ := speak(t, "")
		s.Output(1, []byte(greeting+began+ran))
		s.Say()
		s.Output(1, []byte(line))
		if asks := s.Asks(); len(asks) > 0 || strings.Contains(string(s.Say()), "accept") {
			t.Errorf("%s: %+v", name, asks)
		}
	}
	s, _ := speak(t, "")
	s.Output(1, []byte(command(0, "id")))
	if len(s.Asks()) > 0 {
		t.Error("it asks before its turn")
	}
	if s, _ = speak(t, "th-9"); true {
		s.Output(1, []byte(greeting))
		if said := string(s.Say()); !strings.Contains(said, `"method":"thread/resume"`) || !strings.Contains(said, `"threadId":"th-9"`) {
			t.Errorf("said %s", said)
		}
		s.Output(1, []byte(`{"id":2,"error":{"code":-1,"message":"stream error: unexpected status 429"}}`+"\n"))
		if end := s.End(0); end.Failure == nil || end.Failure.Reason != task.ModelLimited {
			t.Errorf("%+v", end)
		}
	}
}

func FuzzAppServer(f *testing.F) {
	f.Add([]byte(greeting+began+ran+change+patch+command(7, "x")+over1), true)
	f.Add([]byte(`{"id":1,"error":null}`+"\n"), false)
	f.Fuzz(func(t *testing.T, b []byte, allow bool) {
		s, _ := speak(t, "")
		s.Output(1, b)
		asks := s.Asks()
		for _, a := range asks {
			s.Answer(a.Number, task.ToolAnswer{Allow: allow})
		}
		if n := strings.Count(string(s.Say()), `"result":{"decision":"accept"}`); n > len(asks) || !allow && n > 0 {
			t.Fatalf("%d of %d are allowed", n, len(asks))
		}
		s.End(1)
	})
}
