package acp

import (
	"encoding/json"

	protocol "github.com/coder/acp-go-sdk"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/task"
)

// question is what an agent asks to be allowed, and the choices that it offers.
type question struct {
	call    string
	use     task.ToolAsk
	options []option
}

type option struct {
	ID   agent.Text `json:"optionId"`
	Kind agent.Text `json:"kind"`
	Name agent.Text `json:"name"`
}

// question reads what the agent asks; false for what can't be read or shown. What
// is shown is all that it says of the call, now and before.
func (t *talk) question(params json.RawMessage, emit func(task.AgentEvent)) (question, bool) {
	var p struct {
		Options []option        `json:"options"`
		Raw     json.RawMessage `json:"toolCall"`
	}
	var u toolCall
	if json.Unmarshal(params, &p) != nil || json.Unmarshal(p.Raw, &u) != nil {
		return question{}, false
	}
	id := string(u.ID)
	told := t.calls[id]
	t.flush(emit)
	u.Status = "" // it waits for us, whatever it says
	if told == nil {
		told = &call{}
	}
	earlier := *told
	t.call(u, emit)
	if u.Kind == "" {
		u.Kind = agent.Text(earlier.tool)
	}
	var shown map[string]any
	canonical, err := task.CanonicalInput(p.Raw)
	if err != nil || json.Unmarshal(canonical, &shown) != nil || shown == nil {
		return question{}, false
	}
	delete(shown, "toolCallId")
	delete(shown, "status")
	if shown["rawInput"] == nil && earlier.input != "" {
		input, err := task.CanonicalInput(json.RawMessage(earlier.input))
		if err != nil {
			return question{}, false
		}
		shown["rawInput"], u.Input = json.RawMessage(input), input
	}
	if shown["title"] == nil && earlier.title != "" {
		shown["title"] = earlier.title
	}
	text, err := json.Marshal(shown)
	if err != nil {
		return question{}, false
	}
	kind, _ := agent.Clip(string(u.Kind), maxID)
	if kind == "" {
		kind = "other"
	}
	use, ok := agent.Use(t.peer.Name, kind, kindOf(kind), text)
	if use.Kind == task.ToolShell {
		if use.Argv = argvOf(u.Input); use.Argv == nil && t.peer.Titled && u.Title != "" {
			use.Argv = []string{"sh", "-c", string(u.Title)}
		}
	}
	if told := t.calls[id]; told != nil {
		told.asked = true
	}
	return question{call: id, use: use, options: p.Options}, ok
}

// kindOf is the kind of a tool by the protocol's word for it.
func kindOf(word string) task.ToolKind {
	return map[string]task.ToolKind{
		"execute": task.ToolShell, "read": task.ToolRead, "search": task.ToolSearch, "edit": task.ToolEdit, "delete": task.ToolEdit, "move": task.ToolEdit, "fetch": task.ToolFetch,
	}[word]
}

// argvOf is the command in a call's input, where it has one; nil: it is not told
// in a way that can be compared.
func argvOf(input json.RawMessage) []string {
	var in struct {
		Command json.RawMessage `json:"command"`
	}
	var line string
	var argv []string
	switch {
	case json.Unmarshal(input, &in) != nil:
	case json.Unmarshal(in.Command, &line) == nil && line != "":
		return []string{"sh", "-c", line}
	case json.Unmarshal(in.Command, &argv) == nil:
		return argv
	}
	return nil
}

// choose is the choice that an answer comes to: this once or not at all. One that
// would let the agent go on without asking is never made.
func (q question) choose(a task.ToolAnswer) any {
	wanted := []protocol.PermissionOptionKind{protocol.PermissionOptionKindRejectOnce, protocol.PermissionOptionKindRejectAlways}
	if a.Allow {
		wanted = []protocol.PermissionOptionKind{protocol.PermissionOptionKindAllowOnce}
	}
	for _, kind := range wanted {
		for _, o := range q.options {
			if o.Kind == agent.Text(kind) {
				return protocol.RequestPermissionResponse{Outcome: protocol.NewRequestPermissionOutcomeSelected(protocol.PermissionOptionId(o.ID))}
			}
		}
	}
	return protocol.RequestPermissionResponse{Outcome: protocol.NewRequestPermissionOutcomeCancelled()}
}
