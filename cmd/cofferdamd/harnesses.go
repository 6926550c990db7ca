package main

import (
	"github.com/cofferdam/cofferdam/internal/agent"
	"github.com/cofferdam/cofferdam/internal/agent/acp"
	"github.com/cofferdam/cofferdam/internal/agent/claude"
	"github.com/cofferdam/cofferdam/internal/agent/codex"
	"github.com/cofferdam/cofferdam/internal/agent/gemini"
	"github.com/cofferdam/cofferdam/internal/agent/opencode"
)

// harnesses are the agents that run inside a sandbox.
func harnesses() agent.Set {
	return agent.Set{"acp": acp.New, "claude": claude.New, "codex": codex.New, "gemini": gemini.New, "opencode": opencode.New}
}
