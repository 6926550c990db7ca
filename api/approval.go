package api

import (
	"encoding/json"
	"time"
)

// Approval is a question in the inbox and its answer. What is asked, and what
// the commands say of themselves, are words from inside a sandbox.
type Approval struct {
	ID        string           `json:"id"`
	Kind      string           `json:"kind" doc:"egress, tool or action."`
	State     string           `json:"state" doc:"waiting, allowed, denied, expired, withdrawn or void."`
	Task      string           `json:"task"`
	Project   string           `json:"project,omitempty"`
	Stage     string           `json:"stage,omitempty"`
	Attempt   int              `json:"attempt,omitempty"`
	Sandbox   string           `json:"sandbox,omitempty"`
	Requester string           `json:"requester" doc:"Who asked for the task."`
	Egress    *EgressAsk       `json:"egress,omitempty" doc:"Of kind egress: the connection."`
	Tool      *ToolAsk         `json:"tool,omitempty" doc:"Of kind tool: the use of a tool."`
	Action    json.RawMessage  `json:"action,omitempty" doc:"Of kind action: the change."`
	Digest    string           `json:"digest" doc:"Of exactly what is approved."`
	Commands  []RunningCommand `json:"commands" nullable:"false" doc:"That ran in the sandbox when it was asked."`
	Count     int              `json:"count" doc:"How often it was asked while it waited."`
	Admins    bool             `json:"admins,omitempty" doc:"Only administrators may answer."`
	AskedAt   time.Time        `json:"askedAt"`
	ExpiresAt time.Time        `json:"expiresAt"`
	Scope     string           `json:"scope,omitempty" doc:"Of the answer: once, task or project."`
	Decision  string           `json:"decision,omitempty" doc:"The standing answer that it made, or that answered it."`
	DecidedBy string           `json:"decidedBy,omitempty"`
	DecidedAt *time.Time       `json:"decidedAt,omitempty"`
	Used      bool             `json:"used,omitempty" doc:"An answer for one use was taken."`
}

// EgressAsk is a connection that waits.
type EgressAsk struct {
	Name     string `json:"name,omitempty" maxLength:"253"`
	Address  string `json:"address,omitempty" maxLength:"64"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol" enum:"tls,http,tcp" doc:"What would pass: tls, spliced; http, whose requests are seen; tcp, any bytes."`
	Seen     string `json:"seen" enum:"tls,http,tcp" doc:"What its first bytes are; tcp: anything else, or nothing."`
	Method   string `json:"method,omitempty" maxLength:"32" doc:"Of plain HTTP."`
	Path     string `json:"path,omitempty" maxLength:"4096" doc:"Of plain HTTP, without the query."`
}

// ToolAsk is the use of a tool that waits.
type ToolAsk struct {
	Agent  string          `json:"agent"`
	Tool   string          `json:"tool" doc:"As its agent calls it."`
	Kind   string          `json:"kind,omitempty" doc:"shell, read, write, edit, search or fetch; absent: another."`
	Argv   []string        `json:"argv,omitempty" doc:"Whole, where it runs a command."`
	Dir    string          `json:"dir,omitempty" doc:"Where the command runs."`
	Input  json.RawMessage `json:"input,omitempty"`
	Before string          `json:"before,omitempty" doc:"Digest of the file that would be changed, as it is; another one is not what is approved."`
	ByName bool            `json:"byName,omitempty" doc:"An answer beyond one use is for the tool, whatever its input."`
}

// RunningCommand is a command that ran when something was asked.
type RunningCommand struct {
	ID        string   `json:"id"`
	Processes []string `json:"processes,omitempty" doc:"As they call themselves."`
}

// ApprovalList is questions, newest first.
type ApprovalList struct {
	Approvals []Approval `json:"approvals" nullable:"false"`
}

// ApprovalAnswer answers a question.
type ApprovalAnswer struct {
	Allow      bool   `json:"allow"`
	Scope      string `json:"scope,omitempty" enum:"once,task,project" doc:"Default: once; of a connection that is denied: task."`
	ForSeconds int64  `json:"forSeconds,omitempty" minimum:"0" maximum:"7776000" doc:"How long a decision stands. Default: as long as the task, or a day for a project."`
}

// Decision is an answer that stands.
type Decision struct {
	ID        string     `json:"id"`
	Approval  string     `json:"approval" doc:"The question that it answered first."`
	Kind      string     `json:"kind"`
	Allow     bool       `json:"allow"`
	Scope     string     `json:"scope" doc:"task or project."`
	Task      string     `json:"task" doc:"Where it was decided."`
	Project   string     `json:"project,omitempty"`
	Stage     string     `json:"stage,omitempty"`
	Host      string     `json:"host,omitempty"`
	Port      uint16     `json:"port,omitempty"`
	Protocol  string     `json:"protocol,omitempty"`
	Tool      string     `json:"tool,omitempty"`
	Digest    string     `json:"digest,omitempty" doc:"The tool's input that it is for; absent: any."`
	By        string     `json:"by"`
	From      time.Time  `json:"from"`
	Until     *time.Time `json:"until,omitempty" doc:"Absent: as long as its task."`
	Withdrawn *time.Time `json:"withdrawn,omitempty"`
	Ended     string     `json:"ended,omitempty" doc:"Who withdrew it."`
}

// DecisionList is decisions, newest first.
type DecisionList struct {
	Decisions []Decision `json:"decisions" nullable:"false"`
}

// DecisionEnd says what became of a decision that was withdrawn.
type DecisionEnd struct {
	ID  string `json:"id"`
	Cut bool   `json:"cut" doc:"Every machine has cut what passed under it."`
}

// AskRequest is a gateway's question about a connection that waits.
type AskRequest struct {
	Sandbox  string    `json:"sandbox" maxLength:"64"`
	Use      string    `json:"use" maxLength:"128" doc:"Names the connection."`
	Approval string    `json:"approval,omitempty" maxLength:"64" doc:"The entry that an earlier turn gave."`
	Egress   EgressAsk `json:"egress"`
}

// AskAnswer is one turn of such a question.
type AskAnswer struct {
	State    string `json:"state" doc:"waiting: ask again at once. allowed, or how it was refused."`
	Approval string `json:"approval,omitempty" doc:"The entry; absent where a decision answered."`
	ID       string `json:"id,omitempty" doc:"Of what allowed: the decision, or the entry for one use."`
	Once     bool   `json:"once,omitempty"`
	Reason   string `json:"reason,omitempty"`
}
