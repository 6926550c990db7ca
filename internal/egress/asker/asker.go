// Package asker asks the control plane what becomes of connections that wait
// for a person, for the gateway. It implements egress.Asker.
//
// Words. A question is asked in turns (see plane.Turns). A control plane that is
// away between turns longer than it is waited for is infra.control_plane_away.
// The question stays in the inbox meanwhile.
package asker

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/cofferdam/cofferdam/internal/egress/plane"
	"github.com/cofferdam/cofferdam/internal/task"
)

// mostTurns is how long a question waits, whatever the control plane says.
const mostTurns = 10 * time.Minute

// Asker asks. It is safe for concurrent use.
type Asker struct{ turns *plane.Turns }

// New returns an asker. Nothing is asked before a connection waits.
func New(o plane.Options) (*Asker, error) {
	turns, err := plane.NewTurns(o, "/v1/gateway/ask")
	if err != nil {
		return nil, err
	}
	return &Asker{turns}, nil
}

// turn is one turn of a question, and what it came to.
type (
	turn struct {
		Sandbox  string         `json:"sandbox"`
		Use      string         `json:"use"`
		Approval string         `json:"approval,omitempty"`
		Egress   task.EgressAsk `json:"egress"`
	}
	outcome struct {
		State    string      `json:"state"`
		Approval string      `json:"approval"`
		ID       string      `json:"id"`
		Once     bool        `json:"once"`
		Reason   task.Reason `json:"reason"`
	}
)

// Ask waits for what becomes of a held connection, until ctx ends. Errors are
// *task.Failure with task.InfraControlAway.
func (a *Asker) Ask(ctx context.Context, h task.Held) (task.HeldAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, mostTurns+a.turns.Wait())
	defer cancel()
	t := turn{Sandbox: h.Sandbox, Use: h.Use, Egress: h.EgressAsk}
	var answer task.HeldAnswer
	lost := a.turns.Ask(ctx, func() any { return t }, func(data []byte, err error) (plane.Heard, error) {
		if r, ok := errors.AsType[*plane.Refused](err); ok && final(r.Reason) {
			answer.Reason = refusal(r.Reason)
			return plane.Final, nil
		}
		if err != nil {
			return plane.Away, err
		}
		var o outcome
		if json.Unmarshal(data, &o) != nil || o.State == "" || o.State == "waiting" && o.Approval == "" {
			return plane.Away, errors.New("answer: not the expected JSON")
		}
		switch {
		case o.State == "waiting":
			t.Approval = o.Approval
			return plane.Waiting, nil
		case o.State == "allowed" && o.ID != "":
			answer = task.HeldAnswer{Allow: true, Once: o.Once, ID: o.ID}
		default:
			answer.Reason = refusal(o.Reason)
		}
		return plane.Final, nil
	})
	if lost != nil {
		return task.HeldAnswer{}, task.Fail(task.InfraControlAway, "the control plane did not say in time what a person answered; see that cofferdamd runs", lost)
	}
	return answer, nil
}

// final says whether a refusal's reason stands, rather than being gone in a
// moment.
func final(r task.Reason) bool {
	switch r.Class() {
	case "policy", "approval", "limit", "cancelled":
		return true
	}
	return r == task.InputInvalid || r == task.InputNotFound
}

// refusal is the reason that the inside reads.
func refusal(r task.Reason) task.Reason {
	switch r {
	case task.ApprovalDenied, task.ApprovalExpired, task.LimitRequests:
		return r
	}
	if r.Class() == "policy" || r.Class() == "input" {
		return task.PolicyDenied
	}
	return task.ApprovalDenied
}

// Close ends connections that are idle.
func (a *Asker) Close() { a.turns.Close() }
