package opencode

import (
	"encoding/json"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// line is what is read of one line of run --format json.
type line struct {
	Type    agent.Text `json:"type"`
	Session agent.Text `json:"sessionID"`
	Part    struct {
		Type   agent.Text `json:"type"`
		Text   agent.Text `json:"text"`
		Tool   agent.Text `json:"tool"`
		Call   agent.Text `json:"callID"`
		Reason agent.Text `json:"reason"`
		State  struct {
			Status   agent.Text      `json:"status"`
			Input    json.RawMessage `json:"input"`
			Output   agent.Text      `json:"output"`
			Error    agent.Text      `json:"error"`
			Metadata struct {
				Exit agent.Number `json:"exit"`
			} `json:"metadata"`
		} `json:"state"`
		Tokens struct {
			Input  agent.Number `json:"input"`
			Output agent.Number `json:"output"`
			Cache  struct {
				Read  agent.Number `json:"read"`
				Write agent.Number `json:"write"`
			} `json:"cache"`
		} `json:"tokens"`
	} `json:"part"`
	Error *struct {
		Name agent.Text `json:"name"`
		Data struct {
			Message agent.Text   `json:"message"`
			Status  agent.Number `json:"statusCode"`
		} `json:"data"`
	} `json:"error"`
}

// maxEmpty is how many empty answers in a row are taken for a server that says
// nothing: opencode itself asks on without end.
const maxEmpty = 20

type dialect struct {
	session string
	said    bool // a step ended that was not empty
	empty   int  // empty steps in a row
	status  int
	failed  string
}

// Line implements agent.Dialect.
func (d *dialect) Line(text []byte, emit func(task.AgentEvent)) bool {
	var l line
	if json.Unmarshal(text, &l) != nil {
		return false
	}
	if l.Session != "" {
		d.session = string(l.Session)
	}
	p := &l.Part
	switch l.Type {
	case "text", "reasoning":
		emit(task.AgentEvent{Type: "text", Text: string(p.Text)})
	case "tool_use":
		// It is told when it has ended.
		emit(task.AgentEvent{Type: "call", Call: string(p.Call), Tool: string(p.Tool), Input: string(p.State.Input)})
		failed := p.State.Status == "error" || p.State.Metadata.Exit != 0
		emit(task.AgentEvent{Type: "result", Call: string(p.Call), Text: string(p.State.Output + p.State.Error), Failed: failed})
	case "step_finish":
		t := p.Tokens
		u := task.ModelUsage{Requests: 1, Input: int64(t.Input + t.Cache.Read + t.Cache.Write), Output: int64(t.Output), Cached: int64(t.Cache.Read)}
		if u.Input == 0 && u.Output == 0 && p.Reason == "unknown" {
			d.empty++
			break
		}
		d.empty, d.said = 0, true
		emit(task.AgentEvent{Type: "usage", Usage: &u})
	case "error":
		if l.Error == nil {
			return false
		}
		d.status, d.failed = int(l.Error.Data.Status), string(l.Error.Data.Message)
		if d.failed == "" {
			d.failed = string(l.Error.Name)
		}
		emit(task.AgentEvent{Type: "text", Text: d.failed})
	}
	return l.Type != ""
}

// Hopeless implements agent.Dialect.
func (d *dialect) Hopeless() *task.Failure {
	if d.empty < maxEmpty {
		return nil
	}
	return task.Fail(task.ModelSilent, "the model's server gives empty answers only", nil)
}

// End implements agent.Dialect.
func (d *dialect) End(exit int, notes string) stage.HarnessEnd {
	end := stage.HarnessEnd{Session: d.session}
	switch {
	case d.Hopeless() != nil:
		end.Failure = d.Hopeless()
	case d.failed != "":
		if end.Failure = agent.ModelFailure(d.status, d.failed); end.Failure == nil {
			end.Failure = agent.Failed(exit, d.failed)
		}
	case exit != 0:
		end.Failure = agent.Failed(exit, notes)
	case !d.said:
		end.Failure = task.Fail(task.AgentFailed, "the agent ended without saying how", nil)
	}
	return end
}
