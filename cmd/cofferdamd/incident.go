package main

import (
	"context"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/server/evidence"
	"github.com/cofferdam/cofferdam/internal/server/incident"
	"github.com/cofferdam/cofferdam/internal/store/frozen"
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

// evidence is where sandboxes are kept as they were found.
func (p *plane) evidence() *evidence.Desk {
	return &evidence.Desk{
		Rows: frozen.New(p.store.Base()), Places: p.fleet, Finds: p.fleet, Leases: p.leases, Tasks: p.store, Engine: p.engine, Account: p.audit,
		Dir: p.dir, Now: time.Now, Log: p.log,
	}
}

func (p *plane) incident() *incident.Desk {
	return &incident.Desk{
		Vault: everything{p.leases, vault.New(p.store.Base())}, Machines: p.fleet, Grants: p.work, Keys: p.issuer, Log: p.log,
	}
}
