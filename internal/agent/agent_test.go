package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/agent/claude"
	"github.com/cofferdam/cofferdam/internal/agent/codex"
	"github.com/cofferdam/cofferdam/internal/agent/gemini"
	"github.com/cofferdam/cofferdam/internal/agent/opencode"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func set() agent.Set {
	return agent.Set{"claude": claude.New, "codex": codex.New, "gemini": gemini.New, "opencode": opencode.New}
}

func names() []string { return []string{"claude", "codex", "gemini", "opencode"} }

func harness(t testing.TB, name string) stage.Harness {
	t.Helper()
	h, err := set().Find(task.AgentSpec{Name: name, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// replay reads a recorded run of the real program in pieces of the given size.
func replay(t *testing.T, name, file string, piece int) ([]task.AgentEvent, stage.HarnessEnd) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(name, "testdata", file+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := strings.Cut(string(text), "\n")
	exit, err := strconv.Atoi(strings.TrimPrefix(first, "exit "))
	if err != nil {
		t.Fatal(err)
	}
	var events []task.AgentEvent
	r := harness(t, name).Read(stage.HarnessRun{}, func(e task.AgentEvent) { events = append(events, e) })
	for line := range strings.Lines(rest) {
		fd := 1
		if note, ok := strings.CutPrefix(line, "2|"); ok {
			fd, line = 2, note
		}
		for b := []byte(line); len(b) > 0; {
			n := min(piece, len(b))
			r.Output(fd, b[:n])
			b = b[n:]
		}
	}
	return events, r.End(exit)
}

// Each harness's good run comes to the same events.
func TestGoodRuns(t *testing.T) {
	for _, name := range names() {
		t.Run(name, func(t *testing.T) {
			events, end := replay(t, name, "good", 1<<20)
			if end.Failure != nil || (end.Session == "") != (name == "gemini") { // which has none that it can be gone on with
				t.Errorf("end: %+v", end)
			}
			var kinds []string
			var usage task.ModelUsage
			for _, e := range events {
				switch e.Type {
				case "usage":
					usage.Input += e.Usage.Input
					usage.Output += e.Usage.Output
					usage.Cached += e.Usage.Cached
					usage.Requests += e.Usage.Requests
				case "text":
					if e.Text == "All done." {
						kinds = append(kinds, "text")
					}
				default:
					kinds = append(kinds, e.Type)
				}
			}
			if want := []string{"call", "result", "call", "result", "text", "end"}; !slices.Equal(kinds, want) {
				t.Fatalf("events %v, want %v", kinds, want)
			}
			// The server counts three answers of 100 in, of which 40 cached, and 20 out.
			// Anthropic's cached tokens are not part of the 100.
			want := task.ModelUsage{Input: 300, Output: 60, Cached: 120}
			if name == "claude" {
				want.Input = 420
			}
			if usage.Requests < 1 {
				t.Error("no request is counted")
			}
			usage.Requests = 0
			if usage != want {
				t.Errorf("usage %+v, want %+v", usage, want)
			}
			var calls, results []task.AgentEvent
			for _, e := range events {
				switch e.Type {
				case "call":
					calls = append(calls, e)
				case "result":
					results = append(results, e)
				}
			}
			for i := range calls {
				if calls[i].Call == "" || calls[i].Call != results[i].Call || calls[i].Tool == "" || !json.Valid([]byte(calls[i].Input)) {
					t.Errorf("call %+v and result %+v", calls[i], results[i])
				}
			}
			if !strings.Contains(calls[0].Input, "echo hello") || !strings.Contains(results[0].Text, "hello") || results[0].Failed {
				t.Errorf("first call %+v, %+v", calls[0], results[0])
			}
			if !strings.Contains(results[1].Text, "No such file") || !results[1].Failed && name != "gemini" { // which does not tell
				t.Errorf("second result %+v", results[1])
			}
			again, _ := replay(t, name, "good", 7)
			if fmt.Sprint(plain(again)) != fmt.Sprint(plain(events)) {
				t.Error("in small pieces it reads otherwise")
			}
		})
	}
}

// plain is events without their pointers.
func plain(events []task.AgentEvent) []string {
	var out []string
	for _, e := range events {
		text, _ := json.Marshal(e)
		out = append(out, string(text))
	}
	return out
}

// What the model's server did is told by its own reason code.
func TestFaultsHaveTheirCodes(t *testing.T) {
	for _, name := range names() {
		for file, want := range map[string]task.Reason{
			"400": task.ModelRefused, "401": task.ModelRefused, "429": task.ModelLimited, "500": task.ModelFaulty,
			"garbage": task.ModelFaulty, "cut": task.ModelFaulty,
		} {
			t.Run(name+"/"+file, func(t *testing.T) {
				events, end := replay(t, name, file, 1<<20)
				if end.Failure == nil || end.Failure.Reason != want {
					t.Fatalf("%+v, want %s", end.Failure, want)
				}
				last := events[len(events)-1]
				if last.Type != "end" || !last.Failed || last.Text == "" {
					t.Errorf("the last event is %+v", last)
				}
			})
		}
	}
}

// Of silence some harnesses tell; the others are ended from outside.
func TestSilence(t *testing.T) {
	for _, c := range []struct {
		name, file string
		want       task.Reason
	}{
		{"claude", "silent", task.ModelSilent},
		{"claude", "empty", task.ModelFaulty},
		{"codex", "empty", task.ModelFaulty},
		{"opencode", "empty", task.ModelSilent},
		{"gemini", "empty", task.ModelFaulty},
	} {
		if _, end := replay(t, c.name, c.file, 1<<20); end.Failure == nil || end.Failure.Reason != c.want {
			t.Errorf("%s %s: %+v, want %s", c.name, c.file, end.Failure, c.want)
		}
	}
}

func TestHopeless(t *testing.T) {
	r := harness(t, "opencode").Read(stage.HarnessRun{}, func(task.AgentEvent) {})
	empty := []byte(`{"type":"step_finish","part":{"reason":"unknown"}}` + "\n")
	for range 19 {
		r.Output(1, empty)
	}
	if r.Hopeless() != nil {
		t.Fatal("19 empty answers are hopeless")
	}
	r.Output(1, empty)
	if f := r.Hopeless(); f == nil || f.Reason != task.ModelSilent {
		t.Errorf("20 empty answers: %+v", f)
	}
}

// A harness that says nothing, or ends before it said how, has not succeeded.
func TestNothingIsNoSuccess(t *testing.T) {
	for _, name := range names() {
		for _, exit := range []int{-1, 0, 1} {
			if end := harness(t, name).Read(stage.HarnessRun{}, func(task.AgentEvent) {}).End(exit); end.Failure == nil {
				t.Errorf("%s: exit %d without a word is a success", name, exit)
			}
		}
	}
}

func TestHostileLines(t *testing.T) {
	for _, name := range names() {
		for what, line := range map[string]string{
			"not JSON":        "plain words",
			"half JSON":       `{"type":"assistant","mess`,
			"deep":            `{"type":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + "}",
			"huge number":     `{"type":"result","usage":{"input_tokens":1e999},"stats":{"input_tokens":99999999999999999999999}}`,
			"negative number": `{"type":"turn.completed","usage":{"input_tokens":-5,"output_tokens":-1}}`,
			"other types":     `{"type":"tool_use","part":{"callID":5,"tool":{"a":1},"state":"x"},"tool_name":[],"message":7}`,
			"not UTF-8":       "{\"type\":\"text\",\"part\":{\"text\":\"\xff\xfe\"}}",
			"raw bytes":       "\x00\x1b[2J\xff",
			"long":            `{"type":"text","part":{"text":"` + strings.Repeat("a", 3<<20) + `"}}`,
			"session":         `{"type":"init","session_id":"--help; rm -rf /","sessionID":"-x","thread_id":"a b"}`,
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				var events []task.AgentEvent
				r := harness(t, name).Read(stage.HarnessRun{}, func(e task.AgentEvent) { events = append(events, e) })
				r.Output(1, []byte(line+"\n"))
				r.Output(2, []byte(line))
				end := r.End(1)
				if end.Session != "" {
					t.Errorf("session %q", end.Session)
				}
				checkEvents(t, events)
			})
		}
	}
}

// checkEvents holds every event to its limits.
func checkEvents(t testing.TB, events []task.AgentEvent) {
	t.Helper()
	for _, e := range events {
		for _, s := range []string{e.Text, e.Input, e.Call, e.Tool} {
			if len(s) > 16<<10 || !utf8.ValidString(s) {
				t.Fatalf("a field of %d bytes, valid %t", len(s), utf8.ValidString(s))
			}
		}
		if u := e.Usage; u != nil && (u.Input < 0 || u.Output < 0 || u.Cached < 0 || u.Requests < 0) {
			t.Fatalf("usage %+v", u)
		}
	}
	if len(events) == 0 || events[len(events)-1].Type != "end" {
		t.Fatal("there is no end")
	}
}

func TestEventsAreLimited(t *testing.T) {
	var events []task.AgentEvent
	r := harness(t, "claude").Read(stage.HarnessRun{}, func(e task.AgentEvent) { events = append(events, e) })
	r.Output(1, bytes.Repeat([]byte("word\n"), 20_000))
	r.End(0)
	if len(events) > 5_002 {
		t.Errorf("%d events", len(events))
	}
}

func TestFind(t *testing.T) {
	for _, c := range []struct {
		spec task.AgentSpec
		want string
	}{
		{task.AgentSpec{Name: "emacs"}, "agent.name"},
		{task.AgentSpec{Name: "claude", Version: "latest"}, "agent.version"},
		{task.AgentSpec{Name: "claude", Version: "../../x"}, "agent.version"},
		{task.AgentSpec{Name: "claude", Provider: "openai"}, "agent.provider"},
		{task.AgentSpec{Name: "codex", Provider: "anthropic"}, "agent.provider"},
		{task.AgentSpec{Name: "gemini", Provider: "nobody"}, "agent.provider"},
		{task.AgentSpec{Name: "opencode"}, "agent.model"},
		{task.AgentSpec{Name: "codex", Argv: []string{"x"}}, "agent.argv"},
	} {
		_, err := set().Find(c.spec)
		var f *task.Failure
		if err == nil {
			t.Errorf("%+v is taken", c.spec)
		} else if f, _ = err.(*task.Failure); f == nil || f.Reason != task.InputInvalid || !strings.HasPrefix(f.Text, c.want+": ") {
			t.Errorf("%+v: %v, want %s", c.spec, err, c.want)
		}
	}
	h, err := set().Find(task.AgentSpec{Name: "codex", Version: "1.2.3"})
	if err != nil || h.Package() != "codex@1.2.3" {
		t.Errorf("another version: %v", err)
	}
}

func TestStart(t *testing.T) {
	run := stage.HarnessRun{Prompt: "--version", Placeholder: "cofferdam-placeholder-1", Silence: time.Minute}
	for _, name := range names() {
		h := harness(t, name)
		start, err := h.Start(run)
		if err != nil {
			t.Fatal(err)
		}
		argv := strings.Join(start.Argv, "\n")
		if strings.Contains(argv, run.Prompt+"\n") || strings.HasSuffix(argv, run.Prompt) || strings.Contains(argv, run.Placeholder) {
			t.Errorf("%s: prompt or placeholder in its arguments: %q", name, start.Argv)
		}
		if !strings.Contains(argv, catalog.Program(name)) {
			t.Errorf("%s: does not run %s: %q", name, catalog.Program(name), start.Argv)
		}
		p, _ := task.AgentSpec{Name: name}.ProviderOf()
		if !slices.Contains(start.Env, p.Env+"="+run.Placeholder) {
			t.Errorf("%s: the placeholder is not in %s: %q", name, p.Env, start.Env)
		}
		prompt := slices.IndexFunc(start.Files, func(f stage.HarnessFile) bool { return string(f.Data) == run.Prompt })
		if prompt < 0 {
			t.Errorf("%s: the prompt is in no file", name)
		}
		again := run
		again.Session = "session-1"
		if start, err = h.Start(again); err != nil || strings.Contains(strings.Join(start.Argv, " "), "session-1") == (name == "gemini") {
			t.Errorf("%s: is not resumed: %q, %v", name, start.Argv, err)
		}
		none := run
		none.Placeholder = ""
		if start, err = h.Start(none); err != nil || slices.Contains(start.Env, p.Env+"=") {
			t.Errorf("%s: without a lease: %q, %v", name, start.Env, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, name := range names() {
		files, _ := filepath.Glob(filepath.Join(name, "testdata", "*.txt"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(name, text, 1)
		}
	}
	f.Fuzz(func(t *testing.T, name string, text []byte, exit int) {
		if !slices.Contains(names(), name) {
			name = "claude"
		}
		var events []task.AgentEvent
		r := harness(t, name).Read(stage.HarnessRun{}, func(e task.AgentEvent) { events = append(events, e) })
		half := len(text) / 2
		r.Output(1, text[:half])
		r.Output(2, text[:half/2])
		r.Output(1, text[half:])
		end := r.End(exit)
		checkEvents(t, events)
		if strings.HasPrefix(end.Session, "-") || strings.ContainsAny(end.Session, " \n'\"$/") {
			t.Errorf("session %q", end.Session)
		}
	})
}
