package agent

import (
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Talk is what is said to a harness that asks. Words are said in the order in
// which they were given: what follows a question is held until that is answered,
// so that the same output and the same answers give the same bytes.
type Talk struct {
	parts []part
	fresh []stage.HarnessAsk
	asked int
}

// part is words, or the place of an answer.
type part struct {
	words  []byte
	number int                            // of the question; 0: words
	answer func(a task.ToolAnswer) []byte // nil: answered
}

// Words adds words.
func (t *Talk) Words(b []byte) {
	if n := len(t.parts); n > 0 && t.parts[n-1].answer == nil {
		t.parts[n-1].words = append(t.parts[n-1].words, b...)
		return
	}
	t.parts = append(t.parts, part{words: append([]byte(nil), b...)})
}

// Ask adds a question. answer makes the words that answer it.
func (t *Talk) Ask(call string, use task.ToolAsk, answer func(a task.ToolAnswer) []byte) {
	t.asked++
	t.fresh = append(t.fresh, stage.HarnessAsk{Number: t.asked, Call: call, Use: use})
	t.parts = append(t.parts, part{number: t.asked, answer: answer})
}

// Asks returns the questions that were not returned before.
func (t *Talk) Asks() []stage.HarnessAsk {
	fresh := t.fresh
	t.fresh = nil
	return fresh
}

// Answer puts the words of an answer in the place of its question.
func (t *Talk) Answer(number int, a task.ToolAnswer) {
	for i, p := range t.parts {
		if p.number == number && p.answer != nil {
			t.parts[i].words, t.parts[i].answer = p.answer(a), nil
			return
		}
	}
}

// Said returns the words up to the first question without an answer, once.
func (t *Talk) Said() []byte {
	var out []byte
	for len(t.parts) > 0 && t.parts[0].answer == nil {
		out = append(out, t.parts[0].words...)
		t.parts = t.parts[1:]
	}
	return out
}

// Whole says whether everything was said.
func (t *Talk) Whole() bool { return len(t.parts) == 0 }

// Use is a use of a tool with its input in the one spelling; false for one that
// can't be told, which must be refused.
func Use(agent, tool string, kind task.ToolKind, input []byte) (task.ToolAsk, bool) {
	canonical, err := task.CanonicalInput(input)
	return task.ToolAsk{Agent: agent, Tool: tool, Kind: kind, Input: canonical}, err == nil
}
