package loop_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
	"github.com/cofferdam/cofferdam/internal/task"
)

// doorman lets pass what says "good", refuses what says "never" by policy, and has
// a person deny everything else. The same key with another use is a fault.
type doorman struct {
	t  *testing.T
	mu sync.Mutex

	asked  map[string]string // the use, by key
	before func()            // runs before a person answers
}

func (d *doorman) Judge(use task.ToolAsk) task.ToolDecision {
	if strings.Contains(string(use.Input), "never") {
		return task.ToolDecision{}
	}
	return task.ToolDecision{Verdict: task.ToolAsked}
}

func (d *doorman) May(ctx context.Context, key string, use task.ToolAsk) (task.ToolAnswer, error) {
	what, err := task.Canonical(use)
	if err != nil {
		d.t.Error(err)
	}
	d.mu.Lock()
	if have, ok := d.asked[key]; ok && have != string(what) {
		d.t.Errorf("%s was %s and is %s", key, have, what)
	}
	d.asked[key] = string(what)
	d.mu.Unlock()
	if d.before != nil {
		d.before()
	}
	if ctx.Err() != nil {
		return task.ToolAnswer{}, context.Cause(ctx)
	}
	switch {
	case d.Judge(use).Verdict.Rank() == 0:
		return task.ToolAnswer{Reason: task.PolicyDenied, Text: "refused by the policy (task, tools.refuse edit)"}, nil
	case strings.Contains(string(what), "good"):
		return task.ToolAnswer{Allow: true, Text: "a person allowed it (once)", Approval: "ap-1"}, nil
	}
	return task.ToolAnswer{Reason: task.ApprovalDenied, Text: "a person denied it", Approval: "ap-2"}, nil
}

func gatedSteps() []modeltest.Step {
	return []modeltest.Step{
		call("shell", `{"command":"echo good >> ran"}`),
		call("shell", `{"command":"echo evil >> ran"}`),
		call("write", `{"path":"made","content":"good\n"}`),
		call("write", `{"path":"made","content":"evil\n"}`),
		call("edit", `{"path":"answer","old":"a","new":"good"}`),
		call("edit", `{"path":"answer","old":"never","new":"x"}`),
		call("edit", `{"path":"answer","old":"oo","new":"evil"}`),
		call("read", `{"path":"evil"}`),
		call("search", `{"pattern":"evil"}`),
		{Text: "Done."},
	}
}

// What may be is done once, wherever the run is cut off; what may not be is not
// done, and the model is told.
func TestToolsAreStoppedAtTheGate(t *testing.T) {
	most := 1
	for cut := 0; cut <= most; cut += 13 {
		for _, after := range []bool{false, true} {
			r := newRig(t, modeltest.Options{Steps: gatedSteps()})
			d := &doorman{t: t, asked: map[string]string{}}
			r.gate = d
			r.put("answer", "a\n")
			r.cutAt, r.after = cut, after
			if err := r.run(); cut > 0 && !errors.Is(err, errCut) || cut == 0 && err != nil {
				t.Fatalf("cut %d: %v", cut, err)
			}
			if cut == 0 {
				most = r.effects
			} else {
				r.cutAt = 0
				if err := r.run(); err != nil {
					t.Fatalf("cut %d after %t: %v", cut, after, err)
				}
			}
			where := fmt.Sprintf("cut %d after %t", cut, after)
			if got := r.file("ran") + r.file("made") + r.file("answer"); got != "good\ngood\ngood\n" {
				t.Errorf("%s: files %q", where, got)
			}
			for id, n := range r.started {
				if n != 1 {
					t.Errorf("%s: %s ran %d times", where, id, n)
				}
			}
			if len(r.started) != 5 { // shell, write, edit's two, and the reading of the edit that is denied
				t.Errorf("%s: commands %v", where, r.started)
			}
			if len(d.asked) != 9 {
				t.Errorf("%s: asked %v", where, d.asked)
			}
			for turn, want := range map[int]string{
				1: "[no output]", 2: "failed: [not done: a person denied it. Go on", 4: "failed: [not done: a person denied it", 5: "[edited]",
				6: "failed: [not done: refused by the policy (task, tools.refuse edit)", 7: "failed: [not done: a person denied it", 8: "failed: [not done", 9: "failed: [not done",
			} {
				if got := r.told(turn); !strings.HasPrefix(got, want) {
					t.Errorf("%s: turn %d was told %q", where, turn, got)
				}
			}
			if e := r.events["1/2/1/permission"]; e.Type != "permission" || !e.Failed || e.Call != "2/1" || e.Tool != "shell" || e.Text != "a person denied it; approval ap-2" {
				t.Errorf("%s: %+v", where, e)
			}
			if bodies := r.server.Seen(); !strings.Contains(string(bodies[len(bodies)-1].Body), "a person denied it") {
				t.Errorf("%s: the model does not know", where)
			}
		}
	}
}

// What is asked is what would be done: the whole command, the absolute path, the
// file as it is; and a key that the model gives twice is there once.
func TestWhatIsAskedIsWhatIsDone(t *testing.T) {
	evil := "\x1b[2J\x1b]52;c;eA==\a\u202e\u200bx"
	text, _ := json.Marshal(evil)
	r := newRig(t, modeltest.Options{Steps: []modeltest.Step{
		call("shell", `{"command":"echo evil","command":"echo good; : %s","timeout_seconds":5}`, strings.Trim(string(text), `"`)),
		call("edit", `{"path":"x/../answer","old":"a","new":"good"}`), {Text: "Done."},
	}})
	d := &doorman{t: t, asked: map[string]string{}}
	r.gate = d
	r.put("answer", "a\n")
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	var shell, edit task.ToolAsk
	if json.Unmarshal([]byte(d.asked["loop/1/1"]), &shell) != nil || json.Unmarshal([]byte(d.asked["loop/2/1"]), &edit) != nil {
		t.Fatal(d.asked)
	}
	if want := "echo good; : " + evil; len(shell.Argv) != 3 || shell.Argv[2] != want || shell.Kind != task.ToolShell || shell.Dir != "/workspace" || string(shell.Input) != `{"timeout_seconds":5}` {
		t.Errorf("%+v", shell)
	}
	if !strings.HasPrefix(string(edit.Before), "sha256:87428fc52280") || string(edit.Input) != `{"all":false,"new":"good","old":"a","path":"/workspace/answer"}` {
		t.Errorf("%+v %s", edit, edit.Input)
	}
}

// A file that is changed while a person looks at the edit is not the one that was
// approved.
func TestFileIsChangedWhileAPersonLooks(t *testing.T) {
	r := newRig(t, modeltest.Options{Steps: []modeltest.Step{call("edit", `{"path":"answer","old":"a","new":"good"}`), {Text: "Done."}}})
	d := &doorman{t: t, asked: map[string]string{}}
	d.before = func() { r.put("answer", "a and evil\n") }
	r.gate = d
	r.put("answer", "a\n")
	if err := r.run(); err != nil {
		t.Fatal(err)
	}
	if got := r.told(1); !strings.Contains(got, "the file was changed meanwhile") || r.file("answer") != "a and evil\n" {
		t.Errorf("told %q, the file is %q", got, r.file("answer"))
	}
}
