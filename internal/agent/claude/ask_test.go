package claude

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// asked is a request as 2.1.332 writes it.
func asked(id, tool, input string) string {
	return fmt.Sprintf(`{"type":"control_request","request_id":%q,"request":{"subtype":"can_use_tool","tool_name":%q,"display_name":%q,"input":%s,"description":"d","tool_use_id":"toolu_%s"}}`, id, tool, tool, input, id) + "\n"
}

func speak(t *testing.T, run stage.HarnessRun) stage.HarnessAsker {
	t.Helper()
	h, err := New(task.AgentSpec{Name: "claude"})
	if err != nil {
		t.Fatal(err)
	}
	start, err := h.Start(run)
	if err != nil || !start.Stdin || slices.Contains(start.Argv, "--dangerously-skip-permissions") || !slices.Contains(start.Argv, settings) {
		t.Fatalf("%+v %v", start, err)
	}
	return h.Read(run, func(task.AgentEvent) {}).(stage.HarnessAsker)
}

// What it asks is what is answered, with the very input that was shown, in the
// order of the questions whatever the order of the answers.
func TestControlProtocol(t *testing.T) {
	s := speak(t, stage.HarnessRun{Prompt: "do \"it\"\n", Asks: true})
	if got := string(s.Say()); got != `{"message":{"content":"do \"it\"\n","role":"user"},"type":"user"}`+"\n" {
		t.Errorf("said %q", got)
	}
	s.Output(1, []byte(asked("r1", "Bash", `{"command":"echo evil","command":"go test ./...","description":"x"}`)+asked("r2", "Read", `{"file_path":"/workspace/a"}`)))
	asks := s.Asks()
	if len(asks) != 2 || asks[0].Number != 1 || asks[0].Call != "toolu_r1" || len(s.Asks()) != 0 {
		t.Fatalf("%+v", asks)
	}
	if u := asks[0].Use; u.Tool != "Bash" || u.Kind != task.ToolShell || !slices.Equal(u.Argv, []string{"bash", "-c", "go test ./..."}) || string(u.Input) != `{"command":"go test ./...","description":"x"}` {
		t.Errorf("%+v", u)
	}
	if u := asks[1].Use; u.Kind != task.ToolRead || u.Argv != nil {
		t.Errorf("%+v", u)
	}
	s.Answer(2, task.ToolAnswer{Text: "a person denied it"})
	if got := s.Say(); len(got) > 0 {
		t.Errorf("said before the question before was answered: %s", got)
	}
	s.Answer(1, task.ToolAnswer{Allow: true})
	s.Answer(1, task.ToolAnswer{}) // once
	want := `{"response":{"request_id":"r1","response":{"behavior":"allow","updatedInput":{"command":"go test ./...","description":"x"}},"subtype":"success"},"type":"control_response"}
{"response":{"request_id":"r2","response":{"behavior":"deny","message":"Not done: a person denied it. Go on without it, or ask for less."},"subtype":"success"},"type":"control_response"}
`
	if got := string(s.Say()); got != want {
		t.Errorf("said\n%s", got)
	}
	s.Output(1, []byte(`{"type":"control_request","request_id":"r3","request":{"subtype":"hook_callback"}}`+"\n"))
	if got := string(s.Say()); !strings.Contains(got, `"subtype":"error"`) {
		t.Errorf("said %s", got)
	}
	s.Output(1, []byte(`{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"abc"}`+"\n"))
	if end := s.End(0); !s.Done() || end.Failure != nil || end.Session != "abc" {
		t.Errorf("%+v", end)
	}
}

// Nothing that it writes is taken for a question that can be allowed, unless it is
// one.
func TestHostileQuestions(t *testing.T) {
	for name, text := range map[string]string{
		"no command":      asked("r", "Bash", `{"script":"x"}`),
		"no object":       asked("r", "Bash", `"x"`),
		"a long name":     asked("r", strings.Repeat("x", 300), `{}`),
		"no id":           asked("", "Read", `{}`),
		"a long id":       asked(strings.Repeat("x", 300), "Read", `{}`),
		"an id that is 1": `{"type":"control_request","request_id":1,"request":{"subtype":"can_use_tool","tool_name":"Read","input":{}}}` + "\n",
		"a response":      `{"type":"control_response","response":{"subtype":"success"}}` + "\n",
		"standard error":  "",
	} {
		s := speak(t, stage.HarnessRun{Prompt: "x", Asks: true})
		s.Say()
		fd := 1
		if text == "" {
			fd, text = 2, asked("r", "Read", `{}`)
		}
		s.Output(fd, []byte(text))
		if asks := s.Asks(); len(asks) > 0 {
			t.Errorf("%s: %+v", name, asks)
		}
		if strings.Contains(string(s.Say()), "allow") {
			t.Errorf("%s: allowed", name)
		}
	}
	s := speak(t, stage.HarnessRun{Prompt: "x", Asks: true})
	for range maxAsked + 1 {
		s.Output(1, []byte(asked("r", "Read", `{}`)))
	}
	if s.Hopeless() == nil || len(s.Asks()) != maxAsked {
		t.Error("it may ask without end")
	}
}

// Whatever it writes, what is said is whole lines of JSON, and nothing is allowed
// that was not asked.
func FuzzControl(f *testing.F) {
	f.Add([]byte(asked("r1", "Bash", `{"command":"x"}`)), true)
	f.Add([]byte(`{"type":"result"}`+"\n"), false)
	f.Add([]byte(`{"type":"control_request","request_id":"x","request":{"subtype":"can_use_tool","input":{"a":1e999}}}`+"\n"), true)
	f.Fuzz(func(t *testing.T, b []byte, allow bool) {
		s := newSpeaker(stage.HarnessRun{Prompt: "x"}, func(task.AgentEvent) {})
		s.Output(1, b)
		asks := s.Asks()
		for _, a := range asks {
			s.Answer(a.Number, task.ToolAnswer{Allow: allow})
		}
		allowed := 0
		for line := range strings.Lines(string(s.Say())) {
			var m struct {
				Response struct {
					Response struct {
						Behavior string `json:"behavior"`
					} `json:"response"`
				} `json:"response"`
			}
			if json.Unmarshal([]byte(line), &m) != nil {
				t.Fatalf("said %q", line)
			}
			if m.Response.Response.Behavior == "allow" {
				allowed++
			}
		}
		if allowed > len(asks) || !allow && allowed > 0 {
			t.Fatalf("%d of %d are allowed", allowed, len(asks))
		}
	})
}
