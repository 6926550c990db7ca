package api

import "time"

// CredentialRequest puts a credential into the vault. What provider knows may
// be left out.
type CredentialRequest struct {
	Name     string            `json:"name" maxLength:"63" doc:"What policies call it."`
	Owner    string            `json:"owner,omitempty" maxLength:"128" doc:"Whose tasks may use it. Empty: who asks."`
	Shared   bool              `json:"shared,omitempty" doc:"Everyone's tasks may use it."`
	Provider string            `json:"provider,omitempty" maxLength:"64" doc:"A vendor of models, such as anthropic, openai or google, which fills hosts, header, prefix and env."`
	Header   string            `json:"header,omitempty" maxLength:"64" doc:"The request header that carries it. Empty: Authorization."`
	Prefix   string            `json:"prefix,omitempty" maxLength:"64" doc:"Before the value in the header. With neither header nor prefix: \"Bearer \"."`
	Hosts    []string          `json:"hosts,omitempty" nullable:"false" maxItems:"64" doc:"The only hosts it is sent to: names, or patterns beginning with \"*.\" (one label) or \"**.\" (any)."`
	Ports    []uint16          `json:"ports,omitempty" nullable:"false" maxItems:"64" doc:"The only ports. Empty: 443."`
	Methods  []string          `json:"methods,omitempty" nullable:"false" maxItems:"64" doc:"The only methods. Empty: any."`
	Paths    []string          `json:"paths,omitempty" nullable:"false" maxItems:"64" doc:"The only paths: exact, \"*\" for one segment, a last \"**\" for any rest. Empty: any."`
	Env      string            `json:"env,omitempty" maxLength:"127" doc:"The variable that gets the placeholder in the stages it is lent to. Empty: none."`
	Kind     string            `json:"kind,omitempty" maxLength:"64" doc:"How a request carries it, or how it is made. Empty: header."`
	Settings map[string]string `json:"settings,omitempty" doc:"What the kind needs besides; none is secret."`
	Value    string            `json:"value,omitempty" maxLength:"16384" doc:"The secret. No answer ever holds it."`
}

// Credential is a credential of the vault, without its value.
type Credential struct {
	Name     string            `json:"name"`
	Owner    string            `json:"owner"`
	Shared   bool              `json:"shared"`
	Kind     string            `json:"kind"`
	Settings map[string]string `json:"settings,omitempty"`
	Header   string            `json:"header"`
	Prefix   string            `json:"prefix,omitempty"`
	Hosts    []string          `json:"hosts" nullable:"false"`
	Ports    []uint16          `json:"ports" nullable:"false"`
	Methods  []string          `json:"methods" nullable:"false" doc:"Empty: any."`
	Paths    []string          `json:"paths" nullable:"false" doc:"Empty: any."`
	Env      string            `json:"env,omitempty"`
	Created  time.Time         `json:"created"`
	LastUsed *time.Time        `json:"lastUsed,omitempty"`
	Revoked  *time.Time        `json:"revoked,omitempty"`
}

// CredentialList lists credentials by name.
type CredentialList struct {
	Credentials []Credential `json:"credentials" nullable:"false"`
}

// CredentialEnd tells what revoking or removing a credential ended.
type CredentialEnd struct {
	Credential Credential `json:"credential"`
	Leases     int        `json:"leases" doc:"Leases that were active."`
	Cut        bool       `json:"cut" doc:"The connections made under them are cut; false: a machine did not answer, and what it holds ends within a minute."`
}

// Lease is a credential lent to one stage of a task.
type Lease struct {
	ID         string            `json:"id"`
	Credential string            `json:"credential"`
	Kind       string            `json:"kind"`
	Settings   map[string]string `json:"settings,omitempty"`
	Header     string            `json:"header"`
	Hosts      []string          `json:"hosts" nullable:"false"`
	Ports      []uint16          `json:"ports" nullable:"false"`
	Methods    []string          `json:"methods" nullable:"false"`
	Paths      []string          `json:"paths" nullable:"false"`
	Stage      string            `json:"stage"`
	Attempt    int               `json:"attempt"`
	Sandbox    string            `json:"sandbox"`
	From       time.Time         `json:"from"`
	Until      *time.Time        `json:"until,omitempty" doc:"Absent while it lasts."`
	Ended      string            `json:"ended,omitempty" doc:"Why: stage, task, cancelled or revoked."`
}

// LendRequest is a gateway's question for the value of a lease.
type LendRequest struct {
	Sandbox string `json:"sandbox" maxLength:"64"`
	Lease   string `json:"lease" maxLength:"64"`
}

// LendAnswer lends a value for a short time.
type LendAnswer struct {
	Value     string    `json:"value"`
	ExpiresAt time.Time `json:"expiresAt" doc:"By this server's clock."`
	Seconds   int       `json:"seconds" doc:"How long it may be kept, counted from before the question; clocks may differ."`
	Once      bool      `json:"once,omitempty" doc:"It is for one request and must not be kept."`
}
