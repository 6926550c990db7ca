package link

import "github.com/cofferdam/cofferdam/internal/task"

// MaxAgents is how many agents a worker may name.
const MaxAgents = 1000

// The states of an agent on a worker.
const (
	AgentInstalling = "installing"
	AgentInstalled  = "installed"
	AgentFailed     = "failed"
)

// Agent is one version of one agent's program on a worker.
type Agent struct {
	Name    string      `json:"name"`
	Version string      `json:"version"`
	State   string      `json:"state"`
	Pinned  bool        `json:"pinned"`           // the version this release was tried with
	SHA512  string      `json:"sha512,omitempty"` // base64, of the package
	Size    int64       `json:"size,omitempty"`   // bytes unpacked
	Done    int64       `json:"done,omitempty"`   // bytes fetched, while installing
	Total   int64       `json:"total,omitempty"`  // bytes to fetch; 0: not known yet
	Reason  task.Reason `json:"reason,omitempty"` // of failed
	Text    string      `json:"text,omitempty"`   // of failed, in words
}

// AgentList answers a request for the worker's agents.
type AgentList struct {
	Agents []Agent `json:"agents"`
}

// AgentRequest asks for an agent to be installed; an empty version is the one
// that the worker's release was tried with.
type AgentRequest struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}
