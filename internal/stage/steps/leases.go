package steps

import (
	"context"
	"slices"

	"github.com/cofferdam/cofferdam/internal/stage/steps/environ"
	"github.com/cofferdam/cofferdam/internal/task"
)

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

// carried is of which kind a credential is that was lent, and which header
// carries it; empty for one that was not lent.
func (r *run) carried(credential string) (kind, header string) {
	for _, l := range r.lent {
		if l.Credential == credential {
			return l.Kind, l.Header
		}
	}
	return "", ""
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
