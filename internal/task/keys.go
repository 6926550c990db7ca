package task

import "time"

// The names of an installation's keys.
const (
	KeyVault    = "vault"    // seals credentials
	KeyAudit    = "audit"    // signs receipts and checkpoints
	KeyEngine   = "engine"   // seals what the engine is handed
	KeyIdentity = "identity" // signs the runs' tokens
	KeyTokens   = "tokens"   // what clients and machines show
)

// KeyRotation is that a key was made anew.
type KeyRotation struct {
	Name string
	Key  string // names the new key, without telling it
	By   string
	At   time.Time
}

// FrozenSandbox is a sandbox that is kept as evidence.
type FrozenSandbox struct {
	Sandbox  string
	Task     string // empty: none
	Worker   string
	Reason   string
	By       string
	At       time.Time
	Released *time.Time // nil: it is kept
}
