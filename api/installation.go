package api

import "time"

// Health says that the server answers.
type Health struct {
	Boot    string `json:"boot" doc:"Random, made at process start."`
	Version string `json:"version"`
}

// The roles of a token.
const (
	RoleUser    = "user"    // own tasks and sandboxes
	RoleAdmin   = "admin"   // everyone's, tokens, audit
	RoleWorker  = "worker"  // the worker's tunnel, nothing else
	RoleGateway = "gateway" // what is lent to the sandboxes of the worker with the same user, nothing else
)

// TokenRequest asks for a token.
type TokenRequest struct {
	User       string `json:"user" minLength:"1" maxLength:"128" pattern:"^[A-Za-z0-9][A-Za-z0-9._@-]*$" doc:"Who it speaks for."`
	Role       string `json:"role" enum:"user,admin,worker,gateway"`
	Note       string `json:"note,omitempty" maxLength:"256" doc:"For people: where it is used."`
	ExpireDays int    `json:"expireDays,omitempty" minimum:"0" maximum:"3650" doc:"0: never."`
}

// Token describes a token. Secret is set once, in the answer that made it.
type Token struct {
	ID        string     `json:"id"`
	User      string     `json:"user"`
	Role      string     `json:"role"`
	Note      string     `json:"note,omitempty"`
	CreatedAt time.Time  `json:"createdAt"`
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
	Secret    string     `json:"secret,omitempty" doc:"The bearer token itself; shown once."`
}

// TokenList lists tokens without their secrets.
type TokenList struct {
	Tokens []Token `json:"tokens" nullable:"false"`
}

// AuditKey is the public key that receipts are signed for.
type AuditKey struct {
	Former []string `json:"former,omitempty" doc:"Those that signed before it, the oldest first."`
	Key    string   `json:"key" doc:"Verifier key in the notation of golang.org/x/mod/sumdb/note."`
	Note   string   `json:"note" doc:"How this key may be used."`
}

// Worker is one machine that sandboxes run on.
type Worker struct {
	Name        string      `json:"name"`
	State       string      `json:"state" doc:"connected or lost."`
	Boot        string      `json:"boot,omitempty"`
	Gateway     string      `json:"gateway,omitempty" doc:"Boot id of its gateway; empty: none answers."`
	Version     string      `json:"version,omitempty"`
	Sandboxes   int         `json:"sandboxes"`
	ConnectedAt *time.Time  `json:"connectedAt,omitempty"`
	SeenAt      *time.Time  `json:"seenAt,omitempty"`
	Leftovers   []Leftover  `json:"leftovers" nullable:"false"`
	Mark        *WorkerMark `json:"mark,omitempty" doc:"How it is set apart; absent: it takes part."`
}

// WorkerList lists workers.
type WorkerList struct {
	Workers []Worker `json:"workers" nullable:"false"`
}

// Leftover is an object on a worker that no record explains.
type Leftover struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Sandbox string `json:"sandbox,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// The outcomes of a check.
const (
	CheckOK      = "ok"
	CheckWarning = "warning"
	CheckFailed  = "failed"
)

// Check is one question doctor asked of the installation.
type Check struct {
	ID        string     `json:"id" doc:"Such as store, engine, worker.NAME, gateway.NAME, disk."`
	Outcome   string     `json:"outcome" doc:"ok, warning or failed."`
	Text      string     `json:"text" doc:"What was found and, unless ok, what to do."`
	Leftovers []Leftover `json:"leftovers,omitempty"`
}

// Doctor is what the server found about itself and its workers.
type Doctor struct {
	OK     bool    `json:"ok" doc:"No check failed and nothing is left over."`
	Checks []Check `json:"checks" nullable:"false"`
}
