package acp_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/acp"
	"github.com/cofferdam/cofferdam/internal/agent/acp/acptest"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func speaker(t testing.TB, spec task.AgentSpec, run stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessSpeaker {
	t.Helper()
	spec.Name, spec.Argv = "acp", []string{"peer"}
	h, err := acp.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	s, ok := h.Read(run, emit).(stage.HarnessSpeaker)
	if !ok {
		t.Fatal("it is not spoken to")
	}
	return s
}

// told is what came of a talk.
type told struct {
	heard, said []byte
	events      []string
	end         stage.HarnessEnd
}

func (d *told) emit(e task.AgentEvent) {
	usage := ""
	if e.Usage != nil {
		usage = fmt.Sprint(*e.Usage)
	}
	e.Usage = nil
	d.events = append(d.events, fmt.Sprintf("%s %s %s %s%s%s failed=%t", e.Type, e.Call, e.Tool, e.Text, e.Input, usage, e.Failed))
}

// talk speaks with the peer until the turn is over or the peer is gone.
func talk(t *testing.T, spec task.AgentSpec, run stage.HarnessRun, o acptest.Options, acts ...acptest.Act) told {
	t.Helper()
	var d told
	s := speaker(t, spec, run, d.emit)
	toAgent, mouth := io.Pipe()
	ear, fromAgent := io.Pipe()
	go func() {
		acptest.Serve(toAgent, fromAgent, o, acts)
		_ = fromAgent.Close()
	}()
	// The peer answers while we write: writing has a goroutine of its own.
	words := make(chan []byte, 1000)
	go func() {
		for b := range words {
			_, _ = mouth.Write(b) // the peer may be gone
		}
		_ = mouth.Close()
	}()
	say := func() {
		if b := s.Say(); len(b) > 0 {
			d.said = append(d.said, b...)
			words <- b
		}
	}
	say()
	buffer := make([]byte, 4096)
	for !s.Done() {
		n, err := ear.Read(buffer)
		d.heard = append(d.heard, buffer[:n]...)
		s.Output(1, buffer[:n])
		say()
		if err != nil {
			break
		}
	}
	close(words)
	_, _ = io.Copy(io.Discard, ear)
	d.end = s.End(0)
	return d
}

func acts(a ...acptest.Act) stage.HarnessRun { return stage.HarnessRun{Prompt: acptest.Prompt(a...)} }

func good() []acptest.Act {
	return []acptest.Act{
		{Say: "I look."}, {Run: "echo hello"}, {Run: "echo oh no; false"}, {Read: "/etc/passwd"}, {Think: "hm"}, {Say: "Done."},
	}
}

func TestTurn(t *testing.T) {
	d := talk(t, task.AgentSpec{Model: "large"}, acts(good()...), acptest.Options{Loads: true, Mode: "auto", Model: true})
	if d.end.Failure != nil || d.end.Session != "session-1" {
		t.Errorf("end: %+v", d.end)
	}
	want := []string{
		"text   mode default, model large failed=false",
		"text   I look. failed=false",
		`call call-1 execute {"command":"echo hello"} failed=false`,
		"permission call-1  asked, and was allowed: Yes failed=false",
		"result call-1  hello\n failed=false",
		`call call-2 execute {"command":"echo oh no; false"} failed=false`,
		"permission call-2  asked, and was allowed: Yes failed=false",
		"result call-2  oh no\n failed=true",
		"text   hm failed=false",
		"text   Done. failed=false",
		"usage   {1 100 20 0} failed=false",
		"end   {1 100 20 0} failed=false",
	}
	if !slices.Equal(d.events, want) {
		t.Errorf("events\n%s\nwant\n%s", strings.Join(d.events, "\n"), strings.Join(want, "\n"))
	}
}

// Whoever reads the same output again says the same again, however it comes in
// pieces, and never says more than it did.
func TestSaidAgain(t *testing.T) {
	run := acts(good()...)
	d := talk(t, task.AgentSpec{}, run, acptest.Options{Mode: "auto"})
	for _, piece := range []int{1, 7, len(d.heard)} {
		var again told
		s := speaker(t, task.AgentSpec{}, run, again.emit)
		again.said = append(again.said, s.Say()...)
		for b := range slices.Chunk(d.heard, piece) {
			s.Output(1, b)
			again.said = append(again.said, s.Say()...)
			if !bytes.HasPrefix(d.said, again.said) {
				t.Fatalf("it says\n%s\nand said\n%s", again.said, d.said)
			}
		}
		again.end = s.End(-1) // it was ended from outside, after its turn
		if !bytes.Equal(again.said, d.said) || !slices.Equal(again.events, d.events) || again.end.Failure != nil || !s.Done() {
			t.Errorf("in pieces of %d it comes to another end: %+v\n%s", piece, again.end, strings.Join(again.events, "\n"))
		}
	}
}

func TestSessionIsLoaded(t *testing.T) {
	d := talk(t, task.AgentSpec{}, stage.HarnessRun{Prompt: "x", Session: "session-1"}, acptest.Options{Loads: true}, acptest.Act{Say: "I go on."})
	all := strings.Join(d.events, "\n")
	if d.end.Failure != nil || !strings.Contains(all, "I go on.") || strings.Contains(all, "long ago") || !bytes.Contains(d.said, []byte(agent.GoOn)) {
		t.Errorf("%+v\n%s\n%s", d.end, all, d.said)
	}
	d = talk(t, task.AgentSpec{}, acts(), acptest.Options{})
	if d.end.Session != "" {
		t.Errorf("a session that can't be loaded: %+v", d.end)
	}
}

func TestEnds(t *testing.T) {
	for name, c := range map[string]struct {
		spec task.AgentSpec
		act  acptest.Act
		want task.Reason
		text string
	}{
		"cut short":    {task.AgentSpec{}, acptest.Act{Stop: "max_tokens"}, task.AgentFailed, "max_tokens"},
		"refusal":      {task.AgentSpec{}, acptest.Act{Stop: "refusal"}, task.AgentFailed, "refusal"},
		"error":        {task.AgentSpec{}, acptest.Act{Fail: "no idea"}, task.AgentFailed, "refused the prompt"},
		"model's 429":  {task.AgentSpec{}, acptest.Act{Fail: "API Error: 429 slow down"}, task.ModelLimited, "slow down"},
		"model's 500":  {task.AgentSpec{}, acptest.Act{Fail: "status code: 500"}, task.ModelFaulty, "500"},
		"no choice":    {task.AgentSpec{Model: "large"}, acptest.Act{Say: "x"}, task.InputInvalid, "agent.model: "},
		"asks forever": {task.AgentSpec{}, acptest.Act{Flood: 10_001}, task.AgentFailed, "without end"},
	} {
		t.Run(name, func(t *testing.T) {
			d := talk(t, c.spec, acts(c.act), acptest.Options{})
			if f := d.end.Failure; f == nil || f.Reason != c.want || !strings.Contains(f.Text, c.text) {
				t.Errorf("%+v, want %s: %s", d.end.Failure, c.want, c.text)
			}
		})
	}
}

// What a hostile agent writes ends in a failure or is passed over, and makes us
// say nothing that we would not.
func TestHostileAgent(t *testing.T) {
	const greeting = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1}}` + "\n"
	const opened = greeting + `{"jsonrpc":"2.0","id":2,"result":{"sessionId":"s"}}` + "\n"
	for name, c := range map[string]struct {
		text string
		says int // requests of ours
		done bool
	}{
		"nothing":         {"", 1, false},
		"garbage":         {"\x00\xff{{{\nhello\n", 1, false},
		"null":            {"{}\n{\"id\":null}\n{\"id\":null,\"method\":\"x\"}\n", 1, false},
		"another version": {`{"id":1,"result":{"protocolVersion":2}}` + "\n", 1, true},
		"no version":      {`{"id":1}` + "\n", 1, true},
		"another id":      {`{"id":7,"result":{"protocolVersion":1}}` + "\n" + `{"id":"1","result":{"protocolVersion":1}}` + "\n", 1, false},
		"answered early":  {`{"id":2,"result":{"sessionId":"s"}}` + "\n" + greeting, 2, false},
		"answered twice":  {greeting + greeting + greeting, 2, false},
		"no session":      {greeting + `{"id":2,"result":{}}` + "\n", 2, true},
		"a sign-in":       {greeting + `{"id":2,"error":{"code":-32000,"message":"x"}}` + "\n", 2, true},
		"odd session":     {greeting + `{"id":2,"result":{"sessionId":["a"],"modes":7}}` + "\n", 2, true},
		"prompted":        {opened, 3, false},
		"ended":           {opened + `{"id":3,"result":{"stopReason":"end_turn"}}` + "\n", 3, true},
		"end of nothing":  {opened + `{"id":3,"result":7}` + "\n", 3, true},
		"deep":            {opened + `{"method":"session/update","params":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + "}\n", 3, false},
		"a long line":     {opened + `{"id":3,"result":{"stopReason":"` + strings.Repeat("a", 2<<20) + `"}}` + "\n", 3, false},
		"odd requests":    {opened + `{"id":{},"method":"x"}` + "\n" + `{"id":"` + strings.Repeat("a", 300) + `","method":"x"}` + "\n", 3, false},
		"odd permission":  {opened + `{"id":1,"method":"session/request_permission","params":7}` + "\n", 4, false},
		"no way to allow": {opened + `{"id":1,"method":"session/request_permission","params":{"options":[{"optionId":"n","kind":"reject_once"}]}}` + "\n", 4, false},
		"odd updates":     {opened + `{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call","content":5,"rawInput":[]}}}` + "\n", 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			var d told
			s := speaker(t, task.AgentSpec{}, stage.HarnessRun{Prompt: "p"}, d.emit)
			said := s.Say()
			s.Output(1, []byte(c.text))
			said = append(said, s.Say()...)
			if n := bytes.Count(said, []byte("\n")); n != c.says || s.Done() != c.done {
				t.Errorf("it said %d lines, want %d; done %t\n%.2000s", n, c.says, s.Done(), said)
			}
			for _, word := range []string{"deep", "a long line"} {
				if name == word && !slices.ContainsFunc(d.events, func(e string) bool { return strings.HasPrefix(e, "text") }) {
					t.Error("what can't be read is not kept as text")
				}
			}
			if end := s.End(0); (end.Failure == nil) != (name == "ended") {
				t.Errorf("end: %+v", end)
			}
		})
	}
}

