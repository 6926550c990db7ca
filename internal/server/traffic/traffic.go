// Package traffic tells beside the gateway's records what ran in the sandbox
// then: the stage, and the calls of tools that the agent had begun and not
// ended. It is pure.
//
// Not promised: which process of several made a connection, which a gateway
// outside of the sandbox can't see; and that clocks of several machines agree to
// the millisecond.
package traffic

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

// shown is how much of a call's input is told, in bytes.
const shown = 200

// Running remembers what ran when. Its zero value is ready.
type Running struct{ spans []span }

// span is one thing that ran.
type span struct {
	sandbox string // empty: of whichever the agent's stage runs in
	call    string // of an agent's call
	text    string
	from    time.Time
	to      *time.Time // nil: it still runs
}

// See takes one event of the task, in their order.
func (r *Running) See(e task.Event) {
	switch v := e.Data.(type) {
	case task.Stage:
		r.stage(v)
	case task.AgentEvent:
		r.agent(v)
	}
}

func (r *Running) stage(s task.Stage) {
	if s.Sandbox == "" || s.StartedAt == nil {
		return
	}
	for i := range r.spans {
		if have := &r.spans[i]; have.call == "" && have.sandbox == s.Sandbox && have.text == string(s.Name) && have.from.Equal(*s.StartedAt) {
			have.to = s.EndedAt
			return
		}
	}
	r.spans = append(r.spans, span{sandbox: s.Sandbox, text: string(s.Name), from: *s.StartedAt, to: s.EndedAt})
}

func (r *Running) agent(e task.AgentEvent) {
	switch e.Type {
	case "call":
		r.spans = append(r.spans, span{call: e.Call, text: clip(e.Tool + " " + e.Input), from: e.Time})
	case "result", "end":
		for i := range r.spans {
			if have := &r.spans[i]; have.call != "" && have.to == nil && (e.Type == "end" || have.call == e.Call) {
				at := e.Time
				have.to = &at
			}
		}
	}
}

// At is what ran in the sandbox at the time, stages first. stage is the stage
// that the record itself names.
func (r *Running) At(sandbox string, stage task.StageName, at time.Time) []string {
	var out []string
	for _, s := range r.spans {
		in := s.sandbox == sandbox || s.call != "" && stage == task.Agent
		if in && !at.Before(s.from) && (s.to == nil || !at.After(*s.to)) {
			out = append(out, s.text)
		}
	}
	return out
}

func clip(s string) string {
	s = strings.TrimSpace(s)
	if len(s) <= shown {
		return s
	}
	cut := shown
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}
