package claude

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// line is what is read of one line of stream-json.
type line struct {
	Type    agent.Text `json:"type"`
	Subtype agent.Text `json:"subtype"`
	Session agent.Text `json:"session_id"`
	Message struct {
		ID      agent.Text      `json:"id"`
		Model   agent.Text      `json:"model"`
		Content json.RawMessage `json:"content"`
		Usage   usage           `json:"usage"`
	} `json:"message"`

	// Of api_retry.
	Attempt agent.Number `json:"attempt"`
	Most    agent.Number `json:"max_retries"`
	Status  agent.Number `json:"error_status"`
	Error   agent.Text   `json:"error"`

	// Of result.
	Result    agent.Text   `json:"result"`
	IsError   bool         `json:"is_error"`
	APIStatus agent.Number `json:"api_error_status"`
	Terminal  agent.Text   `json:"terminal_reason"`
	Usage     usage        `json:"usage"`
	Turns     agent.Number `json:"num_turns"`
}

type usage struct {
	Input   agent.Number `json:"input_tokens"`
	Output  agent.Number `json:"output_tokens"`
	Read    agent.Number `json:"cache_read_input_tokens"`
	Created agent.Number `json:"cache_creation_input_tokens"`
}

// model counts cached tokens as input, as all harnesses' usage does.
func (u usage) model(requests int64) task.ModelUsage {
	return task.ModelUsage{
		Requests: requests, Input: int64(u.Input + u.Read + u.Created), Output: int64(u.Output), Cached: int64(u.Read),
	}
}

type block struct {
	Type    agent.Text      `json:"type"`
	Text    agent.Text      `json:"text"`
	ID      agent.Text      `json:"id"`
	Name    agent.Text      `json:"name"`
	Input   json.RawMessage `json:"input"`
	Result  agent.Text      `json:"tool_use_id"`
	Content json.RawMessage `json:"content"`
	IsError bool            `json:"is_error"`
}

// synthetic is the model that claude names when it speaks for itself.
const synthetic = "<synthetic>"

type dialect struct {
	session string
	last    string // the latest message that was counted
	counted task.ModelUsage
	result  *line
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
	switch l.Type {
	case "assistant", "user":
		return d.message(l, emit)
	case "result":
		d.result = &l
		d.rest(l, emit)
	case "system":
		if l.Subtype == "api_retry" {
			emit(task.AgentEvent{Type: "text", Text: fmt.Sprintf(
				"the model's server failed (status %d, %s); try %d of %d follows", l.Status, l.Error, l.Attempt, l.Most)})
		}
	}
	return l.Type != ""
}

func (d *dialect) message(l line, emit func(task.AgentEvent)) bool {
	var blocks []block
	if json.Unmarshal(l.Message.Content, &blocks) != nil {
		var s string
		if json.Unmarshal(l.Message.Content, &s) != nil {
			return false
		}
		blocks = []block{{Type: "text", Text: agent.Text(s)}}
	}
	for _, b := range blocks {
		switch b.Type {
		case "text":
			if l.Type == "assistant" {
				emit(task.AgentEvent{Type: "text", Text: string(b.Text)})
			}
		case "tool_use":
			emit(task.AgentEvent{Type: "call", Call: string(b.ID), Tool: string(b.Name), Input: agent.JSON(b.Input)})
		case "tool_result":
			emit(task.AgentEvent{Type: "result", Call: string(b.Result), Text: plainText(b.Content), Failed: b.IsError})
		}
	}
	// A message comes in several lines, each with the usage so far.
	id := string(l.Message.ID)
	if l.Type == "assistant" && l.Message.Model != synthetic && id != "" && id != d.last {
		d.last = id
		d.count(l.Message.Usage.model(1), emit)
	}
	return true
}

// plainText is a result's content: a string, or a list with texts.
func plainText(raw json.RawMessage) string {
	var parts []block
	if json.Unmarshal(raw, &parts) != nil {
		var s agent.Text
		_ = s.UnmarshalJSON(raw) // takes every value
		return string(s)
	}
	var text strings.Builder
	for _, p := range parts {
		text.WriteString(string(p.Text))
	}
	return text.String()
}

func (d *dialect) count(u task.ModelUsage, emit func(task.AgentEvent)) {
	if u == (task.ModelUsage{}) {
		return
	}
	d.counted.Requests += u.Requests
	d.counted.Input += u.Input
	d.counted.Output += u.Output
	d.counted.Cached += u.Cached
	emit(task.AgentEvent{Type: "usage", Usage: &u})
}

// rest counts what the messages did not tell and the result does.
func (d *dialect) rest(l line, emit func(task.AgentEvent)) {
	total := l.Usage.model(0)
	d.count(task.ModelUsage{
		Input: max(total.Input-d.counted.Input, 0), Output: max(total.Output-d.counted.Output, 0),
		Cached: max(total.Cached-d.counted.Cached, 0),
	}, emit)
}

// Hopeless implements agent.Dialect.
func (d *dialect) Hopeless() *task.Failure { return nil }

// End implements agent.Dialect.
func (d *dialect) End(exit int, notes string) stage.HarnessEnd {
	end := stage.HarnessEnd{Session: d.session}
	switch {
	case d.result == nil && exit == 0:
		end.Failure = task.Fail(task.AgentFailed, "the agent ended without saying how", nil)
	case d.result == nil:
		end.Failure = agent.Failed(exit, notes)
	case d.result.IsError || exit != 0:
		said := string(d.result.Result)
		if f := agent.ModelFailure(int(d.result.APIStatus), said); f != nil {
			end.Failure = f
		} else if d.result.Terminal == "api_error" || d.result.Terminal == "" {
			end.Failure = agent.Failed(exit, said)
		} else {
			end.Failure = task.Fail(task.AgentFailed, fmt.Sprintf("the agent ended with %s: %s", d.result.Subtype, said), nil)
		}
	}
	return end
}