func TestNew(t *testing.T) {
	argv := []string{"agent", "--acp"}
	for _, c := range []struct {
		spec task.AgentSpec
		want string
	}{
		{task.AgentSpec{}, "agent.argv"},
		{task.AgentSpec{Argv: []string{""}}, "agent.argv"},
		{task.AgentSpec{Argv: argv, Provider: "nobody"}, "agent.provider"},
		{task.AgentSpec{Argv: argv, Credential: "x"}, "agent.credential"},
		{task.AgentSpec{Argv: argv, ModelURL: "https://x.test"}, "agent.modelURL"},
		{task.AgentSpec{Argv: argv, Version: "emacs"}, "agent.version"},
		{task.AgentSpec{Argv: argv, Version: "gemini@../x"}, "agent.version"},
	} {
		if _, err := acp.New(c.spec); err == nil || !strings.Contains(err.Error(), c.want+": ") {
			t.Errorf("%+v: %v, want %s", c.spec, err, c.want)
		}
	}
	h, err := acp.New(task.AgentSpec{Argv: argv, Version: "gemini@0.61.0", Provider: "google", ModelURL: "https://x.test"})
	if err != nil || h.Package() != "gemini@0.61.0" {
		t.Fatalf("%v, %v", h, err)
	}
	start, err := h.Start(stage.HarnessRun{Prompt: "p", Placeholder: "cofferdam-placeholder-1"})
	if err != nil || !start.Stdin || !slices.Equal(start.Argv, argv) ||
		!slices.Equal(start.Env, []string{"GEMINI_API_KEY=cofferdam-placeholder-1", "GOOGLE_GEMINI_BASE_URL=https://x.test"}) {
		t.Errorf("%+v, %v", start, err)
	}
}

