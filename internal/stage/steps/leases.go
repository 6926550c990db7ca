package steps

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/cofferdam/cofferdam/internal/stage/steps/environ"
	"github.com/cofferdam/cofferdam/internal/task"
)

// grants remembers what each sandbox may reach, so that a lease can be taken
// out of a grant that lasts. It is memory only: what was granted before this
// process began is not in it.
type grants struct {
	mu   sync.Mutex
	held map[string]*held
}

// held is one sandbox's grant. Whoever sets it has the turn.
type held struct {
	turn  sync.Mutex
	users int
	grant *task.Grant // nil: not known here
	stale bool        // a withdrawal did not reach the sandbox
}

// take waits for the sandbox's turn; the caller gives it back with let.
func (g *grants) take(sandbox string) *held {
	g.mu.Lock()
	if g.held == nil {
		g.held = map[string]*held{}
	}
	h := g.held[sandbox]
	if h == nil {
		h = &held{}
		g.held[sandbox] = h
	}
	h.users++
	g.mu.Unlock()
	h.turn.Lock()
	return h
}

func (g *grants) let(sandbox string, h *held) {
	h.turn.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	h.users--
	if h.users == 0 && h.grant == nil {
		delete(g.held, sandbox)
	}
}

// setGrant sets what a sandbox may reach, after prepare (nil: nothing to do) has
// completed it. One without rules is forgotten. A lease is made and granted in
// one turn, so that one which is revoked meanwhile is either not made or taken
// out again.
func (w *Work) setGrant(ctx context.Context, grant task.Grant, prepare func(*task.Grant) error) error {
	h := w.grants.take(grant.Sandbox)
	defer w.grants.let(grant.Sandbox, h)
	h.grant, h.stale = nil, false
	if prepare != nil {
		if err := prepare(&grant); err != nil {
			return err
		}
	}
	if len(grant.Rules) > 0 || len(grant.Leases) > 0 || !grant.Unknown.IsZero() {
		h.grant = &grant
	}
	// A stage begins with the proof that its leases work; a withdrawal only takes.
	given := grant
	given.Prove = prepare != nil && len(grant.Leases) > 0
	return w.Sandboxes.Grant(ctx, given)
}

// Withdraw takes leases that have ended out of the grants of their sandboxes,
// which cuts the connections made under them. A sandbox whose grant is not
// known here, since this process began later, loses all of it: its stage gives
// it again when it is taken up. One that is gone has none.
func (w *Work) Withdraw(ctx context.Context, ended []task.Lent) error {
	of := map[string][]task.Lent{}
	for _, l := range ended {
		of[l.Sandbox] = append(of[l.Sandbox], l)
	}
	errs := make([]error, 0, len(of))
	var mu sync.Mutex
	var running sync.WaitGroup
	for sandbox, list := range of {
		running.Go(func() {
			err := w.withdraw(ctx, sandbox, list)
			if hasReason(err, task.InputNotFound) || hasReason(err, task.InfraSandboxLost) {
				err = nil
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (w *Work) withdraw(ctx context.Context, sandbox string, ended []task.Lent) error {
	h := w.grants.take(sandbox)
	defer w.grants.let(sandbox, h)
	if h.grant == nil {
		return w.Sandboxes.Grant(ctx, task.Grant{Task: ended[0].Task, Sandbox: sandbox})
	}
	next := *h.grant
	next.Leases = slices.DeleteFunc(slices.Clone(next.Leases), func(l task.Lease) bool {
		return slices.ContainsFunc(ended, func(e task.Lent) bool { return e.ID == l.ID })
	})
	if len(next.Leases) == len(h.grant.Leases) && !h.stale {
		return nil // the grant does not have them any longer
	}
	h.grant, h.stale = &next, true
	if err := w.Sandboxes.Grant(ctx, next); err != nil {
		return err // tried again when it is asked for again
	}
	h.stale = false
	return nil
}

// lend adds to the grant the leases of the credentials that its rules name, and
// those of the tokens that its stage has.
func (r *run) lend(ctx context.Context, grant *task.Grant) error {
	r.lent = nil
	identity := r.plan.Identity[grant.Stage]
	if len(identity) == 0 && !slices.ContainsFunc(grant.Rules, func(rule task.Rule) bool { return rule.Credential != "" }) {
		return nil
	}
	lent, err := r.Leases.Lend(ctx, task.LeaseUse{
		Task: r.in.Task, Attempt: r.in.Attempt, Stage: grant.Stage, Sandbox: grant.Sandbox, Who: r.task.RequestedBy, Identity: identity,
	}, grant.Rules)
	if err != nil {
		return err
	}
	for _, l := range lent {
		if l.Active() {
			grant.Leases = append(grant.Leases, l.Lease)
		}
	}
	r.lent = lent
	return nil
}

// leaseEnv tells the command of each credential that its stage was lent. One
// that was revoked since stays, so that a repeated run starts the same command.
func (r *run) leaseEnv() []string {
	return environ.Of(r.lent, r.granted)
}

// placeholder is what stands for a credential in the stage's sandbox; empty for
// one that was not lent to it.
func (r *run) placeholder(credential string) string {
	for _, l := range r.lent {
		if l.Credential == credential {
			return l.Placeholder
		}
	}
	return ""
}
