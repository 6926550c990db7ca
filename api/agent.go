package api

import "time"

// AgentEvent is one thing an agent said or did, whatever its harness. What it
// holds comes from inside a sandbox or from a model: show it escaped.
type AgentEvent struct {
	Time   time.Time   `json:"time"`
	Type   string      `json:"type" doc:"text, call, permission, result, usage or end; others may come."`
	Text   string      `json:"text,omitempty" doc:"Of text, result and end."`
	Call   string      `json:"call,omitempty" doc:"Ties a result to its call."`
	Tool   string      `json:"tool,omitempty"`
	Input  string      `json:"input,omitempty" doc:"Of a call: JSON, cut at 16 KiB."`
	Failed bool        `json:"failed,omitempty"`
	Usage  *ModelUsage `json:"usage,omitempty"`
	Cut    bool        `json:"cut,omitempty" doc:"Something was left out for its length."`
}

// AgentEventList is a page of an agent's events.
type AgentEventList struct {
	Events []AgentEvent `json:"events" nullable:"false"`
	Next   int64        `json:"next" doc:"What to pass as after for the following page."`
	More   bool         `json:"more" doc:"There is a following page already."`
}
