package credentials

import (
	"context"
	"slices"

	"github.com/cofferdam/cofferdam/internal/task"
)

// ModelKeys says what of the vault decides how tasks of a user ask their models:
// the zero ModelKeys where nobody's login is there for them.
func (d *Desk) ModelKeys(ctx context.Context, user string) (task.ModelKeys, error) {
	all, err := d.Vault.List(ctx)
	if err != nil {
		return task.ModelKeys{}, err
	}
	var keys task.ModelKeys
	var shared []task.ModelLogin
	for _, c := range all {
		_, login := task.SubscriptionOf(c.Kind)
		switch {
		case !c.UsableBy(user):
		case login && c.Owner == user:
			keys.Logins = append(keys.Logins, task.ModelLogin{Credential: c.Name, Kind: c.Kind})
		case login:
			shared = append(shared, task.ModelLogin{Credential: c.Name, Kind: c.Kind})
		case slices.ContainsFunc(task.Providers(), func(p task.Provider) bool { return p.Name == c.Name }):
			keys.Keys = append(keys.Keys, c.Name)
		}
	}
	if keys.Logins = append(keys.Logins, shared...); len(keys.Logins) == 0 {
		return task.ModelKeys{}, nil // as if there were no logins at all
	}
	return keys, nil
}
