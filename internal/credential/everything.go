package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Everything is what is done to every row at once. Implemented by store/vault.
type Everything interface {
	// EndAll wipes every value and ends every lease, in one transaction. It may be
	// repeated.
	EndAll(ctx context.Context, at time.Time) (task.EndOfAll, error)
}

// RevokeAll ends everything: every value is wiped and every lease ended in one
// transaction, and after it put on record. What was minted is revoked at who made
// it by Run. It may be repeated: then it puts on record what was not, and tells
// which connections may still not be cut. Who calls it has them cut.
func (l *Leases) RevokeAll(ctx context.Context, rows Everything, by string) (task.EndOfAll, error) {
	all, err := l.vault.List(ctx)
	if err != nil {
		return task.EndOfAll{}, err
	}
	for _, c := range all {
		l.remember(ctx, c)
	}
	at := l.moment()
	end, err := rows.EndAll(ctx, at)
	if err != nil {
		return task.EndOfAll{}, err
	}
	l.mints.wake()
	// What has happened is told even when who asked went away.
	ctx = context.WithoutCancel(ctx)
	errs := []error{l.audit.Record(ctx, "", fmt.Sprintf("credential.revoke_all/%d", at.UnixNano()), "credential.revoke_all", seenBy,
		map[string]any{"by": by, "credentials": end.Credentials, "leases": end.Leases})}
	for _, c := range end.All {
		// The same key as that of a single revocation: once a credential.
		errs = append(errs, l.audit.Record(ctx, "", "credential.revoke/"+c.ID, "credential.revoke", seenBy, map[string]any{"credential": c.Name, "id": c.ID, "owner": c.Owner, "by": by}))
	}
	for _, one := range end.Cut {
		errs = append(errs, l.recordEnd(ctx, one))
	}
	return end, errors.Join(errs...)
}

// Unrevoked counts the values that were minted and are not known to be over.
func (l *Leases) Unrevoked(ctx context.Context) (int, error) {
	if l.with.MintRows == nil {
		return 0, nil
	}
	list, err := l.with.MintRows.Mints(ctx, "")
	return len(list), err
}
