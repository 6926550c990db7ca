package credential

import (
	"context"
	"fmt"

	"github.com/cofferdam/cofferdam/internal/task"
)

// lendIdentity makes the leases of the tokens that policy gives to a stage, one
// an audience. They have no credential of the vault behind them, are bound to
// the one place where the gateway answers, and share a placeholder: a stage has
// one request token.
func (l *Leases) lendIdentity(ctx context.Context, use task.LeaseUse) ([]task.Lent, error) {
	if len(use.Identity) == 0 {
		return nil, nil
	}
	if l.with.Minters[task.KindOIDC] == nil {
		return nil, task.Fail(task.PolicyCredential, fmt.Sprintf("%s.identity: this installation can't sign tokens that say who a run is", use.Stage), nil)
	}
	placeholder, err := l.requestToken(ctx, use)
	if err != nil {
		return nil, err
	}
	out := make([]task.Lent, 0, len(use.Identity))
	for _, i := range use.Identity {
		if text := task.AudienceFault(i.Audience); text != "" {
			return nil, task.Fail(task.InputPolicy, fmt.Sprintf("%s.identity: the audience %s", use.Stage, text), nil)
		}
		settings := map[string]string{task.SettingAudience: i.Audience, task.SettingVisible: fmt.Sprint(i.Visible)}
		one, err := l.keep(ctx, task.Lent{
			Lease: task.Lease{
				ID: leaseID(use, i.Name()), Credential: i.Name(), Kind: task.KindOIDC, Settings: settings,
				Header: "Authorization", Prefix: "Bearer ", Placeholder: placeholder,
				Hosts: []string{task.TokenHost}, Ports: []uint16{443}, Methods: []string{"GET"}, Paths: []string{task.TokenPath},
			},
			Env: task.TokenEnv, Task: use.Task, Attempt: use.Attempt, Stage: use.Stage, Sandbox: use.Sandbox,
			Count: 1, From: l.moment(),
		})
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// requestToken is the placeholder that stands for a stage's tokens: that of the
// first lease of it, so that a repeated stage starts the same command.
func (l *Leases) requestToken(ctx context.Context, use task.LeaseUse) (string, error) {
	list, err := l.rows.Leases(ctx, use.Task)
	if err != nil {
		return "", err
	}
	for _, have := range list {
		if have.OfIdentity() && have.Attempt == use.Attempt && have.Stage == use.Stage && have.Sandbox == use.Sandbox {
			return have.Placeholder, nil
		}
	}
	return newPlaceholder(""), nil
}

// token has the token made that a stage may see. The lease is asked for again
// once the token is on record: one that ended meanwhile gives none, so that a
// task's receipt has every token that was handed over.
func (l *Leases) token(ctx context.Context, have task.Lent) (task.Given, error) {
	refused := task.Fail(task.PolicyCredential, "this lease is not lent to this sandbox, or it has ended", nil)
	minter := l.with.Minters[task.KindOIDC]
	if _, ok := have.HandsOver(); !ok || have.CredentialID != "" || minter == nil {
		return task.Given{}, refused
	}
	made, err := minter.Mint(ctx, task.Credential{Name: have.Credential, Kind: task.KindOIDC, Settings: have.Settings}, task.Secret{}, have)
	if err != nil {
		return task.Given{}, err
	}
	if text := made.fit(l.now(), true); text != "" {
		return task.Given{}, task.Fail(task.InfraInternal, "the run's own token: "+text, nil)
	}
	if now, err := l.rows.Lease(ctx, have.ID); err != nil || !now.Active() || now.Count != have.Count {
		return task.Given{}, refused
	}
	return task.Given{Value: made.Value, Once: true}, nil
}
