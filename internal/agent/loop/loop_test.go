package loop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The whole of it, in both protocols: every tool, several calls in one answer,
// the key only at the server, and the account.
func TestLoopMendsAFile(t *testing.T) {
	steps := []modeltest.Step{
		{Text: "I look.", Calls: []modeltest.ToolCall{
			{Name: "shell", Input: `{"command":"echo run >> ran; ls"}`},
			{Name: "read", Input: `{"path":"answer"}`},
			{Name: "search", Input: `{"pattern":"bro[k]en"}`},
		}},
		call("edit", `{"path":"answer","old":"broken","new":"mended"}`),
		call("write", `{"path":"/workspace/new/file","content":"n\n"}`),
		call("shell", `{"command":"exit 7"}`),
		{Text: "Done."},
	}
	for _, vendor := range []string{"anthropic", "openai"} {
		t.Run(vendor, func(t *testing.T) {
			r := newRig(t, modeltest.Options{Steps: steps})
			if vendor == "openai" {
				r.openAI()
			}
			r.put("answer", "it is broken\n")
			if err := r.run(); err != nil {
				t.Fatal(err)
			}
			if r.file("answer") != "it is mended\n" || r.file("new/file") != "n\n" || r.file("ran") != "run\n" {
				t.Errorf("files %q %q %q", r.file("answer"), r.file("new/file"), r.file("ran"))
			}
			for turn, want := range map[int]string{1: "answer\nran\n\n--\nit is broken\n\n--\n/workspace/answer:1:it is broken\n", 2: "[edited]", 3: "[written: 2 bytes]", 4: "failed: [exit code 7]"} {
				if got := r.told(turn); got != want {
					t.Errorf("turn %d told %q, want %q", turn, got, want)
				}
			}
			for i, seen := range r.server.Seen() {
				if seen.Key != realKey || bytes.Contains(seen.Body, []byte(realKey)) || bytes.Contains(seen.Body, []byte(placeholder)) {
					t.Errorf("request %d: key %q", i, seen.Key)
				}
				if seen.Header.Get("X-Other") != "" {
					t.Errorf("request %d carries the placeholder of another credential", i)
				}
			}
			if end := r.events["1/end"]; end.Failed || end.Usage.Requests != 5 || end.Usage.Input == 0 || end.Usage.Output != 100 {
				t.Errorf("end %+v %+v", end, end.Usage)
			}
			if want := "usage text call result call result call result usage call result usage call result usage call result usage text end"; strings.Join(r.order, " ") != want {
				t.Errorf("events %v", r.order)
			}
			if !strings.Contains(r.log.String(), "I look.\n> shell {\"command\":\"echo run >> ran; ls\"}\n  answer\n") {
				t.Errorf("log:\n%s", r.log.String())
			}
			if len(r.egress) != 5 || r.egress[4].Seq != 5 || r.egress[4].Sandbox != "sb-aaaaaaaaaaaaaaaa/loop" || !slices.Equal(r.audit, []string{"egress.collected/sb-aaaaaaaaaaaaaaaa/loop/5"}) {
				t.Errorf("egress %+v, audit %v", r.egress, r.audit)
			}
		})
	}
}

// Every effect of a run is the one at which it is cut off, before it happens and
// after; then it is run again to its end. Each command has run once, each answer
// that was recorded is asked for once, and the files are as without a cut.
func TestEveryCutPoint(t *testing.T) {
	steps := []modeltest.Step{
		{Text: "I look.", Calls: []modeltest.ToolCall{{Name: "shell", Input: `{"command":"echo x >> ran"}`}, {Name: "read", Input: `{"path":"answer"}`}}},
		call("write", `{"path":"made","content":"one\n"}`),
		call("edit", `{"path":"answer","old":"a","new":"aa"}`),
		call("nonsense", `{}`),
		call("search", `{"pattern":"aa"}`),
		{Text: "Done."},
	}
	for _, vendor := range []string{"anthropic", "openai"} {
		// The journal is the same for both; one of them tries every point.
		points, most, step := 0, 1, 1
		if vendor == "openai" {
			step = 7
		}
		for cut := 1; cut <= most; cut += step {
			for _, after := range []bool{false, true} {
				r := newRig(t, modeltest.Options{Steps: steps})
				if vendor == "openai" {
					r.openAI()
				}
				r.put("answer", "a\n")
				r.cutAt, r.after = cut, after
				err := r.run()
				if !errors.Is(err, errCut) {
					t.Fatalf("%s, cut %d: the run ended with %v", vendor, cut, err)
				}
				points++
				asked := len(r.server.Seen())
				r.cutAt = 0
				if err := r.run(); err != nil {
					t.Fatalf("%s, cut %d after %t: %v", vendor, cut, after, err)
				}
				checkOnce(t, r, fmt.Sprintf("%s, cut %d after %t", vendor, cut, after), asked)
				if cut == 1 {
					whole := newRig(t, modeltest.Options{Steps: steps})
					whole.put("answer", "a\n")
					if err := whole.run(); err != nil {
						t.Fatal(err)
					}
					most = whole.effects
				}
			}
		}
		if points < 60/step {
			t.Errorf("%s: only %d cuts were tried", vendor, points)
		}
	}
}

