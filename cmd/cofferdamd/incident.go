package main

import (
	"context"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/server/incident"
	"github.com/cofferdam/cofferdam/internal/store/vault"
	"github.com/cofferdam/cofferdam/internal/store/workers"
	"github.com/cofferdam/cofferdam/internal/task"
)

// everything joins the vault with what is done to all of its rows at once.
type everything struct {
	*credential.Leases
	rows *vault.Rows
}

// RevokeAll ends everything that is lent.
func (e everything) RevokeAll(ctx context.Context, by string) (task.EndOfAll, error) {
	return e.Leases.RevokeAll(ctx, e.rows, by)
}

// machines is where workers are set apart.
func (p *plane) machines() *incident.MachineDesk {
	return &incident.MachineDesk{Workers: p.fleet, Rows: workers.New(p.store.Base()), Audit: p.audit, Now: time.Now}
}

func (p *plane) incident() *incident.Desk {
	return &incident.Desk{
		Vault: everything{p.leases, vault.New(p.store.Base())}, Machines: p.fleet, Grants: p.work, Keys: p.issuer, Log: p.log,
	}
}
