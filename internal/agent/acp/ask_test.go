package acp_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// toPrompt brings a talk to its prompt.
const toPrompt = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}
{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}
`

func permission(id int, call, options string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":"s","options":[%s],"toolCall":%s}}`, id, options, call) + "\n"
}

const choices = `{"optionId":"always","kind":"allow_always","name":"Always"},{"optionId":"yes","kind":"allow_once","name":"Yes"},{"optionId":"no","kind":"reject_once","name":"No"}`

func asker(t testing.TB, emit func(task.AgentEvent)) stage.HarnessAsker {
	t.Helper()
	s, ok := speaker(t, task.AgentSpec{}, stage.HarnessRun{Prompt: "x", Asks: true}, emit).(stage.HarnessAsker)
	if !ok {
		t.Fatal("it does not ask")
	}
	s.Output(1, []byte(toPrompt))
	s.Say()
	return s
}

// What an agent asks waits for its answer, and so does what is said after it; it
// is allowed once and never for good.
func TestPermissionsAreAsked(t *testing.T) {
	var events []string
	s := asker(t, func(e task.AgentEvent) { events = append(events, strings.TrimSpace(e.Type+" "+e.Text)) })
	s.Output(1, []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"c1","kind":"execute","title":"harmless","rawInput":{"command":"go test ./..."}}}}`+"\n"+
		permission(7, `{"toolCallId":"c1","status":"completed"}`, choices)+permission(8, `{"toolCallId":"c2","kind":"edit","title":"x","content":[{"type":"diff","path":"a","newText":"b"}]}`, choices)+
		`{"jsonrpc":"2.0","id":9,"method":"fs/read_text_file","params":{}}`+"\n"))
	asks := s.Asks()
	if len(asks) != 2 {
		t.Fatalf("%+v", asks)
	}
	if u := asks[0].Use; u.Agent != "acp" || u.Tool != "execute" || u.Kind != task.ToolShell || !slices.Equal(u.Argv, []string{"sh", "-c", "go test ./..."}) || string(u.Input) != `{"rawInput":{"command":"go test ./..."},"title":"harmless"}` {
		t.Errorf("%+v %s", u, u.Input)
	}
	if u := asks[1].Use; u.Kind != task.ToolEdit || u.Argv != nil || !strings.Contains(string(u.Input), `"newText":"b"`) {
		t.Errorf("%+v %s", u, u.Input)
	}
	s.Answer(2, task.ToolAnswer{})
	if got := s.Say(); len(got) > 0 {
		t.Errorf("said %s", got)
	}
	s.Answer(1, task.ToolAnswer{Allow: true})
	got := string(s.Say())
	if lines := strings.Split(got, "\n"); len(lines) != 4 || !strings.Contains(lines[0], `"optionId":"yes"`) || !strings.Contains(lines[1], `"optionId":"no"`) || !strings.Contains(lines[2], "-32601") {
		t.Errorf("said\n%s", got)
	}
	// One that does something without asking is told of.
	s.Output(1, []byte(`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"c3","kind":"execute","title":"ls","status":"in_progress"}}}`+"\n"+
		`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"c3","status":"completed"}}}`+"\n"+
		`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}}}`+"\n"))
	unasked := 0
	for _, e := range events {
		if strings.HasPrefix(e, "permission the agent did this without asking") {
			unasked++
		}
	}
	if unasked != 1 {
		t.Errorf("events %q", events)
	}
}

// Nothing else is a question that can be allowed.
func TestHostilePermissions(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		asks int
	}{
		"only for good":   {permission(7, `{"toolCallId":"c","kind":"read","title":"x"}`, `{"optionId":"always","kind":"allow_always"}`), 1},
		"nothing offered": {permission(7, `{"toolCallId":"c","kind":"read","title":"x"}`, ``), 1},
		"no call":         {permission(7, `null`, choices), 0},
		"a list":          {permission(7, `[]`, choices), 0},
		"no object":       {`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":"x"}` + "\n", 0},
	} {
		s := asker(t, func(task.AgentEvent) {})
		s.Output(1, []byte(c.line))
		asks := s.Asks()
		if len(asks) != c.asks {
			t.Errorf("%s: %+v", name, asks)
		}
		for _, a := range asks {
			s.Answer(a.Number, task.ToolAnswer{Allow: true})
		}
		if said := string(s.Say()); strings.Contains(said, "always") || strings.Contains(said, `"selected"`) {
			t.Errorf("%s: said %s", name, said)
		}
	}
	s := speaker(t, task.AgentSpec{}, stage.HarnessRun{Prompt: "x", Asks: true}, func(task.AgentEvent) {}).(stage.HarnessAsker)
	s.Say()
	s.Output(1, []byte(permission(7, `{"toolCallId":"c","kind":"read","title":"x"}`, choices)))
	if len(s.Asks()) > 0 || strings.Contains(string(s.Say()), "selected") {
		t.Error("it asks before its prompt")
	}
}