func checkOnce(t *testing.T, r *rig, where string, askedBefore int) {
	t.Helper()
	if got := r.file("ran") + r.file("made") + r.file("answer"); got != "x\none\naa\n" {
		t.Errorf("%s: files %q", where, got)
	}
	for id, n := range r.started {
		if n != 1 {
			t.Errorf("%s: command %s ran %d times", where, id, n)
		}
	}
	if len(r.started) != 6 { // shell, read, write, edit's two, search
		t.Errorf("%s: commands %v", where, r.started)
	}
	asked := len(r.server.Seen())
	if asked < 6 || asked > 7 {
		t.Errorf("%s: the model was asked %d times for 6 turns, %d before the cut", where, asked, askedBefore)
	}
	counted := int64(0)
	for _, turn := range r.turns {
		if turn.State != stage.TurnAnswered || !strings.HasPrefix(string(turn.Request), "sha256:") {
			t.Errorf("%s: turn %+v", where, turn)
		}
		counted += turn.Requests
	}
	if counted < int64(asked) || r.events["1/end"].Usage.Requests != counted {
		t.Errorf("%s: %d requests were counted and %d told, %d were made", where, counted, r.events["1/end"].Usage.Requests, asked)
	}
	want := map[string]int{"usage": 6, "text": 2, "call": 6, "result": 6, "end": 1}
	got := map[string]int{}
	for _, e := range r.order {
		got[e]++
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: events %v", where, got)
	}
}

