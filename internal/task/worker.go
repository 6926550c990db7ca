package task

import "time"

// The marks of a worker. Without one it takes part.
const (
	WorkerDraining    = "draining"    // no new sandbox is placed on it
	WorkerQuarantined = "quarantined" // nor is anything lent to its gateway
	WorkerForgotten   = "forgotten"   // it never returns: what it had is lost
)

// WorkerMark sets a machine apart.
type WorkerMark struct {
	Worker string
	State  string // empty: none
	Reason string // as a person gave it
	By     string
	At     time.Time
}

// Apart says whether nothing may be lent to the worker's gateway.
func (m WorkerMark) Apart() bool { return m.State == WorkerQuarantined || m.State == WorkerForgotten }