func FuzzTalk(f *testing.F) {
	f.Add([]byte(`{"id":1,"result":{"protocolVersion":1}}` + "\n" + `{"id":2,"result":{"sessionId":"s","modes":{"currentModeId":"auto","availableModes":[{"id":"default"}]}}}` + "\n"))
	f.Add([]byte(`{"id":"x","method":"session/request_permission","params":{"options":[{"optionId":"y","kind":"allow_once"}],"toolCall":{"toolCallId":"1","rawInput":{"a":1}}}}` + "\n"))
	f.Add([]byte(`{"method":"session/update","params":{"update":{"sessionUpdate":"tool_call_update","toolCallId":"1","status":"completed","content":[{"type":"diff","path":"a"}]}}}` + "\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var last task.AgentEvent
		check := func(e task.AgentEvent) {
			last = e
			for _, s := range []string{e.Text, e.Input, e.Call, e.Tool} {
				if len(s) > 16<<10 || !utf8.ValidString(s) {
					t.Fatalf("a field of %d bytes", len(s))
				}
			}
		}
		s := speaker(t, task.AgentSpec{Model: "m"}, stage.HarnessRun{Prompt: "p"}, check)
		s.Output(1, text)
		said := s.Say()
		if len(said) > 1<<20 || len(said) > 0 && said[len(said)-1] != '\n' || !utf8.Valid(said) {
			t.Fatalf("it said %q", said)
		}
		s.End(0)
		if last.Type != "end" {
			t.Fatal("there is no end")
		}
	})
}
