package codex

import (
	"encoding/json"
	"strings"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// line is what is read of one line of exec --json.
type line struct {
	Type    agent.Text `json:"type"`
	Thread  agent.Text `json:"thread_id"`
	Message agent.Text `json:"message"` // of error
	Error   struct {
		Message agent.Text `json:"message"`
	} `json:"error"` // of turn.failed
	Usage struct {
		Input  agent.Number `json:"input_tokens"`
		Cached agent.Number `json:"cached_input_tokens"`
		Output agent.Number `json:"output_tokens"`
	} `json:"usage"` // of turn.completed
	Item json.RawMessage `json:"item"`
}

// item is what is read of an item; those of kinds not named here are kept as
// they are.
type item struct {
	ID      agent.Text      `json:"id"`
	Type    agent.Text      `json:"type"`
	Text    agent.Text      `json:"text"`
	Message agent.Text      `json:"message"`
	Command agent.Text      `json:"command"`
	Output  agent.Text      `json:"aggregated_output"`
	Exit    *agent.Number   `json:"exit_code"`
	Status  agent.Text      `json:"status"`
	Server  agent.Text      `json:"server"`
	Tool    agent.Text      `json:"tool"`
	Query   agent.Text      `json:"query"`
	Changes json.RawMessage `json:"changes"`
}

type dialect struct {
	session string
	done    bool
	failed  string
}

// Line implements agent.Dialect.
func (d *dialect) Line(text []byte, emit func(task.AgentEvent)) bool {
	var l line
	if json.Unmarshal(text, &l) != nil {
		return false
	}
	switch l.Type {
	case "thread.started":
		d.session = string(l.Thread)
	case "turn.started":
		d.done = false
	case "turn.completed":
		d.done = true
		emit(task.AgentEvent{Type: "usage", Usage: &task.ModelUsage{
			Requests: 1, Input: int64(l.Usage.Input), Output: int64(l.Usage.Output), Cached: int64(l.Usage.Cached),
		}})
	case "turn.failed":
		d.failed = string(l.Error.Message)
		if d.failed == "" {
			d.failed = "the turn failed"
		}
	case "error":
		emit(task.AgentEvent{Type: "text", Text: string(l.Message)})
	case "item.started", "item.completed":
		return d.item(l, emit)
	}
	return l.Type != ""
}

func (d *dialect) item(l line, emit func(task.AgentEvent)) bool {
	var i item
	if json.Unmarshal(l.Item, &i) != nil {
		return false
	}
	tool, input := "", string(l.Item)
	switch i.Type {
	case "agent_message", "reasoning", "error":
		if l.Type == "item.completed" {
			emit(task.AgentEvent{Type: "text", Text: string(i.Text + i.Message)})
		}
		return true
	case "command_execution":
		tool, input = "shell", object("command", string(i.Command))
	case "file_change":
		tool = "edit"
		if i.Changes != nil {
			input = string(i.Changes)
		}
	case "mcp_tool_call":
		tool = strings.Trim(string(i.Server+"."+i.Tool), ".")
	case "web_search":
		tool, input = "search", object("query", string(i.Query))
	default:
		tool = string(i.Type)
	}
	if l.Type == "item.started" {
		emit(task.AgentEvent{Type: "call", Call: string(i.ID), Tool: tool, Input: input})
		return true
	}
	failed := i.Status == "failed" || i.Status == "declined" || i.Exit != nil && *i.Exit != 0
	emit(task.AgentEvent{Type: "result", Call: string(i.ID), Text: string(i.Output), Failed: failed})
	return true
}

// object is a JSON object of one string.
func object(name, value string) string {
	text, err := json.Marshal(map[string]string{name: value})
	if err != nil {
		return ""
	}
	return string(text)
}

// Hopeless implements agent.Dialect.
func (d *dialect) Hopeless() *task.Failure { return nil }

// End implements agent.Dialect.
func (d *dialect) End(exit int, notes string) stage.HarnessEnd {
	end := stage.HarnessEnd{Session: d.session}
	switch {
	case d.failed != "":
		end.Failure = agent.Failed(exit, d.failed)
	case exit != 0:
		end.Failure = agent.Failed(exit, notes)
	case !d.done:
		end.Failure = task.Fail(task.AgentFailed, "the agent ended without saying how", nil)
	}
	return end
}
