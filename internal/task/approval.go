package task

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// ApprovalKind says what a question is about. The zero kind is none.
type ApprovalKind string

// The kinds of questions.
const (
	AskEgress ApprovalKind = "egress" // a connection that no rule matches; What is an EgressAsk
	AskTool   ApprovalKind = "tool"   // a tool that an agent wants to use; What is a ToolAsk
	AskAction ApprovalKind = "action" // a change of the outside world
)

// ApprovalState is where a question stands. Only AskedAllowed allows, and
// only what was asked.
type ApprovalState string

// The states of a question. All but waiting are final, but that an answer which
// allowed may be withdrawn.
const (
	AskedWaiting   ApprovalState = "waiting"
	AskedAllowed   ApprovalState = "allowed"
	AskedDenied    ApprovalState = "denied"
	AskedExpired   ApprovalState = "expired"   // nobody answered in time
	AskedWithdrawn ApprovalState = "withdrawn" // who asked is gone, or a person took the answer back
	AskedVoid      ApprovalState = "void"      // what was asked for changed
)

// ApprovalScope says how far an answer reaches. The zero scope reaches nothing.
type ApprovalScope string

// The scopes of an answer.
const (
	ScopeOnce    ApprovalScope = "once"    // one use of exactly what was asked
	ScopeTask    ApprovalScope = "task"    // the same in this stage of this task
	ScopeProject ApprovalScope = "project" // the same in this stage of every task of the project
)

// Question is what is asked of a person before something happens.
type Question struct {
	// Key names the question: asked again with the same key and the same What it
	// is the same entry, also after a restart of who asks.
	Key       string
	Kind      ApprovalKind
	Task      string
	Project   string // of the task; empty: none
	Stage     StageName
	Attempt   int
	Sandbox   string
	Requester string          // who asked for the task
	What      json.RawMessage // of the kind; see Canonical
	Commands  []RunningCommand
	Wait      time.Duration // for an answer
	Admins    bool          // policy says that the requester may not answer
}

// RunningCommand is a command of the sandbox that ran when something was asked.
// What its processes say of themselves is the workload's word.
type RunningCommand struct {
	ID        string   `json:"id"`
	Processes []string `json:"processes,omitempty"`
}

// Approval is a question in the inbox and its answer. The zero Approval allows
// nothing.
type Approval struct {
	ID        string           `json:"id"` // "ap-" and 16 characters of lowercase base32
	Kind      ApprovalKind     `json:"kind"`
	Task      string           `json:"task"`
	Project   string           `json:"project,omitempty"`
	Stage     StageName        `json:"stage,omitempty"`
	Attempt   int              `json:"attempt,omitempty"`
	Sandbox   string           `json:"sandbox,omitempty"`
	Requester string           `json:"requester"`
	What      json.RawMessage  `json:"what"`
	Digest    Digest           `json:"digest"` // of What, which is what is approved
	Commands  []RunningCommand `json:"commands,omitempty"`
	Count     int              `json:"count"` // how often it was asked while it waited
	Admins    bool             `json:"admins,omitempty"`
	AskedAt   time.Time        `json:"askedAt"`
	ExpiresAt time.Time        `json:"expiresAt"` // of the question; an answer for one use is good until then as well

	State     ApprovalState `json:"state"`
	Scope     ApprovalScope `json:"scope,omitempty"`
	Decision  string        `json:"decision,omitempty"` // the standing answer that it made
	DecidedBy string        `json:"decidedBy,omitempty"`
	DecidedAt *time.Time    `json:"decidedAt,omitempty"`
	UsedBy    string        `json:"usedBy,omitempty"` // who took an answer for one use
	Told      bool          `json:"-"`                // the audit has this state
}

// Standing is an answer that lasts: what is asked for again is answered by it
// without a person. The zero Standing answers nothing.
type Standing struct {
	ID        string        `json:"id"` // "d-" and 16 characters of lowercase base32
	Approval  string        `json:"approval"`
	Kind      ApprovalKind  `json:"kind"`
	Scope     ApprovalScope `json:"scope"` // task or project
	Task      string        `json:"task"`  // where it was decided
	Project   string        `json:"project,omitempty"`
	Stage     StageName     `json:"stage,omitempty"`
	Requester string        `json:"requester"` // of that task
	Match     ApprovalMatch `json:"match"`
	Allow     bool          `json:"allow"`
	By        string        `json:"by"`
	From      time.Time     `json:"from"`
	Until     *time.Time    `json:"until,omitempty"` // nil: as long as its task, which a project's never is
	Withdrawn *time.Time    `json:"withdrawn,omitempty"`
	Ended     string        `json:"ended,omitempty"` // by whom it was withdrawn
	Told      bool          `json:"-"`               // the audit has this state
}

// Lasts says whether the answer counts at a moment.
func (s Standing) Lasts(now time.Time) bool {
	return s.ID != "" && s.Withdrawn == nil && (s.Until != nil && now.Before(*s.Until) || s.Until == nil && s.Scope == ScopeTask)
}

// ApprovalMatch is what a standing answer is about. The zero match is about
// nothing.
type ApprovalMatch struct {
	Host     string `json:"host,omitempty"` // a name or a literal address
	Port     uint16 `json:"port,omitempty"`
	Protocol string `json:"protocol,omitempty"` // of the rule that it stands for

	Tool   string `json:"tool,omitempty"`
	Digest Digest `json:"digest,omitempty"` // of the very question; empty: any use of the tool
	ByName bool   `json:"byName,omitempty"` // the tool alone, whatever its input
}