// A run that comes back owns what was started before it.
func TestCommandsOfBeforeAreAdopted(t *testing.T) {
	r := newRig(t, modeltest.Options{Steps: []modeltest.Step{call("shell", `{"command":"true"}`), {Text: "Done."}}})
	for range 2 {
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(r.adopted, []string{taskID + ".1.1.1"}) || len(r.server.Seen()) != 2 {
		t.Errorf("adopted %v, %d requests", r.adopted, len(r.server.Seen()))
	}
}

func TestTroubleWithTheModel(t *testing.T) {
	six := func(f modeltest.Fault) []modeltest.Fault { return []modeltest.Fault{f, f, f, f, f, f} }
	for name, c := range map[string]struct {
		options modeltest.Options
		reason  task.Reason
		text    string
		asked   int
	}{
		"400":      {modeltest.Options{Fault: "400"}, task.ModelRefused, "HTTP 400", 1},
		"401":      {modeltest.Options{Fault: "401"}, task.ModelRefused, "HTTP 401", 1},
		"403":      {modeltest.Options{Fault: "403"}, task.ModelRefused, "HTTP 403", 1},
		"404":      {modeltest.Options{Fault: "404"}, task.ModelRefused, "HTTP 404", 1},
		"redirect": {modeltest.Options{Fault: "302"}, task.ModelFaulty, "HTTP 302", 6},
		"429":      {modeltest.Options{Fault: "429"}, task.ModelLimited, "6 times", 6},
		"500":      {modeltest.Options{Fault: "500"}, task.ModelFaulty, "HTTP 500", 6},
		"529":      {modeltest.Options{Fault: "529"}, task.ModelFaulty, "HTTP 529", 6},
		"garbage":  {modeltest.Options{Fault: modeltest.Garbage}, task.ModelFaulty, "failed 6 times", 6},
		"cut":      {modeltest.Options{Fault: modeltest.Cut}, task.ModelFaulty, "failed 6 times", 6},
		"empty":    {modeltest.Options{Fault: modeltest.Empty}, task.ModelFaulty, "ended before", 6},
		"silent":   {modeltest.Options{Fault: modeltest.Silent}, task.ModelSilent, "nothing", 2},
		"later":    {modeltest.Options{Fault: "500", After: 1, Steps: []modeltest.Step{call("shell", `{"command":"true"}`)}}, task.ModelFaulty, "HTTP 500", 7},
		"recovers": {modeltest.Options{Faults: append(six("500")[:5], modeltest.None), Steps: []modeltest.Step{{Text: "Done."}}}, "", "", 6},
		"mixed":    {modeltest.Options{Faults: []modeltest.Fault{"429", modeltest.Garbage, modeltest.Cut, "503"}, Steps: []modeltest.Step{{Text: "Done."}}}, "", "", 5},
		"refusal":  {modeltest.Options{Steps: []modeltest.Step{{Text: "No.", Stop: modeltest.Refused}}}, task.AgentFailed, "declined", 1},
		"length":   {modeltest.Options{Steps: []modeltest.Step{{Text: "And so", Stop: modeltest.Length}}}, task.AgentFailed, "largest size", 1},
	} {
		for _, vendor := range []string{"anthropic", "openai"} {
			t.Run(name+"/"+vendor, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, c.options)
				if vendor == "openai" {
					r.openAI()
				}
				if name == "silent" {
					r.options.Silence = 50 * time.Millisecond
				}
				err := r.run()
				if c.reason == "" && err != nil {
					t.Fatal(err)
				}
				if c.reason != "" {
					r.fails(err, c.reason, c.text)
					if end := r.events["1/end"]; !end.Failed || !strings.HasPrefix(end.Text, string(c.reason)) {
						t.Errorf("end %+v", end)
					}
				}
				if got := len(r.server.Seen()); got != c.asked && name != "silent" {
					t.Errorf("asked %d times, want %d", got, c.asked)
				}
				if got := r.events["1/end"].Usage.Requests; got != int64(c.asked) {
					t.Errorf("counted %d requests, want %d", got, c.asked)
				}
			})
		}
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	r := newRig(t, modeltest.Options{Faults: []modeltest.Fault{"429", "429", "500"}, RetryAfter: "17", Steps: []modeltest.Step{{Text: "Done."}}})
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	if want := []time.Duration{17 * time.Second, 17 * time.Second, 4 * time.Second}; !slices.Equal(r.slept, want) {
		t.Errorf("waited %v, want %v", r.slept, want)
	}
	r = newRig(t, modeltest.Options{Faults: []modeltest.Fault{"429"}, RetryAfter: "86400", Steps: []modeltest.Step{{Text: "Done."}}})
	if err := r.run(); err != nil || len(r.slept) != 1 || r.slept[0] != 2*time.Minute {
		t.Errorf("waited %v, %v", r.slept, err)
	}
}

// Nothing of the environment reaches a model: not a key, not an address.
func TestNothingIsTakenFromTheEnvironment(t *testing.T) {
	for _, name := range []string{
		"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS", "ANTHROPIC_PROFILE",
		"OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_CUSTOM_HEADERS",
	} {
		t.Setenv(name, "https://from-the-environment.invalid")
	}
	for _, openAI := range []bool{false, true} {
		r := newRig(t, modeltest.Options{Key: "none", Steps: []modeltest.Step{{Text: "Done."}}})
		r.lease = false
		if openAI {
			r.openAI()
		}
		r.fails(r.run(), task.ModelRefused, "HTTP 401")
		for _, seen := range r.server.Seen() {
			all, _ := json.Marshal(seen.Header)
			if seen.Key != "" || bytes.Contains(all, []byte("from-the-environment")) {
				t.Errorf("sent %s", all)
			}
		}
	}
}

// Without injection the server sees the placeholder and refuses.
func TestWithoutInjectionTheRunFails(t *testing.T) {
	r := newRig(t, modeltest.Options{Steps: []modeltest.Step{{Text: "Done."}}})
	r.inject = false
	r.fails(r.run(), task.ModelRefused, "HTTP 401")
	if got := r.server.Seen()[0].Key; got != placeholder {
		t.Errorf("the server saw %q", got)
	}
}

