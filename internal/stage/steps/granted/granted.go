// Package granted remembers what each sandbox may reach, so that a lease can be
// taken out of a grant that lasts, and what a person decided put into it.
//
// Words. Whoever changes a sandbox's grant has its turn. A grant is held while
// its stage runs. It is memory only: what was granted before this process began
// is not in it, and such a sandbox loses all of its grant rather than keep what
// was to be taken away; its stage gives it again when it is taken up.
package granted

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Sandboxes gives grants to sandboxes. Implemented by the stages' fleet.
type Sandboxes interface {
	Grant(ctx context.Context, grant task.Grant) error
}

// Grants remembers what each sandbox may reach. It is safe for concurrent use.
type Grants struct {
	sandboxes Sandboxes

	mu   sync.Mutex
	held map[string]*held
}

// New returns a memory of nothing.
func New(s Sandboxes) *Grants { return &Grants{sandboxes: s, held: map[string]*held{}} }

// Known is how many sandboxes have a grant that is known here.
func (g *Grants) Known() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held)
}

// held is one sandbox's grant. Whoever sets it has the turn.
type held struct {
	turn  sync.Mutex
	users int
	grant *task.Grant // nil: not known here
	stale bool        // a withdrawal did not reach the sandbox
}

// take waits for the sandbox's turn; the caller gives it back with let.
func (g *Grants) take(sandbox string) *held {
	g.mu.Lock()
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

func (g *Grants) let(sandbox string, h *held) {
	h.turn.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	h.users--
	if h.users == 0 && h.grant == nil {
		delete(g.held, sandbox)
	}
}

// SetGrant sets what a sandbox may reach, after prepare (nil: nothing to do) has
// completed it. One without rules is forgotten. A lease is made and granted in
// one turn, so that one which is revoked meanwhile is either not made or taken
// out again.
func (g *Grants) SetGrant(ctx context.Context, grant task.Grant, prepare func(*task.Grant) error) error {
	h := g.take(grant.Sandbox)
	defer g.let(grant.Sandbox, h)
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
	return g.sandboxes.Grant(ctx, given)
}

// Withdraw takes leases that have ended out of the grants of their sandboxes,
// which cuts the connections made under them. A sandbox whose grant is not
// known here, since this process began later, loses all of it: its stage gives
// it again when it is taken up. One that is gone has none.
func (g *Grants) Withdraw(ctx context.Context, ended []task.Lent) error {
	of := map[string][]task.Lent{}
	for _, l := range ended {
		of[l.Sandbox] = append(of[l.Sandbox], l)
	}
	errs := make([]error, 0, len(of))
	var mu sync.Mutex
	var running sync.WaitGroup
	for sandbox, list := range of {
		running.Go(func() {
			err := gone(g.withdraw(ctx, sandbox, list))
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func (g *Grants) withdraw(ctx context.Context, sandbox string, ended []task.Lent) error {
	h := g.take(sandbox)
	defer g.let(sandbox, h)
	if h.grant == nil {
		return g.sandboxes.Grant(ctx, task.Grant{Task: ended[0].Task, Sandbox: sandbox})
	}
	next := *h.grant
	next.Leases = slices.DeleteFunc(slices.Clone(next.Leases), func(l task.Lease) bool {
		return slices.ContainsFunc(ended, func(e task.Lent) bool { return e.ID == l.ID })
	})
	if len(next.Leases) == len(h.grant.Leases) && !h.stale {
		return nil // the grant does not have them any longer
	}
	h.grant, h.stale = &next, true
	if err := g.sandboxes.Grant(ctx, next); err != nil {
		return err // tried again when it is asked for again
	}
	h.stale = false
	return nil
}

// withdrawnMost is how many ids of rules that were taken back a grant repeats.
const withdrawnMost = 256

// Held is what a running stage's sandbox may reach; false where this process
// does not know it: it began later and the stage is not taken up again yet.
func (g *Grants) Held(sandbox string) (task.Grant, bool) {
	h := g.take(sandbox)
	defer g.let(sandbox, h)
	if h.grant == nil {
		return task.Grant{}, false
	}
	return *h.grant, true
}

// Extend adds a rule that follows from a person's decision to a sandbox's
// grant, while the stage runs whose question it answered. Nothing is cut by it.
func (g *Grants) Extend(ctx context.Context, sandbox string, stage task.StageName, rule task.Rule) error {
	h := g.take(sandbox)
	defer g.let(sandbox, h)
	if h.grant == nil || h.grant.Stage != stage || h.grant.Unknown.Mode != task.UnknownAsk || !strings.HasPrefix(rule.ID, task.RuleAsked) ||
		slices.Contains(h.grant.Withdrawn, rule.ID) || slices.ContainsFunc(h.grant.Rules, func(r task.Rule) bool { return r.ID == rule.ID }) {
		return nil
	}
	next := *h.grant
	next.Rules = append(slices.Clone(next.Rules), rule)
	h.grant = &next
	return gone(g.sandboxes.Grant(ctx, next))
}

// Retract takes such a rule out of a sandbox's grant again, and has what passes
// under it cut. A sandbox whose grant is not known here loses all of it, as in
// Withdraw.
func (g *Grants) Retract(ctx context.Context, taskID, sandbox, rule string) error {
	h := g.take(sandbox)
	defer g.let(sandbox, h)
	if h.grant == nil {
		return gone(g.sandboxes.Grant(ctx, task.Grant{Task: taskID, Sandbox: sandbox}))
	}
	next := *h.grant
	next.Rules = slices.DeleteFunc(slices.Clone(next.Rules), func(r task.Rule) bool { return r.ID == rule })
	if !slices.Contains(next.Withdrawn, rule) {
		next.Withdrawn = append(slices.Clone(next.Withdrawn), rule)
		next.Withdrawn = next.Withdrawn[max(0, len(next.Withdrawn)-withdrawnMost):]
	}
	h.grant = &next
	return gone(g.sandboxes.Grant(ctx, next))
}

// gone forgives that a sandbox is no more.
func gone(err error) error {
	if r := task.ReasonOf(err); r == task.InputNotFound || r == task.InfraSandboxLost {
		return nil
	}
	return err
}
