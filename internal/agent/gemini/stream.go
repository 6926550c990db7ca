package gemini

import (
	"encoding/json"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// line is what is read of one line of stream-json.
type line struct {
	Type    agent.Text      `json:"type"`
	Role    agent.Text      `json:"role"`
	Content agent.Text      `json:"content"`
	Delta   bool            `json:"delta"`
	Tool    agent.Text      `json:"tool_name"`
	ID      agent.Text      `json:"tool_id"`
	Input   json.RawMessage `json:"parameters"`
	Status  agent.Text      `json:"status"`
	Output  agent.Text      `json:"output"`
	Message agent.Text      `json:"message"` // of error
	Error   *struct {
		Message agent.Text `json:"message"`
	} `json:"error"`
	Stats struct {
		Input  agent.Number `json:"input_tokens"`
		Output agent.Number `json:"output_tokens"`
		Cached agent.Number `json:"cached"`
	} `json:"stats"`
}

type dialect struct {
	text   string // said in pieces so far
	done   bool
	error  string // the latest that it told of
	failed string
}

// Line implements agent.Dialect.
func (d *dialect) Line(text []byte, emit func(task.AgentEvent)) bool {
	var l line
	if json.Unmarshal(text, &l) != nil {
		return false
	}
	if l.Type == "message" && l.Delta && len(d.text) < agent.MaxLine {
		if l.Role != "user" {
			d.text += string(l.Content)
		}
		return true
	}
	if d.text != "" {
		emit(task.AgentEvent{Type: "text", Text: d.text})
		d.text = ""
	}
	switch l.Type {
	case "message":
		if l.Role != "user" {
			emit(task.AgentEvent{Type: "text", Text: string(l.Content)})
		}
	case "tool_use":
		emit(task.AgentEvent{Type: "call", Call: string(l.ID), Tool: string(l.Tool), Input: string(l.Input)})
	case "tool_result":
		said := l.Output
		if l.Error != nil {
			said += l.Error.Message
		}
		emit(task.AgentEvent{Type: "result", Call: string(l.ID), Text: string(said), Failed: l.Status == "error"})
	case "error":
		d.error = string(l.Message)
		emit(task.AgentEvent{Type: "text", Text: d.error})
	case "result":
		d.result(l, emit)
	}
	return l.Type != ""
}

func (d *dialect) result(l line, emit func(task.AgentEvent)) {
	if l.Stats.Input > 0 || l.Stats.Output > 0 {
		emit(task.AgentEvent{Type: "usage", Usage: &task.ModelUsage{
			Requests: 1, Input: int64(l.Stats.Input), Output: int64(l.Stats.Output), Cached: int64(l.Stats.Cached),
		}})
	}
	d.done = l.Status == "success"
	if !d.done {
		switch {
		case l.Error != nil && l.Error.Message != "":
			d.failed = string(l.Error.Message)
		case d.error != "":
			d.failed = d.error
		default:
			d.failed = "the run ended with " + string(l.Status)
		}
	}
}

// Hopeless implements agent.Dialect.
func (d *dialect) Hopeless() *task.Failure { return nil }

// exitStatus is the HTTP status that gemini's exit code tells of: the code is
// its lowest eight bits.
func exitStatus(exit int) int {
	for status := 400; status < 600; status++ {
		if exit >= 128 && status&0xff == exit {
			return status
		}
	}
	return 0
}

// End implements agent.Dialect.
func (d *dialect) End(exit int, notes string) stage.HarnessEnd {
	var end stage.HarnessEnd
	switch {
	case d.failed != "":
		if end.Failure = agent.ModelFailure(exitStatus(exit), d.failed); end.Failure == nil {
			end.Failure = agent.Failed(exit, d.failed)
		}
	case exit != 0:
		if end.Failure = agent.ModelFailure(exitStatus(exit), notes); end.Failure == nil {
			end.Failure = agent.Failed(exit, notes)
		}
	case !d.done:
		end.Failure = task.Fail(task.AgentFailed, "the agent ended without saying how", nil)
	}
	return end
}
