package task

import "time"

// The kinds of credentials: how a value comes about and how a request carries it.
const (
	KindHeader    = "header"           // one header field carries it as it is
	KindQuery     = "query"            // one parameter of the query does
	KindBasic     = "basic"            // Basic (RFC 7617), with a user name that is no secret
	KindGit       = "git"              // Basic, for git over https
	KindGitHubApp = "github-app"       // installation tokens, minted a lease, narrowed to a repository
	KindOAuth     = "oauth"            // OAuth 2.0 client credentials (RFC 6749 §4.4)
	KindExchange  = "token-exchange"   // OAuth 2.0 token exchange (RFC 8693), of the run's own token
	KindAWS       = "aws"              // requests are signed again (AWS Signature Version 4)
	KindAWSWeb    = "aws-web-identity" // the same, with keys that STS gives for the run's own token
	KindPostgres  = "postgres"         // a login of PostgreSQL
	KindOIDC      = "oidc"             // the run's own token, minted a request
)

// The settings of kinds that travel with leases and that more than one room
// reads.
const (
	SettingParameter  = "parameter"  // of KindQuery: the parameter that carries it
	SettingUser       = "user"       // of KindBasic and KindGit: the name before the colon
	SettingRepository = "repository" // of KindGit: owner/name patterns, separated by commas; none: any
	SettingPush       = "push"       // of KindGit: "yes" or "no"
)

// Credential is what is known of a credential of the vault, without its value:
// whose it is, how it is carried, and what it is bound to. Nothing but Used and
// Revoked changes after it was added.
type Credential struct {
	ID      string   `json:"id"` // "c-" and 16 characters of lowercase base32
	Name    string   `json:"name"`
	Owner   string   `json:"owner"`
	Shared  bool     `json:"shared,omitempty"` // everyone's tasks may use it
	Kind    string   `json:"kind"`
	Header  string   `json:"header"`           // canonical
	Prefix  string   `json:"prefix,omitempty"` // before the value in the header
	Hosts   []string `json:"hosts"`            // patterns as in Rule; never empty
	Ports   []uint16 `json:"ports"`            // never empty
	Methods []string `json:"methods,omitempty"`
	Paths   []string `json:"paths,omitempty"`
	// Settings are what its kind needs besides, by name, such as "user" or
	// "region"; package credential says which. Never secret.
	Settings map[string]string `json:"settings,omitempty"`
	Env      string            `json:"env,omitempty"`   // the variable that gets the placeholder; empty: none
	Shape    string            `json:"shape,omitempty"` // what the placeholder begins with, such as "sk-ant-api03-"
	Created  time.Time         `json:"created"`
	LastUsed *time.Time        `json:"lastUsed,omitempty"` // lent to a gateway or to our own loop
	Revoked  *time.Time        `json:"revoked,omitempty"`
}

// CredentialRequest asks for a credential. Provider, when not empty, is a name
// of Providers and fills what the other fields leave empty.
type CredentialRequest struct {
	Name     string
	Owner    string
	Shared   bool
	Provider string
	Header   string   // empty: Authorization
	Prefix   string   // before the value; with neither header nor prefix: "Bearer "
	Hosts    []string // at least one
	Ports    []uint16 // empty: 443
	Methods  []string // empty: any
	Paths    []string // empty: any
	Env      string   // the variable for the placeholder; empty: none
	Kind     string   // empty: KindHeader
	Settings map[string]string
	Value    Secret
}

// UsableBy says whether tasks of the user may be lent the credential.
func (c Credential) UsableBy(user string) bool {
	return user != "" && c.Revoked == nil && (c.Shared || c.Owner == user)
}

// Lent is a lease with what is recorded of it: the credential for one stage of
// one sandbox, from when until when.
type Lent struct {
	Lease
	CredentialID string    `json:"credentialId"`
	Env          string    `json:"env,omitempty"` // the variable that gets the placeholder
	Task         string    `json:"task"`
	Attempt      int       `json:"attempt"`
	Stage        StageName `json:"stage"`
	Sandbox      string    `json:"sandbox"`
	// Count is how often it was made, from 1: a stage that is taken up again has
	// the same lease again.
	Count int        `json:"count"`
	From  time.Time  `json:"from"`
	Until *time.Time `json:"until,omitempty"` // nil while it lasts
	Ended string     `json:"ended,omitempty"` // why: one of the Ended constants
}

// Why a lease ended.
const (
	EndedStage     = "stage"     // its stage ended
	EndedTask      = "task"      // its task ended
	EndedCancelled = "cancelled" // its task was cancelled
	EndedRevoked   = "revoked"   // its credential was revoked or removed
	EndedTime      = "time"      // the rules that lent it ended
)

// Active says whether the lease may be used.
func (l Lent) Active() bool { return l.ID != "" && l.Until == nil }

// LeaseUse says for which stage of which sandbox credentials are lent.
type LeaseUse struct {
	Task    string
	Attempt int
	Stage   StageName
	Sandbox string
	Who     string // the task's requester
	// Identity is for which audiences the stage has tokens of its run's identity.
	Identity []Identity
}
