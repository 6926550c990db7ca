package policy

import (
	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What the gateway asks is decided by package decide.
type (
	// Use is one connection asked for.
	Use = decide.Use
	// Request is one HTTP request on a connection.
	Request = decide.Request
	// Index answers for a grant that is asked often.
	Index = decide.Index
)

// NewIndex makes the index of a grant's rules.
func NewIndex(grant task.Grant) *Index { return decide.NewIndex(grant) }

// DecideRequest answers one HTTP request on a connection.
func DecideRequest(grant task.Grant, use Use, q Request) task.Decision {
	return decide.DecideRequest(grant, use, q)
}

// Passing is the rule under which an unknown connection would pass.
func Passing(u task.Unknown, use Use, seen string) (task.Rule, bool) {
	return decide.Passing(u, use, seen)
}

// Decide answers one connection asked for under a grant.
func Decide(grant task.Grant, use Use) task.Decision { return decide.Decide(grant, use) }
