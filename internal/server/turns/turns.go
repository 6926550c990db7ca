// Package turns lets gateways ask what is not decided yet: a turn waits some
// seconds, and is then asked again. It bounds how many wait at one time, and
// sees that the sandbox is on the gateway's own machine.
package turns

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Length is how long a question waits before it is asked again.
const Length = 20 * time.Second

const (
	holdsWait = 10 * time.Second
	most      = 2048 // of all gateways, at one time
)

// Machines knows where sandboxes are. Implemented by fleet.
type Machines interface {
	// Holds says whether the sandbox is on a worker of the subject.
	Holds(ctx context.Context, sandbox, subject string) (bool, error)
}

// Turns are those of one kind of question. It is safe for concurrent use.
type Turns struct {
	machines Machines
	log      *slog.Logger
	places   chan struct{}
}

// New returns turns.
func New(m Machines, log *slog.Logger) *Turns {
	return &Turns{machines: m, log: log, places: make(chan struct{}, most)}
}

// Begin begins a turn of the gateway that asks, about a sandbox; end ends it.
func (t *Turns) Begin(ctx context.Context, sandbox string) (end func(), err error) {
	select {
	case t.places <- struct{}{}:
	default:
		return nil, task.Fail(task.InfraControlAway, "too many questions wait; ask again", nil)
	}
	end = func() { <-t.places }
	if err := t.holds(ctx, sandbox); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func (t *Turns) holds(ctx context.Context, sandbox string) error {
	gateway := operation.Who(ctx).User
	looking, cancel := context.WithTimeout(ctx, holdsWait)
	defer cancel()
	holds, err := t.machines.Holds(looking, sandbox, gateway)
	switch r := task.ReasonOf(err); {
	case err == nil && holds:
		return nil
	case err == nil:
		// A worker that is not back after a restart of ours holds nothing yet.
		return task.Fail(task.InfraControlAway, "this sandbox is not known to be on the gateway's machine at this moment", nil)
	case r == task.InputNotFound || r == task.InputInvalid:
		t.log.WarnContext(ctx, "a gateway asked for a sandbox that is nowhere", "sandbox", fmt.Sprintf("%.64q", sandbox), "gateway", gateway)
		return task.Fail(task.PolicyDenied, "there is no such sandbox", nil)
	}
	return task.Fail(task.InfraControlAway, "which machine has the sandbox can't be known at this moment", err)
}
