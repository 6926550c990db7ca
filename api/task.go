package api

import (
	"encoding/json"
	"time"
)

// The task states. Succeeded, Failed and Cancelled are final.
const (
	Queued    = "queued"
	Running   = "running"
	Waiting   = "waiting"
	Succeeded = "succeeded"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// TaskRequest asks for a task.
type TaskRequest struct {
	Prompt string `json:"prompt,omitempty" maxLength:"1048576" doc:"What the agent is asked to do."`
	Repo   Repo   `json:"repo" doc:"Where the source comes from."`
	Agent  Agent  `json:"agent" doc:"What works on the repository."`
	Setup  string `json:"setup,omitempty" maxLength:"65536" doc:"Shell command run before the agent."`
	Verify string `json:"verify,omitempty" maxLength:"65536" doc:"Shell command that judges the patch in a fresh sandbox."`
	Policy string `json:"policy,omitempty" maxLength:"1048576" doc:"Text of the policy file (YAML). Empty allows nothing."`

	Project string `json:"project,omitempty" maxLength:"64" doc:"The project whose policy layer counts. Empty: none."`

	Report string   `json:"report,omitempty" maxLength:"1024" doc:"Path, relative to the workspace, of the report that the verify command writes: JUnit XML, go test -json, TAP or pytest -v -rA, told apart by its bytes. - is the command's own output. Empty: its exit code is the report."`
	Files  []string `json:"files,omitempty" nullable:"false" maxItems:"64" doc:"Globs of files of the agent's workspace that are kept, such as dist/**. * stands within a part, ** for any parts."`
}

// Repo names the source. Exactly one of URL and Bundle is set.
type Repo struct {
	URL    string `json:"url,omitempty" maxLength:"4096" doc:"https URL, cloned inside the sandbox through the gateway."`
	Bundle string `json:"bundle,omitempty" maxLength:"71" doc:"Digest of a git bundle uploaded before."`
	Name   string `json:"name,omitempty" maxLength:"4096" doc:"For people: the path or URL the user gave."`
	Ref    string `json:"ref,omitempty" maxLength:"1024" doc:"Branch, tag or commit. Empty: HEAD."`

	Credential string `json:"credential,omitempty" maxLength:"64" doc:"Name of the credential that the checkout is lent for the URL's host. Empty: what the policy says under checkout.credential, or none."`
}

// Agent says what works on the repository.
type Agent struct {
	Name string   `json:"name" maxLength:"64" doc:"command (a plain command), loop, claude, codex, gemini, opencode, or acp (a command that speaks the Agent Client Protocol)."`
	Argv []string `json:"argv,omitempty" nullable:"false" maxItems:"4096" doc:"Program and arguments of agent command or acp."`

	Version    string `json:"version,omitempty" maxLength:"64" doc:"Of an agent's program. Empty: the one this release was tried with. Of acp: NAME[@VERSION] of the installed agent that its command line runs."`
	Provider   string `json:"provider,omitempty" maxLength:"64" doc:"Whose models it asks: anthropic, openai or google. Empty: the agent's own."`
	Model      string `json:"model,omitempty" maxLength:"256" doc:"As the provider names it. Empty: the agent's own default."`
	ModelURL   string `json:"modelURL,omitempty" maxLength:"4096" doc:"In place of the provider's address."`
	Credential string `json:"credential,omitempty" maxLength:"63" doc:"Name of the provider's key in the vault. Empty: the provider's name."`
	Mode       string `json:"mode,omitempty" maxLength:"16" doc:"How it asks its models: direct, gateway or auto. Empty: what the policy says, or auto."`
	MaxTurns   int    `json:"maxTurns,omitempty" minimum:"0" maximum:"10000" doc:"Of loop; 0: 50."`
}

// Task is one request and what became of it.
type Task struct {
	ID           string        `json:"id"`
	State        string        `json:"state"`
	Reason       string        `json:"reason" doc:"Reason code; empty while all is well."`
	Text         string        `json:"text,omitempty" doc:"The reason in words."`
	RequestedBy  string        `json:"requestedBy"`
	Repo         string        `json:"repo"`
	Ref          string        `json:"ref"`
	Commit       string        `json:"commit"`
	Worker       string        `json:"worker"`
	PolicyDigest string        `json:"policyDigest"`
	Attempt      int           `json:"attempt"`
	Stages       []Stage       `json:"stages" nullable:"false"`
	Outputs      []Output      `json:"outputs" nullable:"false"`
	Actions      []Action      `json:"actions" nullable:"false"`
	Project      string        `json:"project,omitempty" doc:"Whose policy layer counts."`
	Narrowed     []string      `json:"narrowed,omitempty" nullable:"false" doc:"What the repository's .cofferdam/task.yaml asked for and is not given."`
	History      []StageRun    `json:"history" nullable:"false" doc:"Every run of every stage, in order: all attempts and their rounds; only in the answer about one task."`
	Leases       []Lease       `json:"leases" nullable:"false" doc:"Credentials lent to its stages; only in the answer about one task."`
	Approvals    []Approval    `json:"approvals" nullable:"false" doc:"What was asked of persons; only in the answer about one task."`
	Budgets      []Budget      `json:"budgets,omitempty" doc:"What it may use of models, its own first; only in the answer about one task."`
	Verification *Verification `json:"verification,omitempty" doc:"What was verified of its patch; only in the answer about one task."`
	Usage        Usage         `json:"usage"`
	CreatedAt    time.Time     `json:"createdAt"`
	EndedAt      *time.Time    `json:"endedAt,omitempty"`

	Model *ModelAccess `json:"model,omitempty" doc:"How its agent asks its models; only in the answer about one task."`
}

// Ended says whether the task's state is final.
func (t Task) Ended() bool {
	return t.State == Succeeded || t.State == Failed || t.State == Cancelled
}

// Stage is the latest run of one stage.
type Stage struct {
	Name      string     `json:"name"`
	State     string     `json:"state" doc:"pending, running, succeeded, failed, skipped or cancelled."`
	Reason    string     `json:"reason"`
	Text      string     `json:"text,omitempty"`
	Attempts  int        `json:"attempts"`
	Sandbox   string     `json:"sandbox,omitempty"`
	ExitCode  *int       `json:"exitCode,omitempty"`
	StartedAt *time.Time `json:"startedAt,omitempty"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
}

// Output is a thing the task leaves, kept by hash.
type Output struct {
	Name   string   `json:"name"`
	Kind   string   `json:"kind" doc:"patch, bundle, report, evidence, tests, log, file or base."`
	Digest string   `json:"digest"`
	Size   int64    `json:"size"`
	Flags  []string `json:"flags" nullable:"false"`

	Path       string     `json:"path,omitempty" doc:"Of a kept file: its name in the workspace."`
	PathBase64 string     `json:"pathBase64,omitempty" doc:"The same, when it is not UTF-8."`
	RemovedAt  *time.Time `json:"removedAt,omitempty" doc:"When its bytes were removed; the digest stays."`

	Findings []Finding `json:"findings,omitempty" doc:"Of a patch: in what it may bite who takes it, the worst first."`
	Verdict  string    `json:"verdict,omitempty" doc:"Of a patch: what its findings come to: allow, approve (nothing outside is done with it before a person saw it) or refuse."`
}

// OutputList is what a task left.
type OutputList struct {
	Task    string   `json:"task"`
	Outputs []Output `json:"outputs" nullable:"false"`
}

// TaskRemoval is what the removal of a task came to.
type TaskRemoval struct {
	Task       string    `json:"task"`
	RemovedBy  string    `json:"removedBy" doc:"A user, or retention."`
	RemovedAt  time.Time `json:"removedAt"`
	Freed      int       `json:"freed" doc:"Blobs and folders of logs that are gone from the disk."`
	FreedBytes int64     `json:"freedBytes" doc:"Of the blobs."`
	Shared     int       `json:"shared" doc:"Blobs that stay, since other tasks refer to them."`
	Later      int       `json:"later" doc:"What is still to go; it is tried again."`
	Stays      []string  `json:"stays" nullable:"false" doc:"What is kept, and why."`
}

// Action is an effect outside.
type Action struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`
	Target  string `json:"target"`
	State   string `json:"state"`
	Receipt string `json:"receipt,omitempty"`
}

// Usage counts what a task used.
type Usage struct {
	Sandboxes     int     `json:"sandboxes"`
	WallSeconds   float64 `json:"wallSeconds"`
	EgressAllowed int     `json:"egressAllowed"`
	EgressDenied  int     `json:"egressDenied"`
	BytesIn       int64   `json:"bytesIn"`
	BytesOut      int64   `json:"bytesOut"`

	Model ModelUsage `json:"model" doc:"What its agents said that models charged for."`

	Models []ModelSpend `json:"models,omitempty" doc:"What models were used for, by name, as their servers said; only in the answer about one task."`
	USD    float64      `json:"usd,omitempty" doc:"What they cost together by the installation's prices; only in the answer about one task."`
}

// TaskList is one page of tasks, newest first.
type TaskList struct {
	Tasks []Task `json:"tasks" nullable:"false"`
	Next  string `json:"next,omitempty" doc:"Give this as before to get the next page; empty on the last."`
}

// Event is one thing that happened to a task, in order.
type Event struct {
	Seq  int64           `json:"seq" doc:"Per task, from 1, without gaps."`
	Task string          `json:"task"`
	Time time.Time       `json:"time"`
	Type string          `json:"type" doc:"task, stage, output, egress, agent or approval; others may come."`
	Data json.RawMessage `json:"data" doc:"A Task without its lists, a Stage, an Output, an EgressRecord, an AgentEvent or an Approval."`
}

// EgressRecord is one decision of the gateway, or the end of a connection.
type EgressRecord struct {
	Seq      int64     `json:"seq"`
	Conn     int64     `json:"conn"`
	Done     bool      `json:"done,omitempty"`
	Time     time.Time `json:"time"`
	Sandbox  string    `json:"sandbox"`
	Task     string    `json:"task,omitempty"`
	Stage    string    `json:"stage,omitempty"`
	Name     string    `json:"name,omitempty"`
	Address  string    `json:"address,omitempty"`
	Port     uint16    `json:"port"`
	Protocol string    `json:"protocol"`
	SNI      string    `json:"sni,omitempty"`
	Host     string    `json:"host,omitempty"`
	Verdict  string    `json:"verdict" doc:"allowed or denied."`
	Reason   string    `json:"reason,omitempty"`
	Rule     string    `json:"rule,omitempty"`
	BytesIn  int64     `json:"bytesIn,omitempty"`
	BytesOut int64     `json:"bytesOut,omitempty"`
	Method   string    `json:"method,omitempty" doc:"Of a request that was decided by itself."`
	Path     string    `json:"path,omitempty" doc:"Its path, without the query."`
	Request  int64     `json:"request,omitempty" doc:"Numbers the decided requests of a connection; 0: the record is about the connection."`
	Status   int       `json:"status,omitempty" doc:"What the far side answered, once the request is done."`
	Lease    string    `json:"lease,omitempty" doc:"The lease whose value it carried."`
	Count    int64     `json:"count,omitempty" doc:"It stands for so many alike refusals more."`
	// Commands is what ran in the sandbox then, as the control plane knows it.
	Commands []string `json:"commands,omitempty" doc:"The stage, and the calls of the agent's tools that were under way."`
	// Tokens is of a request that asked a model.
	Tokens *ModelTokens `json:"tokens,omitempty" doc:"What the model used, once the request is done."`
}

// EgressList is what the gateway decided for a task's sandboxes.
type EgressList struct {
	Records []EgressRecord `json:"records" nullable:"false"`
}

// Blob names uploaded bytes.
type Blob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// ModelUsage counts what models charged for.
type ModelUsage struct {
	Requests int64 `json:"requests"`
	Input    int64 `json:"input" doc:"Tokens, cached ones included."`
	Output   int64 `json:"output" doc:"Tokens."`
	Cached   int64 `json:"cached" doc:"Of the input tokens."`
}
