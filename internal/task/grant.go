package task

import "time"

// Verdict is the answer to one use of a grant. The zero value denies.
type Verdict uint8

// The verdicts.
const (
	Denied  Verdict = 0
	Allowed Verdict = 1
)

// String returns "denied" or "allowed"; anything unknown is denied.
func (v Verdict) String() string {
	if v == Allowed {
		return "allowed"
	}
	return "denied"
}

// Decision answers one use of a grant, with the rule that matched.
type Decision struct {
	Verdict Verdict
	Reason  Reason // empty when allowed
	Rule    string // the rule that matched, such as "setup.network.allow[0]"; empty when none did
	Private bool   // an operator-layer rule allows private, loopback and link-local addresses for this use

	// Inspect says that the answer holds for the connection only: each HTTP request
	// on it must be decided by itself, so TLS is terminated and nothing but HTTP passes.
	Inspect bool
	// Protocols is what may be spoken: "tls", "http", "tcp"; empty: any of them;
	// "postgres" alone: nothing else, whatever further rules say.
	Protocols []string
	// Credential names the credential that the matched rule lends to this request,
	// or to this connection of PostgreSQL;
	// empty: none.
	Credential string
	// Body says that a rule about bodies may stand for the request: it is denied
	// until its body was read and it is asked again.
	Body bool
}

// The protocols of a rule.
const (
	ProtocolTLS  = "tls"  // TLS, spliced: the inside and the far side speak end to end
	ProtocolHTTP = "http" // HTTP, plain or over TLS that the gateway terminates
	ProtocolTCP  = "tcp"  // any bytes
	// ProtocolPostgres is a session of PostgreSQL that the gateway itself logs in to,
	// with the credential that the rule names.
	ProtocolPostgres = "postgres"
)

// Rule allows one host, or a pattern of hosts, on some ports, and where it says
// more, only some requests. A rule with Methods, Paths, Query, Headers, Body or
// Credential is a rule about requests: connections it matches are inspected. One for PostgreSQL is
// not: its credential is lent to the connection.
type Rule struct {
	ID         string   `json:"id"`                   // where it stands, such as "agent.network.allow[2]"
	Host       string   `json:"host"`                 // lowercase name without a trailing dot; "*.x" one label before x, "**.x" one or more; or a literal IP address
	Ports      []uint16 `json:"ports"`                // never empty; an empty list allows nothing
	Protocol   string   `json:"protocol,omitempty"`   // empty: whatever is recognised
	Methods    []string `json:"methods,omitempty"`    // upper case; empty: any
	Paths      []string `json:"paths,omitempty"`      // "/a/b" exactly, "*" one segment, a last "**" any rest; empty: any
	Query      []Match  `json:"query,omitempty"`      // all must hold; empty: any
	Headers    []Match  `json:"headers,omitempty"`    // all must hold; empty: any
	Body       *Body    `json:"body,omitempty"`       // nil: any
	Credential string   `json:"credential,omitempty"` // lent to requests that match
	Private    bool     `json:"private,omitempty"`    // set by the operator layer only
	// Until is when the rule ends by itself; nil: with its stage. For is the same from
	// when its stage began, in a plan; in a grant it is Until.
	Until *time.Time    `json:"until,omitempty"`
	For   time.Duration `json:"for,omitempty"`
	Layer string        `json:"layer,omitempty"` // who said it: "operator", "project", "repository", "task"
}

// Requests says whether the rule is about HTTP requests, not connections alone.
func (r Rule) Requests() bool {
	return r.Protocol != ProtocolPostgres && (r.Protocol == ProtocolHTTP || r.Narrow())
}

// Grant is what one stage in one sandbox may reach. It is decided once, by
// policy, and is part of the record. The zero Grant reaches nothing.
type Grant struct {
	Task         string    `json:"task,omitempty"` // empty for a sandbox without a task
	Stage        StageName `json:"stage,omitempty"`
	Sandbox      string    `json:"sandbox"`
	PolicyDigest Digest    `json:"policyDigest,omitempty"`
	Rules        []Rule    `json:"rules,omitempty"`
	Leases       []Lease   `json:"leases,omitempty"`
	// Prove has the gateway try every lease before the grant is said to count; it
	// is no part of what is kept.
	Prove   bool    `json:"prove,omitempty"`
	Unknown Unknown `json:"unknown,omitzero"` // of connections that no rule matches
	// Withdrawn are ids of rules that followed from an answer which was taken back:
	// connections made under them are cut.
	Withdrawn []string `json:"withdrawn,omitempty"`
}

// Lease lends one credential to one stage of one sandbox. It never holds the
// real value: who may use it asks the control plane for it by ID.
type Lease struct {
	ID         string `json:"id"` // "l-" and 16 characters of lowercase base32
	Credential string `json:"credential"`
	Kind       string `json:"kind,omitempty"` // empty, as in leases of before there were others: KindHeader
	// Settings are those of the credential that whoever uses the lease needs.
	Settings    map[string]string `json:"settings,omitempty"`
	Header      string            `json:"header"`           // canonical name of the header that carries it, such as "X-Api-Key"
	Prefix      string            `json:"prefix,omitempty"` // before the value in the header, such as "Bearer "
	Placeholder string            `json:"placeholder"`      // what the sandbox sees instead of the value
	Hosts       []string          `json:"hosts"`            // what the credential itself is bound to, patterns as in Rule; empty: nothing
	Ports       []uint16          `json:"ports"`
	Methods     []string          `json:"methods,omitempty"` // empty: any
	Paths       []string          `json:"paths,omitempty"`   // empty: any
	Ends        *time.Time        `json:"ends,omitempty"`    // by itself; nil: with its stage
}
