package task

import "time"

// State is where a task stands. The zero value is not a state.
type State string

// The task states of design.md §5.
const (
	Queued         State = "queued"
	Running        State = "running"
	Waiting        State = "waiting"
	Succeeded      State = "succeeded"
	Failed         State = "failed"
	StateCancelled State = "cancelled"
)

// Ended says whether the state is final.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == StateCancelled }

// CanBecome says whether a task may move from s to next.
func (s State) CanBecome(next State) bool {
	switch s {
	case "":
		return next == Queued
	case Queued:
		return next == Running || next.Ended() && next != Succeeded
	case Running:
		return next == Waiting || next.Ended()
	case Waiting:
		return next == Running || next.Ended()
	}
	return false
}

// StageName names one of the nine stages.
type StageName string

// The stages, in their order.
const (
	Admit     StageName = "admit"
	Provision StageName = "provision"
	Checkout  StageName = "checkout"
	Setup     StageName = "setup"
	Agent     StageName = "agent"
	Export    StageName = "export"
	Verify    StageName = "verify"
	Act       StageName = "act"
	Close     StageName = "close"
)

// StageNames returns the nine stages in order.
func StageNames() []StageName {
	return []StageName{Admit, Provision, Checkout, Setup, Agent, Export, Verify, Act, Close}
}

// StageState is where a stage stands.
type StageState string

// The stage states.
const (
	StagePending   StageState = "pending"
	StageRunning   StageState = "running"
	StageSucceeded StageState = "succeeded"
	StageFailed    StageState = "failed"
	StageSkipped   StageState = "skipped"   // nothing to do
	StageCancelled StageState = "cancelled" // ended by a cancel before it was done
)

// Digest is "sha256:" followed by 64 lowercase hex digits.
type Digest string

// Spec is what a requester asked for. It never changes once admitted.
type Spec struct {
	Prompt string    `json:"prompt,omitempty"`
	Repo   Repo      `json:"repo"`
	Agent  AgentSpec `json:"agent"`
	Setup  string    `json:"setup,omitempty"`  // shell command run before the agent; empty: none
	Verify string    `json:"verify,omitempty"` // shell command that judges the patch; empty: the verify stage is skipped
	Policy string    `json:"policy,omitempty"` // the policy file's text (YAML); empty: nothing is allowed

	Project string   `json:"project,omitempty"` // whose policy layer applies; empty: none
	Report  string   `json:"report,omitempty"`  // path of the verify command's JUnit XML, relative to the workspace; empty: its exit code is the report
	Files   []string `json:"files,omitempty"`   // globs of further files to keep, relative to the agent's workspace
}

// Repo names the source. Exactly one of URL and Bundle is set.
type Repo struct {
	URL    string `json:"url,omitempty"`    // https URL, cloned inside the sandbox through the gateway
	Bundle Digest `json:"bundle,omitempty"` // a git bundle uploaded before
	Name   string `json:"name,omitempty"`   // for people: the path or URL the user gave
	Ref    string `json:"ref,omitempty"`    // branch, tag or commit; empty: HEAD
	// Credential is lent to the checkout stage for the URL's host; empty: what the
	// policy says under checkout.credential, or none.
	Credential string `json:"credential,omitempty"`
}

// Task is one request and what became of it.
type Task struct {
	ID             string     `json:"id"` // "t-" and 16 characters of lowercase base32
	State          State      `json:"state"`
	Reason         Reason     `json:"reason"`
	Text           string     `json:"text,omitempty"` // the reason in words
	RequestedBy    string     `json:"requestedBy"`
	Repo           string     `json:"repo"`
	Ref            string     `json:"ref"`
	Commit         string     `json:"commit"`
	Worker         string     `json:"worker"`
	PolicyDigest   Digest     `json:"policyDigest"`
	IdempotencyKey string     `json:"-"`
	Attempt        int        `json:"attempt"`
	Spec           Spec       `json:"-"`
	Layers         Layers     `json:"-"` // as they were when the task was admitted
	Stages         []Stage    `json:"stages"`
	Outputs        []Output   `json:"outputs"`
	Actions        []Action   `json:"actions"`
	Usage          Usage      `json:"usage"`
	CreatedAt      time.Time  `json:"createdAt"`
	EndedAt        *time.Time `json:"endedAt,omitempty"`
}

// Stage is the latest run of one stage.
type Stage struct {
	Name      StageName  `json:"name"`
	State     StageState `json:"state"`
	Reason    Reason     `json:"reason"`
	Text      string     `json:"text,omitempty"`
	Attempts  int        `json:"attempts"`          // how often it was started
	Sandbox   string     `json:"sandbox,omitempty"` // the sandbox of the latest run
	ExitCode  *int       `json:"exitCode,omitempty"`
	Round     int        `json:"round,omitempty"` // of the attempt, from 1; 0: not told
	StartedAt *time.Time `json:"startedAt,omitempty"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
}

// StageRun is one run of one stage: a round of an attempt.
type StageRun struct {
	Attempt int // of the task, from 1
	Stage
}

// Output is a thing the task leaves, kept by hash.
type Output struct {
	Name   string   `json:"name"` // "patch", "report", "log.agent", …
	Kind   string   `json:"kind"` // "patch", "bundle", "report", "log", "file", "base"
	Digest Digest   `json:"digest"`
	Size   int64    `json:"size"`           // bytes
	Flags  []string `json:"flags"`          // what people should know: "empty", "executes-on-open", …
	Path   []byte   `json:"path,omitempty"` // of a kept file: its bytes as they were in the workspace

	Removed *time.Time `json:"removed,omitempty"` // when its bytes were removed; nil: they are there

	Findings []Finding   `json:"findings,omitempty"` // of a patch: in what it may bite, the worst first
	Verdict  FlagVerdict `json:"verdict,omitempty"`  // of a patch: what they come to; empty: nobody looked
}

// Action is an outside effect. None exists yet; the list is always empty.
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
	EgressAllowed int     `json:"egressAllowed"` // connections
	EgressDenied  int     `json:"egressDenied"`
	BytesIn       int64   `json:"bytesIn"`  // into sandboxes, through the gateway
	BytesOut      int64   `json:"bytesOut"` // out of sandboxes, through the gateway

	Model ModelUsage `json:"model"`
}

// Event is one thing that happened to a task, in order, for those who watch.
type Event struct {
	Seq  int64     `json:"seq"` // per task, from 1, without gaps
	Task string    `json:"task"`
	Time time.Time `json:"time"`
	Type string    `json:"type"` // "task", "stage", "output", "egress", "agent", "files"
	Data any       `json:"data"` // a Task without lists, a Stage, an Output, an EgressRecord, an AgentEvent or a FileDenial
}