func TestCallsThatAreNone(t *testing.T) {
	bad := []modeltest.ToolCall{
		{Name: "shell", Input: `{"command": "ls`},
		{Name: "nonsense", Input: `{}`},
		{Name: "shell", Input: `[]`},
		{Name: "shell", Input: `{"command":"ls","cwd":"/"}`},
		{Name: "read", Input: `{"path":"a\u0000b"}`},
		{Name: "read", Input: `{"path":"a\ud800b"}`},
		{Name: "edit", Input: `{"path":"x","old":"","new":"y"}`},
		{Name: "write", Input: `{"path":"x"}`},
		{Name: "shell", Input: `{"command":5}`},
		{Name: "shell", Input: `{"command":"true","timeout_seconds":99999}`},
		{Name: "write", Input: `{"path":"","content":"x"}`},
		{Name: "shell", Input: `{"command":"ls"} {"command":"ls"}`},
	}
	for _, vendor := range []string{"anthropic", "openai"} {
		// Three in a row end the run, whichever they are.
		for i := range bad {
			three := []modeltest.ToolCall{bad[i], bad[(i+1)%len(bad)], bad[(i+2)%len(bad)]}
			r := newRig(t, modeltest.Options{Steps: []modeltest.Step{{Calls: three[:1]}, {Calls: three[1:]}, {Text: "Done."}}})
			if vendor == "openai" {
				r.openAI()
			}
			r.fails(r.run(), task.AgentFailed, "last 3 calls were none")
			if len(r.started) != 0 {
				t.Errorf("%v: something ran: %v", three, r.started)
			}
		}
		// A good one in between begins the count again, and the model is told.
		good := modeltest.ToolCall{Name: "shell", Input: `{"command":"echo fine"}`}
		r := newRig(t, modeltest.Options{Steps: []modeltest.Step{{Calls: []modeltest.ToolCall{bad[0], bad[1], good, bad[0], bad[1]}}, {Calls: []modeltest.ToolCall{good}}, {Text: "Done."}}})
		if vendor == "openai" {
			r.openAI()
		}
		if err := r.run(); err != nil {
			t.Fatal(err)
		}
		if got := r.told(1); !strings.Contains(got, "failed: the input is not a JSON object") || !strings.Contains(got, "failed: there is no tool \"nonsense\"") || !strings.Contains(got, "fine") {
			t.Errorf("told %q", got)
		}
	}
}

func TestLimits(t *testing.T) {
	forever := []modeltest.Step{}
	for range 60 {
		forever = append(forever, call("shell", `{"command":"true"}`))
	}
	r := newRig(t, modeltest.Options{Steps: forever})
	r.agent.MaxTurns = 3
	r.fails(r.run(), task.LimitTurns, "3 turns")
	if got := len(r.server.Seen()); got != 3 {
		t.Errorf("asked %d times", got)
	}
	r = newRig(t, modeltest.Options{Steps: forever})
	r.fails(r.run(), task.LimitTurns, "50 turns")

	// The wall time ends a silent model as well as a command.
	r = newRig(t, modeltest.Options{Fault: modeltest.Silent})
	r.until = time.Now().Add(50 * time.Millisecond)
	r.fails(r.run(), task.LimitTime, "longer than it may")
	r = newRig(t, modeltest.Options{Steps: []modeltest.Step{call("shell", `{"command":"sleep 60"}`)}})
	r.until = time.Now().Add(time.Second)
	r.fails(r.run(), task.LimitTime, "longer than it may")

	// A command's own time is told to the model.
	r = newRig(t, modeltest.Options{Steps: []modeltest.Step{call("shell", `{"command":"echo begun; sleep 60","timeout_seconds":1}`), {Text: "Done."}}})
	if err := r.run(); err != nil || r.told(1) != "failed: begun\n[it was ended after 1s]" {
		t.Errorf("told %q, %v", r.told(1), err)
	}
}

// Output of any length is cut in the middle, and how much is said.
func TestOutputIsCut(t *testing.T) {
	r := newRig(t, modeltest.Options{Steps: []modeltest.Step{
		call("shell", `{"command":"echo first; yes | head -c 3000000; echo last"}`),
		call("shell", `{"command":"printf 'a\\377b\\033[2J'"}`),
		call("shell", `{"command":"touch $'caf\\351'; ls"}`),
		{Text: "Done."},
	}})
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	got := r.told(1)
	if len(got) > 30<<10 || !strings.HasPrefix(got, "first\n") || !strings.HasSuffix(got, "last\n") || !strings.Contains(got, "[2975435 of 3000011 bytes of output were left out here]") {
		t.Errorf("told %d bytes: %.80q … %q", len(got), got, got[len(got)-80:])
	}
	if got := r.told(2); got != "a\\xffb\\x1b[2J\n[2 bytes that are no text are shown as \\xNN]" {
		t.Errorf("told %q", got)
	}
	if got := r.told(3); !strings.Contains(got, `caf\xe9`) {
		t.Errorf("told %q", got)
	}
}

