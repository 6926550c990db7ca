package task

import "time"

// FileRules say what the agent stage may do with paths of the workspace.
// Paths are relative to it, clean, with "/" between names and without
// patterns; each stands for itself and all beneath it. The more specific path
// wins. The zero value protects what ProtectedFiles names and nothing else.
type FileRules struct {
	Writable []string `json:"writable,omitempty"` // takes a protection away: a widening, told in the receipt
	ReadOnly []string `json:"readOnly,omitempty"`
	Hidden   []string `json:"hidden,omitempty"` // neither seen nor read
}

// ProtectedFiles are the paths that are read-only unless a policy widens them:
// what would run on another machine when the workspace is opened, committed or
// given to an agent. A path that is absent can't be made either.
func ProtectedFiles() []string {
	return []string{
		".git/config", ".git/config.worktree", ".git/hooks", ".git/info/attributes", ".gitattributes", ".gitmodules",
		".claude", ".mcp.json", ".codex", ".gemini", ".opencode", "opencode.json", ".cursor", ".aider.conf.yml",
		".vscode", ".idea", ".devcontainer", ".envrc", ".cofferdam",
	}
}

// FileDenial is one write that the file rules refused, as the sandbox's kernel
// saw it.
type FileDenial struct {
	Seq       int64     `json:"seq"` // per sandbox, from 1
	Time      time.Time `json:"time"`
	Sandbox   string    `json:"sandbox"`
	Operation string    `json:"operation"` // "open", "rename", "unlink", "mkdir", "link", "chmod", …
	Path      string    `json:"path"`      // as the program gave it, made absolute
	Error     string    `json:"error"`     // "EROFS", "EACCES", "EBUSY", "EPERM"
	Program   string    `json:"program,omitempty"`
	PID       int       `json:"pid,omitempty"`   // inside the sandbox
	Count     int64     `json:"count,omitempty"` // this record stands for so many alike after the first; 0: for one
}
