package acp

import (
	"encoding/json"
	"strings"

	protocol "github.com/coder/acp-go-sdk"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/task"
)

// call is a use of a tool that has not ended.
type call struct {
	tool, title, input string
	told               bool
	asked              bool // whether it may be
}

// toolCall is what an agent tells of a call; what is empty did not change.
type toolCall struct {
	ID      agent.Text      `json:"toolCallId"`
	Kind    agent.Text      `json:"kind"`
	Title   agent.Text      `json:"title"`
	Status  agent.Text      `json:"status"`
	Input   json.RawMessage `json:"rawInput"`
	Output  json.RawMessage `json:"rawOutput"`
	Content []struct {
		Type    agent.Text      `json:"type"`
		Content json.RawMessage `json:"content"`
		Path    agent.Text      `json:"path"`
	} `json:"content"`
}

// block is a piece of what an agent says.
type block struct {
	Type agent.Text `json:"type"`
	Text agent.Text `json:"text"`
}

// update takes one session/update.
func (t *talk) update(params json.RawMessage, emit func(task.AgentEvent)) bool {
	var p struct {
		Update json.RawMessage `json:"update"`
	}
	var kind struct {
		Kind agent.Text `json:"sessionUpdate"`
	}
	if json.Unmarshal(params, &p) != nil || json.Unmarshal(p.Update, &kind) != nil {
		return false
	}
	if t.replayed {
		return true
	}
	switch kind.Kind {
	case "agent_message_chunk", "agent_thought_chunk":
		var u struct {
			Content block `json:"content"`
		}
		if json.Unmarshal(p.Update, &u) != nil {
			return false
		}
		t.chunk(string(u.Content.Text), kind.Kind == "agent_thought_chunk", emit)
	case "tool_call", "tool_call_update":
		var u toolCall
		if json.Unmarshal(p.Update, &u) != nil {
			return false
		}
		t.flush(emit)
		t.call(u, emit)
	}
	return true // plans, commands and what may come are in the log
}

// chunk gathers what the agent says in pieces.
func (t *talk) chunk(text string, thought bool, emit func(task.AgentEvent)) {
	if thought != t.thought || len(t.text)+len(text) > maxChunk {
		t.flush(emit)
	}
	t.thought = thought
	t.text = append(t.text, text...)
}

func (t *talk) flush(emit func(task.AgentEvent)) {
	if len(t.text) > 0 {
		emit(task.AgentEvent{Type: "text", Text: string(t.text)})
		t.text = nil
	}
}

// call takes what is told of a call. It becomes an event when its input is known
// or it has begun, whichever is first.
func (t *talk) call(u toolCall, emit func(task.AgentEvent)) {
	id := string(u.ID)
	c := t.calls[id]
	if c == nil {
		c = &call{tool: "other"}
		if len(t.calls) < maxOpen {
			t.calls[id] = c
		}
	}
	if u.Kind != "" {
		c.tool = string(u.Kind)
	}
	if u.Title != "" {
		c.title = string(u.Title)
	}
	if in := string(u.Input); in != "" && in != "null" && in != "{}" {
		c.input = in
	}
	// Some say that a call is in progress before they ask.
	if t.run.Asks && !c.asked && u.Status == agent.Text(protocol.ToolCallStatusCompleted) {
		c.asked = true
		emit(task.AgentEvent{Type: "permission", Call: id, Tool: c.tool, Failed: true, Text: "the agent did this without asking; the sandbox alone bounds it"})
	}
	ended := u.Status == agent.Text(protocol.ToolCallStatusCompleted) || u.Status == agent.Text(protocol.ToolCallStatusFailed)
	if ended || c.input != "" || u.Status == agent.Text(protocol.ToolCallStatusInProgress) {
		t.tell(id, c, emit)
	}
	if ended {
		delete(t.calls, id)
		emit(task.AgentEvent{Type: "result", Call: id, Text: u.said(), Failed: u.Status == agent.Text(protocol.ToolCallStatusFailed)})
	}
}

// tell makes an event of a call, once.
func (t *talk) tell(id string, c *call, emit func(task.AgentEvent)) {
	if c.told {
		return
	}
	c.told = true
	input := c.input
	if input == "" {
		b, err := json.Marshal(map[string]string{"title": c.title})
		if err == nil { // a string always can be
			input = string(b)
		}
	}
	emit(task.AgentEvent{Type: "call", Call: id, Tool: c.tool, Input: input})
}

// said is what a call came to, in words.
func (u *toolCall) said() string {
	var parts []string
	for _, c := range u.Content {
		var b block
		switch {
		case c.Type == "diff":
			parts = append(parts, "changed "+string(c.Path))
		case c.Type == "content" && json.Unmarshal(c.Content, &b) == nil && b.Text != "":
			parts = append(parts, string(b.Text))
		}
	}
	var raw agent.Text
	if len(parts) == 0 && len(u.Output) > 0 && raw.UnmarshalJSON(u.Output) == nil {
		parts = append(parts, string(raw))
	}
	return strings.Join(parts, "\n")
}

// permit allows what the agent asks to be allowed, and tells of it. nil: there is
// nothing to choose from that can be read.
func (t *talk) permit(params json.RawMessage, emit func(task.AgentEvent)) any {
	var p struct {
		Options []struct {
			ID   agent.Text `json:"optionId"`
			Kind agent.Text `json:"kind"`
			Name agent.Text `json:"name"`
		} `json:"options"`
		Call toolCall `json:"toolCall"`
	}
	if json.Unmarshal(params, &p) != nil {
		return nil
	}
	t.flush(emit)
	p.Call.Status = "" // it waits for us, whatever it says
	t.call(p.Call, emit)
	for _, kind := range []protocol.PermissionOptionKind{protocol.PermissionOptionKindAllowOnce, protocol.PermissionOptionKindAllowAlways} {
		for _, o := range p.Options {
			if o.Kind != agent.Text(kind) {
				continue
			}
			emit(task.AgentEvent{Type: "permission", Call: string(p.Call.ID), Text: "asked, and was allowed: " + string(o.Name)})
			return protocol.RequestPermissionResponse{Outcome: protocol.NewRequestPermissionOutcomeSelected(protocol.PermissionOptionId(o.ID))}
		}
	}
	emit(task.AgentEvent{Type: "permission", Call: string(p.Call.ID), Failed: true, Text: "asked, but offered no way to be allowed"})
	return protocol.RequestPermissionResponse{Outcome: protocol.NewRequestPermissionOutcomeCancelled()}
}
