package codex

import (
	"encoding/json"
	"strings"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// told is what is read of an item of the app-server's.
type told struct {
	ID      string          `json:"id"`
	Type    agent.Text      `json:"type"`
	Text    agent.Text      `json:"text"`
	Command agent.Text      `json:"command"`
	Output  agent.Text      `json:"aggregatedOutput"`
	Exit    *agent.Number   `json:"exitCode"`
	Status  agent.Text      `json:"status"`
	Server  agent.Text      `json:"server"`
	Tool    agent.Text      `json:"tool"`
	Query   agent.Text      `json:"query"`
	Changes json.RawMessage `json:"changes"`
}

// notified takes a notification.
func (s *server) notified(method string, params json.RawMessage, emit func(task.AgentEvent)) bool {
	var p struct {
		Item json.RawMessage `json:"item"`
		Turn struct {
			Status agent.Text `json:"status"`
			Error  *struct {
				Message agent.Text `json:"message"`
			} `json:"error"`
		} `json:"turn"`
		Error struct {
			Message agent.Text `json:"message"`
		} `json:"error"`
		Usage struct {
			Last struct {
				Input  agent.Number `json:"inputTokens"`
				Cached agent.Number `json:"cachedInputTokens"`
				Output agent.Number `json:"outputTokens"`
			} `json:"last"`
		} `json:"tokenUsage"`
	}
	if json.Unmarshal(params, &p) != nil {
		return false
	}
	switch method {
	case "item/started", "item/completed":
		return s.item(p.Item, method == "item/completed", emit)
	case "thread/tokenUsage/updated":
		u := p.Usage.Last
		emit(task.AgentEvent{Type: "usage", Usage: &task.ModelUsage{Requests: 1, Input: int64(u.Input), Output: int64(u.Output), Cached: int64(u.Cached)}})
	case "error":
		emit(task.AgentEvent{Type: "text", Text: string(p.Error.Message)})
	case "turn/completed":
		if s.step != turn {
			return true
		}
		s.step = over
		switch {
		case p.Turn.Status == "completed":
			s.done = true
		case p.Turn.Error != nil && p.Turn.Error.Message != "":
			s.failed = string(p.Turn.Error.Message)
		default:
			s.failed = "the turn ended early: " + string(p.Turn.Status)
		}
	}
	return true
}

// item makes events of an item, and keeps what a change would do until it is asked
// about.
func (s *server) item(raw json.RawMessage, ended bool, emit func(task.AgentEvent)) bool {
	var i told
	if json.Unmarshal(raw, &i) != nil {
		return false
	}
	tool, input := "", ""
	switch i.Type {
	case "userMessage":
		return true
	case "agentMessage", "reasoning":
		if ended && i.Text != "" {
			emit(task.AgentEvent{Type: "text", Text: string(i.Text)})
		}
		return true
	case "commandExecution":
		tool, input = "shell", object("command", string(i.Command))
	case "fileChange":
		tool, input = "edit", string(i.Changes)
		delete(s.items, i.ID)
		if !ended && len(s.items) < maxItems {
			s.items[i.ID] = i.Changes
		}
	case "mcpToolCall":
		tool, input = strings.Trim(string(i.Server+"."+i.Tool), "."), string(raw)
	case "webSearch":
		tool, input = "search", object("query", string(i.Query))
	default:
		tool, input = string(i.Type), string(raw)
	}
	if !ended {
		emit(task.AgentEvent{Type: "call", Call: i.ID, Tool: tool, Input: input})
		return true
	}
	failed := i.Status == "failed" || i.Status == "declined" || i.Exit != nil && *i.Exit != 0
	emit(task.AgentEvent{Type: "result", Call: i.ID, Text: string(i.Output), Failed: failed})
	return true
}

// Hopeless implements agent.Dialect.
func (s *server) Hopeless() *task.Failure {
	if s.asked > maxAsked {
		return task.Fail(task.AgentFailed, "the agent asks without end, and was ended", nil)
	}
	return nil
}

// End implements agent.Dialect. Once the turn has ended, how the process ended
// does not count.
func (s *server) End(exit int, notes string) stage.HarnessEnd {
	end := stage.HarnessEnd{Session: s.session}
	switch {
	case s.Hopeless() != nil:
		end.Failure = s.Hopeless()
	case s.failed != "":
		end.Failure = agent.Failed(-1, s.failed)
	case !s.done:
		end.Failure = agent.Failed(exit, notes)
	}
	return end
}
