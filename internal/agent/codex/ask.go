package codex

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Limits of what it may ask.
const (
	maxAsked = 10_000
	maxID    = 256
	maxItems = 1_000
)

// workspace is where it works.
const workspace = "/workspace"

// step is what our latest request was for.
type step int

const (
	hello step = iota
	thread
	turn
	over
)

// speaker is a stage.HarnessAsker: the app-server's client.
type speaker struct {
	*agent.Reader
	talk *server
}

func newSpeaker(model string, run stage.HarnessRun, emit func(task.AgentEvent)) *speaker {
	s := &server{model: model, run: run, items: map[string]json.RawMessage{}}
	s.request(hello, "initialize", map[string]any{"clientInfo": map[string]any{"name": "cofferdam", "version": "1"}})
	return &speaker{Reader: agent.NewReader(s, emit), talk: s}
}

// Say implements stage.HarnessSpeaker.
func (s *speaker) Say() []byte { return s.talk.Said() }

// Done implements stage.HarnessSpeaker.
func (s *speaker) Done() bool { return s.talk.step == over && s.talk.Whole() }

// Asks implements stage.HarnessAsker.
func (s *speaker) Asks() []stage.HarnessAsk { return s.talk.Asks() }

// Answer implements stage.HarnessAsker.
func (s *speaker) Answer(number int, a task.ToolAnswer) { s.talk.Answer(number, a) }

// server is the talk with the app-server, whose requests for approval are asked
// about. It implements agent.Dialect.
type server struct {
	agent.Talk
	model string
	run   stage.HarnessRun

	step    step
	number  int // of our latest request
	session string
	items   map[string]json.RawMessage // changes of files that began and did not end
	asked   int
	failed  string
	done    bool
}

// message is one line of JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method agent.Text      `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message agent.Text `json:"message"`
	} `json:"error"`
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // never: what is in it was read as JSON or is text
		return nil
	}
	return append(b, '\n')
}

func (s *server) request(next step, method string, params any) {
	s.number++
	s.step = next
	s.Words(encoded(map[string]any{"jsonrpc": "2.0", "id": s.number, "method": method, "params": params}))
}

func (s *server) fail(why string) {
	if s.failed == "" {
		s.failed = why
	}
	s.step = over
}

// Line implements agent.Dialect.
func (s *server) Line(text []byte, emit func(task.AgentEvent)) bool {
	var m message
	if json.Unmarshal(text, &m) != nil {
		return false
	}
	id := bytes.TrimSpace(m.ID)
	none := len(id) == 0 || bytes.Equal(id, []byte("null"))
	switch {
	case m.Method != "" && none:
		return s.notified(string(m.Method), m.Params, emit)
	case m.Method != "":
		return s.asks(id, m)
	case s.step != over && string(id) == strconv.Itoa(s.number):
		s.answered(m)
		return true
	}
	return false
}

// answered takes the answer to our latest request.
func (s *server) answered(m message) {
	if m.Error != nil {
		s.fail(string(m.Error.Message))
		return
	}
	var r struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
	}
	switch s.step {
	case hello:
		s.Words(encoded(map[string]any{"jsonrpc": "2.0", "method": "initialized"}))
		// It asks before every command and every change; no model answers in a
		// person's place, and its own sandbox stays off since it runs in one.
		params := map[string]any{"cwd": workspace, "approvalPolicy": "untrusted", "approvalsReviewer": "user", "sandbox": "danger-full-access"}
		if s.model != "" {
			params["model"] = s.model
		}
		if s.run.Session != "" {
			params["threadId"] = s.run.Session
			s.request(thread, "thread/resume", params)
			return
		}
		s.request(thread, "thread/start", params)
	case thread:
		if json.Unmarshal(m.Result, &r) != nil || r.Thread.ID == "" {
			s.fail("the agent's thread has no name")
			return
		}
		s.session = r.Thread.ID
		prompt := s.run.Prompt
		if s.run.Session != "" {
			prompt = agent.GoOn
		}
		s.request(turn, "turn/start", map[string]any{"threadId": s.session, "input": []any{map[string]any{"type": "text", "text": prompt}}})
	case turn, over:
	}
}

// asks takes a request of the server's.
func (s *server) asks(id json.RawMessage, m message) bool {
	if len(id) > maxID || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		return false
	}
	if s.asked++; s.asked > maxAsked || s.step != turn {
		return true // nobody answers
	}
	use, call, ok := s.use(string(m.Method), m.Params)
	if !ok {
		if m.Method == "item/commandExecution/requestApproval" || m.Method == "item/fileChange/requestApproval" {
			s.Words(decision(id, task.ToolAnswer{}))
			return true
		}
		s.Words(encoded(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": -32601, "message": "this client has no such method"}}))
		return true
	}
	s.Ask(call, use, func(a task.ToolAnswer) []byte { return decision(id, a) })
	return true
}

// decision answers a request for approval: this once or not at all.
func decision(id json.RawMessage, a task.ToolAnswer) []byte {
	word := "decline"
	if a.Allow {
		word = "accept"
	}
	return encoded(map[string]any{"jsonrpc": "2.0", "id": id, "result": map[string]any{"decision": word}})
}

// use is what a request for approval is about; false for what is no such request
// or can't be shown. What is shown is all that it says but names and times.
func (s *server) use(method string, params json.RawMessage) (task.ToolAsk, string, bool) {
	var p struct {
		Item    string  `json:"itemId"`
		Kind    string  `json:"kind"`
		Command *string `json:"command"`
		Dir     string  `json:"cwd"`
	}
	var all map[string]json.RawMessage
	canonical, err := task.CanonicalInput(params)
	if err != nil || json.Unmarshal(canonical, &p) != nil || json.Unmarshal(canonical, &all) != nil {
		return task.ToolAsk{}, "", false
	}
	for _, name := range []string{
		"threadId", "turnId", "itemId", "approvalId", "startedAtMs", "environmentId", "commandActions", "proposedExecpolicyAmendment", "proposedNetworkPolicyAmendments", "availableDecisions",
	} {
		delete(all, name)
	}
	for name, v := range all {
		if string(v) == "null" {
			delete(all, name)
		}
	}
	tool, kind := "", task.ToolOther
	switch method {
	case "item/commandExecution/requestApproval":
		if p.Command == nil && p.Kind == "command" {
			return task.ToolAsk{}, "", false
		}
		tool, kind = "shell", task.ToolShell
	case "item/fileChange/requestApproval":
		changes, ok := s.items[p.Item]
		if !ok {
			return task.ToolAsk{}, "", false
		}
		tool, kind, all["changes"] = "apply_patch", task.ToolEdit, changes
	default:
		return task.ToolAsk{}, "", false
	}
	text, err := json.Marshal(all)
	if err != nil {
		return task.ToolAsk{}, "", false
	}
	use, ok := agent.Use("codex", tool, kind, text)
	if p.Command != nil {
		use.Argv, use.Dir = argvOf(*p.Command), p.Dir
	}
	return use, p.Item, ok
}

// argvOf is the command as it is told: a shell's command line, which is shown as it
// stands.
func argvOf(command string) []string { return []string{"sh", "-c", command} }
