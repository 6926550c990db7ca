package credential

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

// Masker finds every value that the task was lent and that is known here; nil
// when it was lent none.
func (l *Leases) Masker(taskID string) *mask.Masker { return l.known.Masker(taskID) }

// Learn makes the values of the task's leases known, those of leases that have
// ended too. What was revoked, or was minted and dropped, can't be learnt any
// longer; who was given it while this process ran made it known.
func (l *Leases) Learn(ctx context.Context, taskID string) error {
	list, err := l.rows.Leases(ctx, taskID)
	if err != nil {
		return err
	}
	for _, lent := range list {
		if lent.CredentialID != "" {
			_, value, err := l.vault.active(ctx, lent.Credential, lent.CredentialID)
			if err != nil && task.ReasonOf(err) != task.PolicyCredential {
				return err
			}
			l.known.Add(taskID, value)
		}
		if err := l.learnMinted(ctx, lent); err != nil {
			return err
		}
	}
	return nil
}

func (l *Leases) learnMinted(ctx context.Context, lent task.Lent) error {
	if l.with.MintRows == nil {
		return nil
	}
	rows, err := l.with.MintRows.Mints(ctx, lent.ID)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if r.Kept == nil {
			continue
		}
		value, err := l.vault.openMint(ctx, r)
		if err != nil && task.ReasonOf(err) != task.PolicyCredential {
			return err
		}
		l.known.Add(lent.Task, value)
	}
	return nil
}
