package api

import "time"

// WorkerMark is how a worker is set apart.
type WorkerMark struct {
	State  string    `json:"state" doc:"draining: no new sandboxes. quarantined: and nothing is lent to its gateway. forgotten: it never returns, and what it had is lost."`
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
}

// WorkerMarking sets a worker apart.
type WorkerMarking struct {
	State  string `json:"state" enum:"draining,quarantined,forgotten"`
	Reason string `json:"reason,omitempty" maxLength:"1024"`
}

// WorkerMarked tells what became of a worker.
type WorkerMarked struct {
	Worker    string      `json:"worker"`
	Mark      *WorkerMark `json:"mark,omitempty" doc:"Absent: it takes part."`
	Sandboxes int         `json:"sandboxes" doc:"That are placed on it; of one that is forgotten: that are lost."`
}
