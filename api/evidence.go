package api

import "time"

// Freezing asks for a sandbox to be kept as evidence.
type Freezing struct {
	Reason string `json:"reason,omitempty" maxLength:"1024" doc:"For the record and for who looks later."`
}

// FrozenSandbox is a sandbox that is kept as evidence.
type FrozenSandbox struct {
	Sandbox  string    `json:"sandbox"`
	Task     string    `json:"task,omitempty"`
	Worker   string    `json:"worker"`
	Reason   string    `json:"reason,omitempty"`
	By       string    `json:"by"`
	FrozenAt time.Time `json:"frozenAt"`
	State    string    `json:"state,omitempty" doc:"Of the sandbox when it was frozen: live or dead."`
	Ending   bool      `json:"ending,omitempty" doc:"Its task is being ended as cancelled."`
}

// FrozenList lists the sandboxes that are kept.
type FrozenList struct {
	Sandboxes []FrozenSandbox `json:"sandboxes" nullable:"false"`
}
