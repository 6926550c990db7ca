package approvals_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// tells asks as a gate does and gives the answer; the question must not wait.
func (b *bench) tells(q task.Question) task.ToolAnswer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 10*time.Second)
	defer cancel()
	a, err := b.inbox.Tool(ctx, q)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

// entry is the entry of a question that waits.
func (b *bench) entry(q task.Question) string {
	b.t.Helper()
	a := b.ask(q, q.Key, "")
	if !a.Waiting {
		b.t.Fatalf("%+v", a)
	}
	return a.Approval.ID
}

// Whoever asks again under the same key has the same answer, whatever was decided,
// withdrawn or expired since: what was said to an agent is said again.
func TestToolAnswersStay(t *testing.T) {
	b := newBench(t, t.TempDir())
	tk := b.task("")
	denied, expires, allowed := tool(tk, "1", "evil"), tool(tk, "2", "late"), tool(tk, "3", "make")
	b.decide(b.entry(denied), task.ApprovalAnswer{By: who})
	expires.Wait = time.Minute
	b.entry(expires)
	b.pass(2 * time.Minute)
	first := b.entry(allowed)
	made := b.decide(first, allow(task.ScopeTask))
	same := tool(tk, "4", "make")
	want := map[string]task.ToolAnswer{}
	for _, q := range []task.Question{denied, expires, allowed, same} {
		want[q.Key] = b.tells(q)
	}
	if a := want[denied.Key]; a.Allow || a.Text != "a person denied it" || a.Reason != task.ApprovalDenied {
		t.Errorf("%+v", a)
	}
	if a := want[expires.Key]; a.Allow || a.Text != "nobody answered in time" || a.Reason != task.ApprovalExpired {
		t.Errorf("%+v", a)
	}
	if a := want[same.Key]; !a.Allow || a.Approval == "" || a.Approval == first || a.Text != "a person allowed it (task)" {
		t.Errorf("a use that a decision answers has no entry of its own: %+v", a)
	}
	// Another decision about the bytes that were denied, and the end of the one that allowed.
	b.decide(b.entry(tool(tk, "5", "evil")), allow(task.ScopeTask))
	b.decide(b.entry(tool(tk, "6", "late")), allow(task.ScopeTask))
	before := len(b.grants)
	if cut, err := b.inbox.Withdraw(t.Context(), made.Decision, who, false); err != nil || !cut || len(b.grants) != before {
		t.Errorf("a decision about a tool cuts connections: %v %v %v", cut, err, b.grants)
	}
	for _, q := range []task.Question{denied, expires, allowed, same} {
		if again := b.tells(q); again != want[q.Key] {
			t.Errorf("%s: was %+v and is %+v", q.Key, want[q.Key], again)
		}
	}
	if a := b.ask(tool(tk, "7", "make"), "tool/7", ""); !a.Waiting {
		t.Errorf("a decision that was withdrawn answers: %+v", a)
	}
}

// An answer for one use can be taken back until it is used, and not then.
func TestToolAnswerIsWithdrawn(t *testing.T) {
	b := newBench(t, t.TempDir())
	tk := b.task("")
	q := tool(tk, "1", "make")
	id := b.entry(q)
	b.decide(id, allow(task.ScopeOnce))
	if cut, err := b.inbox.Withdraw(t.Context(), id, who, false); err != nil || !cut || len(b.grants) > 0 {
		t.Errorf("%v %v", cut, err)
	}
	if a := b.tells(q); a.Allow || a.Text != "it was withdrawn" {
		t.Errorf("%+v", a)
	}
	q = tool(tk, "2", "make")
	id = b.entry(q)
	b.decide(id, allow(task.ScopeOnce))
	if a := b.tells(q); !a.Allow {
		t.Fatalf("%+v", a)
	}
	if _, err := b.inbox.Withdraw(t.Context(), id, who, false); task.ReasonOf(err) != task.InputConflict {
		t.Errorf("what was begun was taken back: %v", err)
	}
	if a := b.tells(q); !a.Allow {
		t.Errorf("%+v", a)
	}
	// A decision that ends between its answer and its use.
	q = tool(tk, "3", "make")
	id = b.entry(q)
	made := b.decide(id, allow(task.ScopeTask))
	if _, err := b.inbox.Withdraw(t.Context(), made.Decision, who, false); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if a := b.tells(q); a.Allow {
			t.Errorf("%+v", a)
		}
	}
	if a, err := b.inbox.Get(t.Context(), id, who, false); err != nil || a.State != task.AskedWithdrawn {
		t.Errorf("%+v %v", a, err)
	}
	// Abandoned with its stage.
	q = tool(tk, "4", "make")
	b.entry(q)
	if err := b.inbox.Abandon(t.Context(), tk.ID, q.Sandbox); err != nil {
		t.Fatal(err)
	}
	if a := b.tells(q); a.Allow {
		t.Errorf("%+v", a)
	}
}

// What nobody can read, and more than anybody answers, is denied and told, and is
// no fault of the machinery.
func TestToolQuestionsAreBounded(t *testing.T) {
	b := newBench(t, t.TempDir())
	tk := b.task("")
	q := tool(tk, "1", strings.Repeat("x", 300<<10))
	if a := b.tells(q); a.Allow || !strings.Contains(a.Text, "which nobody reads") {
		t.Errorf("%+v", a)
	}
	for n := range 64 {
		b.entry(tool(tk, string(rune('a'+n)), "make"))
	}
	if a := b.tells(tool(tk, "more", "make")); a.Allow || !strings.Contains(a.Text, "wait for an answer already") {
		t.Errorf("%+v", a)
	}
}

// The kept bytes are the asked ones, whatever they hold.
func TestToolBytesAreKept(t *testing.T) {
	b := newBench(t, t.TempDir())
	tk := b.task("")
	evil := "\x1b[2J\x1b]52;c;eA==\a\r\u202e\u200b\u2066<script>\u0000"
	q := tool(tk, "1", evil)
	got, err := b.inbox.Get(t.Context(), b.entry(q), who, false)
	var ask task.ToolAsk
	if err != nil || string(got.What) != string(q.What) || got.Digest != task.DigestOf(q.What) || json.Unmarshal(got.What, &ask) != nil || ask.Argv[2] != evil {
		t.Errorf("%v %s", err, got.What)
	}
}