// Old results make room when the conversation is long; the newest stays whole.
func TestLongConversations(t *testing.T) {
	var steps []modeltest.Step
	for range 6 {
		steps = append(steps, call("shell", `{"command":"yes | head -c 20000"}`))
	}
	r := newRig(t, modeltest.Options{Steps: append(steps, modeltest.Step{Text: "Done."})})
	r.options.Context = 70_000
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	seen := r.server.Seen()
	last := string(seen[len(seen)-1].Body)
	if len(last) > 70_000 || !strings.Contains(last, "20000 bytes were left out since the conversation is long") || strings.Count(last, `y\ny\ny`) == 0 {
		t.Errorf("the last request has %d bytes", len(last))
	}
	r = newRig(t, modeltest.Options{Steps: steps})
	r.options.Context = 10_000
	r.fails(r.run(), task.AgentFailed, "can't be made shorter")
}

// The agent may remove its workspace, put links and pipes where files were, and
// more: the tools say so and nothing else happens.
func TestHostileFiles(t *testing.T) {
	r := newRig(t, modeltest.Options{Steps: []modeltest.Step{
		call("shell", `{"command":"mkdir folder; ln -s /nowhere/at/all dangling; printf 'a\\na\\n' > twice; : > empty; head -c 30000 /dev/zero | tr '\\0' x > long"}`),
		call("read", `{"path":"folder"}`), call("read", `{"path":"dangling"}`), call("write", `{"path":"folder","content":"x"}`),
		call("read", `{"path":"empty"}`), call("read", `{"path":"long"}`), call("edit", `{"path":"twice","old":"a","new":"b"}`),
		call("edit", `{"path":"twice","old":"zzz","new":"b"}`), call("edit", `{"path":"twice","old":"a","new":"b","all":true}`),
		call("read", `{"path":"twice","offset":2,"limit":1}`), call("read", `{"path":"twice","offset":9}`),
		call("search", `{"pattern":"("}`), call("search", `{"pattern":"nothing has this"}`), call("search", `{"pattern":"b","glob":"tw*"}`),
		call("shell", `{"command":"rm -rf /workspace"}`), call("read", `{"path":"twice"}`), call("edit", `{"path":"twice","old":"a","new":"b"}`),
		{Text: "Done."},
	}})
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	for turn, want := range map[int]string{
		2: "failed: head: error reading", 3: "failed: head: cannot open", 4: "failed: ", 5: "[the file is empty]", 6: "of its 30000 bytes were left out",
		7: "failed: old: stands 2 times", 8: "failed: old: does not stand", 9: "[edited]", 10: "b\n[lines 2 to 2 of 2]", 11: "[the file has 2 lines]",
		12: "failed: ", 13: "[no line matches]", 14: "twice:1:b", 16: "failed: ", 17: "failed: ",
	} {
		if got := r.told(turn); !strings.Contains(got, want) {
			t.Errorf("turn %d told %.200q, want %q", turn, got, want)
		}
	}
}

// An edit that was decided on what stands in the file changes nothing else.
func TestEditSeesAChangeMeanwhile(t *testing.T) {
	r := newRig(t, modeltest.Options{Steps: []modeltest.Step{call("edit", `{"path":"f","old":"a","new":"b"}`), {Text: "Done."}}})
	r.put("f", "a\n")
	// Cut when the change is staged and not begun; meanwhile somebody writes.
	for cut := 1; ; cut++ {
		r.cutAt, r.effects = cut, 0
		err := r.run()
		if err == nil {
			t.Fatal("no cut with a staged change was found")
		}
		if c := r.calls[[2]int{1, 1}]; c.State == stage.CallStarted && r.started[taskID+".1.1.1"] == 0 {
			break
		}
	}
	r.put("f", "a\nmore\n")
	r.cutAt = 0
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	if got := r.told(1); !strings.Contains(got, "failed: ") || !strings.Contains(got, "changed meanwhile") || r.file("f") != "a\nmore\n" {
		t.Errorf("told %q, file %q", got, r.file("f"))
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "tmp", "*", "*", "content")); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}
