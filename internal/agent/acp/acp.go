// Package acp runs any agent that speaks the Agent Client Protocol: the task
// names its command line, and we are its client over the command's standard
// input and output.
//
// Words. A turn is what the agent does for one prompt; a task has one. A talk is
// all that is said for it, from "initialize" to the answer to the prompt.
//
// What we say is a function of the prompt and of what the agent wrote before, and
// of nothing else: no time, no chance, and each request waits for the answer to
// the one before. So a client that was killed reads the command's output again
// from its beginning, says the same bytes again, of which those are dropped that
// were taken, and goes on in the middle of a turn.
//
// The agent is hostile. It is offered no file system and no terminal of ours;
// what it asks to be allowed is allowed, because the sandbox is the boundary, and
// is told as an event. Where policy says something of tools, each is asked about
// instead, and what is said after a question waits for its answer; what an agent
// does without asking is bounded by the sandbox alone. How much it may ask is
// limited.
//
// Not promised: that a talk survives a change of what this package says, such as
// an upgrade. Then the agent sees half a line, and the attempt fails.
package acp

import (
	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/catalog"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// workspace is where a session works.
const workspace = "/workspace"

// Harness is a stage.Harness.
type Harness struct {
	spec task.AgentSpec
	pack string
}

// New checks the spec: Argv is the agent's command line, Version the installed
// agent that it is a part of, Provider whose models it asks.
func New(spec task.AgentSpec) (stage.Harness, error) {
	h := &Harness{spec: spec}
	if len(spec.Argv) == 0 || spec.Argv[0] == "" {
		return nil, agent.Invalid("argv", "acp needs the agent's command line")
	}
	if _, ok := spec.ProviderOf(); !ok {
		switch {
		case spec.Provider != "":
			return nil, agent.Invalid("provider", "%q is not known; there are anthropic, openai and google", spec.Provider)
		case spec.Credential != "":
			return nil, agent.Invalid("credential", "whose models it is for is not said; name the provider")
		case spec.ModelURL != "":
			return nil, agent.Invalid("modelURL", "whose models are there is not said; name the provider")
		}
	}
	if spec.Version != "" {
		row, version, err := catalog.Parse(spec.Version)
		if err != nil {
			return nil, agent.Invalid("version", "acp takes the installed agent that its command line runs: %v", err)
		}
		h.pack = row.Name + "@" + version
	}
	return h, nil
}

// Package implements stage.Harness.
func (h *Harness) Package() string { return h.pack }

// baseURLs are the variables by which tools are told where a provider's API is.
func baseURLs() map[string]string {
	return map[string]string{"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL", "google": "GOOGLE_GEMINI_BASE_URL"}
}

// Start implements stage.Harness. The prompt is said, not given.
func (h *Harness) Start(run stage.HarnessRun) (stage.HarnessStart, error) {
	start := stage.HarnessStart{Argv: h.spec.Argv, Stdin: true}
	if p, ok := h.spec.ProviderOf(); ok {
		start.Env = []string{p.Env + "=" + agent.Key(run), baseURLs()[p.Name] + "=" + p.URL}
	}
	return start, nil
}

// Read implements stage.Harness. What it returns is a stage.HarnessSpeaker.
func (h *Harness) Read(run stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessReader {
	return Speak(Peer{Name: h.spec.Name, Model: h.spec.Model}, run, emit)
}

// Peer is an agent that speaks the protocol.
type Peer struct {
	Name   string // for people
	Model  string // to be chosen; empty: the agent's own
	Titled bool   // the title of a command that it asks about is the command
}

// Speak begins a talk with a peer.
func Speak(p Peer, run stage.HarnessRun, emit func(task.AgentEvent)) stage.HarnessAsker {
	t := newTalk(p.Model, run)
	t.peer = p
	return &speaker{Reader: agent.NewReader(t, emit), talk: t}
}

// speaker is a stage.HarnessAsker.
type speaker struct {
	*agent.Reader
	talk *talk
}

// Say implements stage.HarnessSpeaker.
func (s *speaker) Say() []byte { return s.talk.Said() }

// Done implements stage.HarnessSpeaker.
func (s *speaker) Done() bool { return s.talk.step == over && s.talk.Whole() }

// Asks implements stage.HarnessAsker.
func (s *speaker) Asks() []stage.HarnessAsk { return s.talk.Asks() }

// Answer implements stage.HarnessAsker.
func (s *speaker) Answer(number int, a task.ToolAnswer) { s.talk.Answer(number, a) }
