package api

// The states of an agent on a worker.
const (
	AgentInstalling = "installing"
	AgentInstalled  = "installed"
	AgentFailed     = "failed"
)

// AgentInstallRequest asks for an agent's program to be installed.
type AgentInstallRequest struct {
	Name    string `json:"name" minLength:"1" maxLength:"64" doc:"claude, codex, gemini or opencode."`
	Version string `json:"version,omitempty" maxLength:"64" doc:"Empty: the one this release was tried with."`
}

// InstalledAgent is one version of an agent's program on one worker.
type InstalledAgent struct {
	Worker  string `json:"worker"`
	Name    string `json:"name"`
	Version string `json:"version"`
	State   string `json:"state" doc:"installing, installed or failed."`
	Pinned  bool   `json:"pinned" doc:"The version this release was tried with; its digest is part of the release."`
	SHA512  string `json:"sha512,omitempty" doc:"Base64, of the package."`
	Size    int64  `json:"size,omitempty" doc:"Bytes, unpacked."`
	Done    int64  `json:"done,omitempty" doc:"Bytes fetched, while installing."`
	Total   int64  `json:"total,omitempty" doc:"Bytes to fetch; 0: not known yet."`
	Reason  string `json:"reason,omitempty" doc:"Of failed."`
	Text    string `json:"text,omitempty" doc:"Of failed, in words."`
}

// InstalledAgentList lists the agents of the workers that answered.
type InstalledAgentList struct {
	Agents []InstalledAgent `json:"agents" nullable:"false"`
	Lost   []string         `json:"lost" nullable:"false" doc:"Workers that did not answer."`
}

// AgentRemoval says where an agent was removed.
type AgentRemoval struct {
	Workers []string `json:"workers" nullable:"false"`
	Lost    []string `json:"lost" nullable:"false" doc:"Workers that did not answer, and may still have it."`
}
