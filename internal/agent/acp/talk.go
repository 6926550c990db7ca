package acp

import (
	"bytes"
	"encoding/json"
	"strconv"

	protocol "github.com/coder/acp-go-sdk"

	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The limits of a talk.
const (
	maxAsked = 10_000 // requests of the agent
	maxID    = 256    // bytes of a request's id
	maxOpen  = 1_000  // calls that are held until more of them is known
	maxChunk = 8 << 10
)

// step is what our latest request was for.
type step int

const (
	hello step = iota
	session
	mode
	model
	prompt
	over // the turn has ended, or can't be had
)

// talk is one conversation: what the agent writes goes in by Line, what we say
// gathers in the Talk. It implements agent.Dialect.
type talk struct {
	agent.Talk
	peer  Peer
	model string // to choose; empty: the agent's own
	run   stage.HarnessRun

	step     step
	number   int // of our latest request
	session  opened
	loads    bool // the agent can go on with a session
	asked    int
	flood    bool
	failure  *task.Failure
	text     []byte // said in pieces so far
	thought  bool   // they are thoughts
	calls    map[string]*call
	replayed bool // the agent tells an earlier part of its session again
}

// opened is what the agent says of a session.
type opened struct {
	ID    agent.Text `json:"sessionId"`
	Modes struct {
		Current   agent.Text `json:"currentModeId"`
		Available []struct {
			ID agent.Text `json:"id"`
		} `json:"availableModes"`
	} `json:"modes"`
	Models *struct {
		Current agent.Text `json:"currentModelId"`
	} `json:"models"`
	Options []struct {
		ID       agent.Text `json:"id"`
		Category agent.Text `json:"category"`
	} `json:"configOptions"`
}

func newTalk(model string, run stage.HarnessRun) *talk {
	t := &talk{model: model, run: run, calls: map[string]*call{}}
	t.begin()
	return t
}

// begin says who we are.
func (t *talk) begin() {
	t.ask(hello, protocol.AgentMethodInitialize, protocol.InitializeRequest{
		ProtocolVersion: protocol.ProtocolVersionNumber,
		ClientInfo:      &protocol.Implementation{Name: "cofferdam", Version: "1"},
	})
}

// message is one line of JSON-RPC.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method agent.Text      `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    json.RawMessage `json:"code"`
		Message agent.Text      `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// say adds a line.
func (t *talk) say(line any) {
	b, err := json.Marshal(line)
	if err != nil {
		t.fail(task.Fail(task.InfraInternal, "a line to the agent could not be written", err))
		return
	}
	t.Words(append(b, '\n'))
}

// ask sends our next request.
func (t *talk) ask(s step, method string, params any) {
	t.number++
	t.step = s
	t.say(struct {
		Version string `json:"jsonrpc"`
		ID      int    `json:"id"`
		Method  string `json:"method"`
		Params  any    `json:"params"`
	}{"2.0", t.number, method, params})
}

// fail ends the talk.
func (t *talk) fail(f *task.Failure) {
	if t.failure == nil {
		t.failure = f
	}
	t.step = over
}

func (t *talk) failed(text string) { t.fail(task.Fail(task.AgentFailed, text, nil)) }

// Line implements agent.Dialect.
func (t *talk) Line(line []byte, emit func(task.AgentEvent)) bool {
	var m message
	if json.Unmarshal(line, &m) != nil {
		return false
	}
	id := bytes.TrimSpace(m.ID)
	switch none := len(id) == 0 || bytes.Equal(id, []byte("null")); {
	case m.Method != "" && none:
		if m.Method != protocol.ClientMethodSessionUpdate || t.step == over {
			return true // of no interest to us
		}
		return t.update(m.Params, emit)
	case m.Method != "":
		return t.request(id, m, emit)
	case t.step != over && string(id) == strconv.Itoa(t.number):
		t.answered(m, emit)
		return true
	}
	return false
}

// request answers a request of the agent.
func (t *talk) request(id json.RawMessage, m message, emit func(task.AgentEvent)) bool {
	if len(id) > maxID || id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') {
		return false
	}
	if t.asked++; t.asked > maxAsked {
		t.flood = true
		return true
	}
	type refusal struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	}
	answer := struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  any             `json:"result,omitempty"`
		Error   *refusal        `json:"error,omitempty"`
	}{Version: "2.0", ID: id}
	switch {
	case m.Method != protocol.ClientMethodSessionRequestPermission:
	case t.run.Asks && t.step == prompt:
		if result, ok := t.question(m.Params, emit); ok {
			t.Ask(result.call, result.use, func(a task.ToolAnswer) []byte {
				answer.Result = result.choose(a)
				b, _ := json.Marshal(answer) // texts and numbers that were read as JSON
				return append(b, '\n')
			})
			return true
		}
	case t.run.Asks: // nothing is done before the prompt or after the turn
	default:
		answer.Result = t.permit(m.Params, emit)
	}
	if answer.Result == nil {
		answer.Error = &refusal{-32601, "this client has no such method"}
	}
	t.say(answer)
	return true
}

// answered takes the answer to our latest request.
func (t *talk) answered(m message, emit func(task.AgentEvent)) {
	if m.Error != nil && t.step != mode { // without the mode it asks less
		t.refused(m)
		return
	}
	switch t.step {
	case hello:
		t.greeted(m.Result)
	case session:
		t.opened(m.Result)
	case mode:
		t.choose()
	case model:
		t.prompt()
	case prompt:
		t.ended(m.Result, emit)
	case over:
	}
}

// refused ends the talk for an error that the agent answered.
func (t *talk) refused(m message) {
	said := string(m.Error.Message)
	if len(m.Error.Data) > 0 {
		said += " " + string(m.Error.Data)
	}
	if string(m.Error.Code) == "-32000" { // by the protocol: authentication is needed
		said = "it wants a sign-in: " + said
	}
	what := [...]string{hello: "to begin", session: "a session", model: "the model", prompt: "the prompt"}[t.step]
	f := agent.Failed(-1, said)
	if f.Reason == task.AgentFailed {
		f = task.Fail(task.AgentFailed, "the agent refused "+what+": "+f.Text, nil)
	}
	t.fail(f)
}

func (t *talk) greeted(result json.RawMessage) {
	var r struct {
		Version      agent.Number `json:"protocolVersion"`
		Capabilities struct {
			Load flag `json:"loadSession"`
		} `json:"agentCapabilities"`
	}
	if json.Unmarshal(result, &r) != nil || r.Version != protocol.ProtocolVersionNumber {
		t.failed("the agent speaks another version of the Agent Client Protocol than " + strconv.Itoa(protocol.ProtocolVersionNumber))
		return
	}
	t.loads = bool(r.Capabilities.Load)
	if t.run.Session == "" {
		t.ask(session, protocol.AgentMethodSessionNew, protocol.NewSessionRequest{Cwd: workspace, McpServers: []protocol.McpServer{}})
		return
	}
	t.replayed = true
	t.ask(session, protocol.AgentMethodSessionLoad, protocol.LoadSessionRequest{
		Cwd: workspace, McpServers: []protocol.McpServer{}, SessionId: protocol.SessionId(t.run.Session),
	})
}

// asking are the modes in which an agent lets its model judge what it may do, and
// the modes in which it asks us instead, which then stands in the account.
func asking() map[agent.Text]agent.Text {
	return map[agent.Text]agent.Text{"auto": "default", "agent": "workspace-write"}
}

func (t *talk) opened(result json.RawMessage) {
	var o opened
	if json.Unmarshal(result, &o) != nil {
		t.failed("the agent's session can't be read")
		return
	}
	t.replayed = false
	if t.run.Session != "" {
		o.ID = agent.Text(t.run.Session)
	}
	if o.ID == "" {
		t.failed("the agent's session has no name")
		return
	}
	t.session = o
	want := asking()[o.Modes.Current]
	for _, m := range o.Modes.Available {
		if m.ID == want && want != "" {
			t.ask(mode, protocol.AgentMethodSessionSetMode, protocol.SetSessionModeRequest{SessionId: t.id(), ModeId: protocol.SessionModeId(want)})
			return
		}
	}
	t.choose()
}

func (t *talk) id() protocol.SessionId { return protocol.SessionId(t.session.ID) }

// choose chooses the model.
func (t *talk) choose() {
	if t.model == "" || t.session.Models != nil && string(t.session.Models.Current) == t.model {
		t.prompt()
		return
	}
	for _, o := range t.session.Options {
		if o.Category == "model" {
			t.ask(model, protocol.AgentMethodSessionSetConfigOption, map[string]any{"sessionId": t.id(), "configId": o.ID, "value": t.model})
			return
		}
	}
	if t.session.Models == nil {
		t.fail(agent.Invalid("model", "this agent has no choice of models; name the model in its command line"))
		return
	}
	t.ask(model, protocol.AgentMethodSessionSetModel, map[string]any{"sessionId": t.id(), "modelId": t.model})
}

func (t *talk) prompt() {
	text := t.run.Prompt
	if t.run.Session != "" {
		text = agent.GoOn
	}
	t.ask(prompt, protocol.AgentMethodSessionPrompt, protocol.PromptRequest{
		SessionId: t.id(), Prompt: []protocol.ContentBlock{protocol.TextBlock(text)},
	})
}

// ended takes the end of the turn.
func (t *talk) ended(result json.RawMessage, emit func(task.AgentEvent)) {
	t.flush(emit)
	var r struct {
		Stop  agent.Text `json:"stopReason"`
		Usage *struct {
			Input  agent.Number `json:"inputTokens"`
			Output agent.Number `json:"outputTokens"`
			Read   agent.Number `json:"cachedReadTokens"`
			Write  agent.Number `json:"cachedWriteTokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(result, &r) != nil {
		t.failed("the end of the agent's turn can't be read")
		return
	}
	if u := r.Usage; u != nil {
		emit(task.AgentEvent{Type: "usage", Usage: &task.ModelUsage{
			Requests: 1, Input: int64(u.Input + u.Read + u.Write), Output: int64(u.Output), Cached: int64(u.Read),
		}})
	}
	if r.Stop != agent.Text(protocol.StopReasonEndTurn) {
		short, _ := agent.Clip(string(r.Stop), maxID)
		t.failed("the agent's turn ended early: " + strconv.Quote(short))
	}
	t.step = over
}

// Hopeless implements agent.Dialect.
func (t *talk) Hopeless() *task.Failure {
	if !t.flood {
		return nil
	}
	return task.Fail(task.AgentFailed, "the agent asks its client without end, and was ended", nil)
}

// End implements agent.Dialect. Once the turn has ended, how the process ended
// does not count.
func (t *talk) End(exit int, notes string) stage.HarnessEnd {
	var end stage.HarnessEnd
	if t.loads {
		end.Session = string(t.session.ID)
	}
	switch {
	case t.Hopeless() != nil:
		end.Failure = t.Hopeless()
	case t.failure != nil:
		end.Failure = t.failure
	case t.step != over:
		if end.Failure = agent.Failed(exit, notes); end.Failure.Reason == task.AgentFailed {
			end.Failure = task.Fail(task.AgentFailed, "the agent ended before its turn did: "+end.Failure.Text, nil)
		}
	}
	return end
}

// flag is a truth value out of hostile JSON: anything but true is false.
type flag bool

// UnmarshalJSON reads any JSON value.
func (f *flag) UnmarshalJSON(b []byte) error {
	*f = string(b) == "true"
	return nil
}
