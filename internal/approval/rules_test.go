package approval

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func egressWhat(host string, port uint16) json.RawMessage {
	what, _ := task.Canonical(task.EgressAsk{Name: host, Port: port, Protocol: "tls", Seen: "tls"})
	return what
}

// The zero values deny, ask nothing and answer nothing.
func TestZeroValues(t *testing.T) {
	now := time.Now()
	if err := check(task.Question{}); task.ReasonOf(err) != task.InputInvalid {
		t.Errorf("%v", err)
	}
	if (Answer{}).Allow || (task.HeldAnswer{}).Allow || (task.Standing{}).Lasts(now) {
		t.Error("a zero value allows")
	}
	if answers(task.Standing{Scope: task.ScopeTask}, task.Question{}, now) || (task.ApprovalMatch{}).Covers(task.AskAction, json.RawMessage(`{}`)) {
		t.Error("a zero decision answers")
	}
	if err := judge(task.Approval{}, &task.ApprovalAnswer{Allow: true}, now); err == nil {
		t.Error("nobody answered")
	}
	if _, ok := (task.ApprovalMatch{Tool: "x"}).Rule("d-1"); ok {
		t.Error("a tool is a rule")
	}
}

func TestAnswers(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	later, before := now.Add(time.Hour), now.Add(-time.Second)
	q := task.Question{Kind: task.AskEgress, Task: "t-1", Project: "p", Stage: task.Agent, What: egressWhat("a.test", 443)}
	of := func(change func(*task.Standing)) task.Standing {
		s := task.Standing{ID: "d-1", Kind: task.AskEgress, Scope: task.ScopeTask, Task: "t-1", Project: "p", Stage: task.Agent, Match: task.MatchOf(task.AskEgress, q.What), Allow: true}
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		s    task.Standing
		want bool
	}{
		"the task":                   {of(func(*task.Standing) {}), true},
		"until later":                {of(func(s *task.Standing) { s.Until = &later }), true},
		"over":                       {of(func(s *task.Standing) { s.Until = &now }), false},
		"withdrawn":                  {of(func(s *task.Standing) { s.Withdrawn = &before }), false},
		"another task":               {of(func(s *task.Standing) { s.Task = "t-2" }), false},
		"another stage":              {of(func(s *task.Standing) { s.Stage = task.Setup }), false},
		"another kind":               {of(func(s *task.Standing) { s.Kind = task.AskTool }), false},
		"another host":               {of(func(s *task.Standing) { s.Match.Host = "b.test" }), false},
		"another port":               {of(func(s *task.Standing) { s.Match.Port = 80 }), false},
		"another protocol":           {of(func(s *task.Standing) { s.Match.Protocol = "tcp" }), false},
		"the project":                {of(func(s *task.Standing) { s.Scope, s.Task, s.Until = task.ScopeProject, "t-9", &later }), true},
		"a project without an end":   {of(func(s *task.Standing) { s.Scope, s.Task = task.ScopeProject, "t-9" }), false},
		"another project":            {of(func(s *task.Standing) { s.Scope, s.Task, s.Project, s.Until = task.ScopeProject, "t-9", "q", &later }), false},
		"no project":                 {of(func(s *task.Standing) { s.Scope, s.Task, s.Project, s.Until = task.ScopeProject, "t-9", "", &later }), false},
		"once":                       {of(func(s *task.Standing) { s.Scope = task.ScopeOnce }), false},
		"a scope of a newer program": {of(func(s *task.Standing) { s.Scope, s.Until = "world", &later }), false},
	} {
		if got := answers(c.s, q, now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	yes, no := of(func(*task.Standing) {}), of(func(s *task.Standing) { s.ID, s.Allow = "d-2", false })
	for _, list := range [][]task.Standing{{yes, no}, {no, yes}} {
		if s, ok := best(list, q, now); !ok || s.Allow {
			t.Errorf("%+v", s)
		}
	}
}

// A tool is matched by its very bytes, unless no input of it can run another
// program.
func TestToolMatch(t *testing.T) {
	what := func(tool, arg string, byName bool) json.RawMessage {
		w, _ := task.Canonical(task.ToolAsk{Agent: "x", Tool: tool, Argv: []string{arg}, ByName: byName})
		return w
	}
	for name, c := range map[string]struct {
		decided, asked json.RawMessage
		want           bool
	}{
		"the same":             {what("Bash", "make", false), what("Bash", "make", false), true},
		"another argument":     {what("Bash", "make", false), what("Bash", "make x", false), false},
		"another tool":         {what("Read", "a", true), what("Write", "a", true), false},
		"by name":              {what("Read", "a", true), what("Read", "b", true), true},
		"by name, then not":    {what("Read", "a", true), what("Read", "b", false), false},
		"not a tool":           {json.RawMessage(`{}`), json.RawMessage(`{}`), false},
		"nothing that is JSON": {json.RawMessage(`x`), json.RawMessage(`x`), false},
	} {
		if got := task.MatchOf(task.AskTool, c.decided).Covers(task.AskTool, c.asked); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestQuestionsAreChecked(t *testing.T) {
	good := task.Question{Key: "k", Kind: task.AskTool, Task: "t-1", Requester: "a", What: json.RawMessage(`{}`), Wait: time.Minute}
	if err := check(good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*task.Question){
		"no key":       func(q *task.Question) { q.Key = "" },
		"long key":     func(q *task.Question) { q.Key = string(make([]byte, maxKey+1)) },
		"kind":         func(q *task.Question) { q.Kind = "other" },
		"no task":      func(q *task.Question) { q.Task = "" },
		"no requester": func(q *task.Question) { q.Requester = "" },
		"not JSON":     func(q *task.Question) { q.What = json.RawMessage(`{`) },
		"no wait":      func(q *task.Question) { q.Wait = 0 },
		"long wait":    func(q *task.Question) { q.Wait = maxWait + 1 },
		"huge":         func(q *task.Question) { q.What = json.RawMessage(`"` + string(make([]byte, maxWhat)) + `"`) },
	} {
		q := good
		change(&q)
		if err := check(q); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