// MatchOf is what an answer to a question stands for beyond one use; the zero
// match for a kind whose answers never do.
func MatchOf(kind ApprovalKind, what json.RawMessage) ApprovalMatch {
	switch kind {
	case AskEgress:
		var e EgressAsk
		if json.Unmarshal(what, &e) == nil {
			return ApprovalMatch{Host: e.Host(), Port: e.Port, Protocol: e.Protocol}
		}
	case AskTool:
		var t ToolAsk
		if json.Unmarshal(what, &t) != nil || t.Tool == "" {
			return ApprovalMatch{}
		}
		if t.ByName {
			return ApprovalMatch{Tool: t.Tool, ByName: true}
		}
		return ApprovalMatch{Tool: t.Tool, Digest: DigestOf(what)}
	case AskAction:
	}
	return ApprovalMatch{}
}

// Covers says whether an answer with the match stands for a question.
func (m ApprovalMatch) Covers(kind ApprovalKind, what json.RawMessage) bool {
	return m != (ApprovalMatch{}) && m == MatchOf(kind, what)
}

// Rule is the rule that an allowing answer of a sandbox's connection stands
// for; false where it is about something else.
func (m ApprovalMatch) Rule(id string) (Rule, bool) {
	if m.Host == "" || m.Port == 0 || m.Protocol == "" {
		return Rule{}, false
	}
	return Rule{ID: RuleAsked + id, Host: m.Host, Ports: []uint16{m.Port}, Protocol: m.Protocol, Layer: LayerPerson}, true
}

// RuleAsked is what the ids of rules begin with that follow from an answer;
// the id of the decision, or of the approval for one use, follows.
const RuleAsked = "ask/"

// RuleLogOnly is the id of the rule under which unknown connections pass in
// log-only mode.
const RuleLogOnly = "log-only"

// EgressAsk is a connection that is asked for. Exactly one of Name and Address
// is set. The words are the sandbox's.
type EgressAsk struct {
	Name     string `json:"name,omitempty"`
	Address  string `json:"address,omitempty"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`         // what would pass: "tls", "http" or "tcp"
	Seen     string `json:"seen"`             // what its first bytes are: "tls", "http", or "tcp" for anything else
	Method   string `json:"method,omitempty"` // of plain HTTP
	Path     string `json:"path,omitempty"`
}

// Host is the name or the literal address.
func (e EgressAsk) Host() string {
	if e.Name != "" {
		return e.Name
	}
	return e.Address
}

// Held is a connection that waits at a gateway for an answer.
type Held struct {
	Sandbox string
	Use     string // names the connection: who takes an answer for one use
	EgressAsk
}

// HeldAnswer is what became of a held connection. The zero answer denies.
type HeldAnswer struct {
	Allow  bool
	Once   bool   // for this connection, and of plain HTTP for its request, alone
	ID     string // of the decision, or of the approval for one use
	Reason Reason // of a refusal
}

// ToolAsk is the use of a tool that is asked for. The words are the agent's.
type ToolAsk struct {
	Agent string          `json:"agent"`
	Tool  string          `json:"tool"` // as its agent calls it
	Kind  ToolKind        `json:"kind,omitempty"`
	Argv  []string        `json:"argv,omitempty"` // whole, where the tool runs a command
	Dir   string          `json:"dir,omitempty"`  // where the command runs
	Input json.RawMessage `json:"input,omitempty"`
	// Before is the file that is changed as it is now; changed otherwise meanwhile,
	// it is not what was approved.
	Before Digest `json:"before,omitempty"`
	// ByName says that nothing in the input can run another program, so that an
	// answer may stand for the tool by its name.
	ByName bool `json:"byName,omitempty"`
}

// Canonical is the one spelling of what is asked, whose digest is approved. v
// is an EgressAsk, a ToolAsk or another struct with fixed fields.
func Canonical(v any) (json.RawMessage, error) { return json.Marshal(v) }

// DigestOf names bytes.
func DigestOf(b []byte) Digest {
	sum := sha256.Sum256(b)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// ApprovalAnswer is what a person says to a question.
type ApprovalAnswer struct {
	Allow bool
	Scope ApprovalScope
	For   time.Duration // of a scope beyond once; 0: as the scope's default
	By    string
	Admin bool // who answers is an administrator
}

// Unknown says what becomes of the connections of a stage that no rule matches.
// The zero Unknown denies them.
type Unknown struct {
	Mode    UnknownMode   `json:"mode,omitempty"`
	Wait    time.Duration `json:"wait,omitempty"`    // for an answer
	Admins  bool          `json:"admins,omitempty"`  // only administrators may answer
	Inspect bool          `json:"inspect,omitempty"` // a higher layer forbids that what passes is not looked into
	// Within are lists of rules of higher layers; what passes lies within each.
	Within [][]Rule `json:"within,omitempty"`
}

// UnknownMode is one of three; the zero mode denies.
type UnknownMode string

// The modes, from the strictest on.
const (
	UnknownDeny UnknownMode = ""
	UnknownAsk  UnknownMode = "ask" // a person is asked
	UnknownLog  UnknownMode = "log" // they pass and are recorded
)

// IsZero says whether everything unknown is denied.
func (u Unknown) IsZero() bool { return u.Mode == UnknownDeny }
