package claude

import (
	"encoding/json"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Limits of what it may ask.
const (
	maxAsked = 10_000
	maxID    = 256
)

// settings have it ask before every tool: without them it lets itself read files
// and run what it takes for harmless. What the repository's or the sandbox's own
// settings say of permissions and hooks is not read.
const settings = `{"permissions":{"ask":["*"],"defaultMode":"default","disableBypassPermissionsMode":"disable"},"disableAllHooks":true}`

// asking is the beginning of its command line where it must ask.
func asking() []string {
	return []string{
		catalog.Program("claude"), "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose",
		"--permission-prompt-tool", "stdio", "--permission-mode", "default", "--setting-sources", "", "--settings", settings, "--strict-mcp-config",
	}
}

// speaker is a stage.HarnessAsker: a prompt is said, and then the answers.
type speaker struct {
	*agent.Reader
	talk *control
}

func newSpeaker(run stage.HarnessRun, emit func(task.AgentEvent)) *speaker {
	c := &control{}
	prompt := run.Prompt
	if run.Session != "" {
		prompt = agent.GoOn
	}
	c.say(map[string]any{"type": "user", "message": map[string]any{"role": "user", "content": prompt}})
	return &speaker{Reader: agent.NewReader(c, emit), talk: c}
}

// Say implements stage.HarnessSpeaker.
func (s *speaker) Say() []byte { return s.talk.Said() }

// Done implements stage.HarnessSpeaker.
func (s *speaker) Done() bool { return s.talk.result != nil && s.talk.Whole() }

// Asks implements stage.HarnessAsker.
func (s *speaker) Asks() []stage.HarnessAsk { return s.talk.Asks() }

// Answer implements stage.HarnessAsker.
func (s *speaker) Answer(number int, a task.ToolAnswer) { s.talk.Answer(number, a) }

// control is the dialect of one that asks by its control protocol.
type control struct {
	dialect
	agent.Talk
	asked int
}

// request is what is read of a control request.
type request struct {
	Type    agent.Text `json:"type"`
	ID      string     `json:"request_id"`
	Request struct {
		Subtype agent.Text      `json:"subtype"`
		Tool    agent.Text      `json:"tool_name"`
		Input   json.RawMessage `json:"input"`
		Call    agent.Text      `json:"tool_use_id"`
	} `json:"request"`
}

// Line implements agent.Dialect.
func (c *control) Line(text []byte, emit func(task.AgentEvent)) bool {
	var q request
	if json.Unmarshal(text, &q) != nil || q.Type != "control_request" {
		return c.dialect.Line(text, emit)
	}
	if q.ID == "" || len(q.ID) > maxID {
		return false
	}
	if c.asked++; c.asked > maxAsked || c.result != nil {
		return true // nobody answers
	}
	if q.Request.Subtype != "can_use_tool" {
		c.respond(map[string]any{"subtype": "error", "request_id": q.ID, "error": "this client has no such request"})
		return true
	}
	use, ok := toolUse(string(q.Request.Tool), q.Request.Input)
	if !ok {
		c.respond(q.answer(use, task.ToolAnswer{Text: "its input can't be read"}))
		return true
	}
	c.Ask(string(q.Request.Call), use, func(a task.ToolAnswer) []byte { return encoded(response(q.answer(use, a))) })
	return true
}

// answer is the response to the request. What may be run is said with it: the
// very input that was shown.
func (q request) answer(use task.ToolAsk, a task.ToolAnswer) map[string]any {
	behaviour := map[string]any{"behavior": "deny", "message": "Not done: " + a.Text + ". Go on without it, or ask for less."}
	if a.Allow {
		behaviour = map[string]any{"behavior": "allow", "updatedInput": use.Input}
	}
	return map[string]any{"subtype": "success", "request_id": q.ID, "response": behaviour}
}

func (c *control) say(v any) { c.Words(encoded(v)) }

func (c *control) respond(r map[string]any) { c.say(response(r)) }

func response(r map[string]any) map[string]any {
	return map[string]any{"type": "control_response", "response": r}
}

// encoded is a message on a line.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // never: what is in it was read as JSON or is text
		return nil
	}
	return append(b, '\n')
}

// Hopeless implements agent.Dialect.
func (c *control) Hopeless() *task.Failure {
	if c.asked > maxAsked {
		return task.Fail(task.AgentFailed, "the agent asks without end, and was ended", nil)
	}
	return nil
}

// toolUse is the use that a request is about.
func toolUse(tool string, input json.RawMessage) (task.ToolAsk, bool) {
	name, _ := agent.Clip(tool, maxID)
	kind := map[string]task.ToolKind{
		"Bash": task.ToolShell, "Read": task.ToolRead, "NotebookRead": task.ToolRead, "Write": task.ToolWrite, "Edit": task.ToolEdit, "MultiEdit": task.ToolEdit,
		"NotebookEdit": task.ToolEdit, "Glob": task.ToolSearch, "Grep": task.ToolSearch, "LS": task.ToolSearch, "WebFetch": task.ToolFetch, "WebSearch": task.ToolFetch,
	}[name]
	use, ok := agent.Use("claude", name, kind, input)
	if kind == task.ToolShell {
		var in struct {
			Command string `json:"command"`
		}
		if json.Unmarshal(use.Input, &in) != nil || in.Command == "" {
			return use, false
		}
		use.Argv = []string{"bash", "-c", in.Command}
	}
	return use, ok && name == tool
}
