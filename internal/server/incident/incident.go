// Package incident is the part of the server for when something is wrong:
// everything that is lent is ended at once, a machine is set apart, keys are
// changed. Only administrators come here. It translates and decides nothing.
package incident

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Vault ends what is lent. Implemented by credential.
type Vault interface {
	RevokeAll(ctx context.Context, by string) (task.EndOfAll, error)
	// Unrevoked counts the minted values that are not known to be over.
	Unrevoked(ctx context.Context) (int, error)
}

// Machines knows where sandboxes are. Implemented by fleet.
type Machines interface {
	// Where names the worker that has the sandbox; task.InputNotFound: none has.
	Where(ctx context.Context, sandbox string) (string, error)
}

// Grants takes leases that ended out of the grants of their sandboxes.
// Implemented by stage/steps.
type Grants interface {
	Withdraw(ctx context.Context, ended []task.Lent) error
}

// Keys are those of the runs' tokens. Implemented by identity/issuer.
type Keys interface {
	URL() string // empty: there are none
	Rotate(ctx context.Context, algorithm, by string, now bool) ([]issuer.Key, error)
}

// Desk answers. All fields are required.
type Desk struct {
	Vault    Vault
	Machines Machines
	Grants   Grants
	Keys     Keys
	Log      *slog.Logger
}

// Describe registers its operations.
func (d *Desk) Describe(door *operation.Door) {
	operation.Register(door, operation.Operation{
		ID: "revoke-everything", Method: http.MethodPost, Path: "/v1/incident/revoke", Access: operation.Admins, Status: http.StatusOK,
		Summary: "Wipe every credential's value, end everything that is lent and cut its connections, at once", Max: 4 << 10,
	}, d.revoke)
}

type revocation struct{ Body api.RevokeEverything }

type revoked struct{ Body api.EverythingRevoked }

// revoke first makes it a fact that nothing is lent, then cuts what is open, and
// last makes the keys new, which may fail without the rest being undone.
func (d *Desk) revoke(ctx context.Context, in *revocation) (*revoked, error) {
	by := operation.Who(ctx).User
	end, err := d.Vault.RevokeAll(ctx, by)
	if err != nil {
		return nil, err
	}
	// A client that went away does not stop it.
	ctx = context.WithoutCancel(ctx)
	out := api.EverythingRevoked{Credentials: end.Credentials, Leases: end.Leases, Machines: d.cut(ctx, end.Cut)}
	if out.Minted, err = d.Vault.Unrevoked(ctx); err != nil {
		return nil, err
	}
	if in.Body.Keys {
		out.Keys = "this installation has none"
		if d.Keys.URL() != "" {
			out.Keys = "rotated"
			if _, err := d.Keys.Rotate(ctx, "", by, true); err != nil {
				d.Log.ErrorContext(ctx, "everything was revoked, and the keys of the runs' tokens were not made new", "error", err.Error())
				out.Keys = "not rotated: " + problem.Of(err).Detail
			}
		}
	}
	return &revoked{out}, nil
}

// cutLimit bounds how long a machine may take to cut. What a machine that does not
// answer was lent ends by itself.
const cutLimit = 10 * time.Second

// cut has the connections of ended leases cut, on all machines at one time.
func (d *Desk) cut(ctx context.Context, ended []task.Lent) []api.MachineCut {
	ctx, cancel := context.WithTimeout(ctx, cutLimit)
	defer cancel()
	of := map[string][]task.Lent{}
	for _, l := range ended {
		worker, err := d.Machines.Where(ctx, l.Sandbox)
		if problem.Of(err).Code == string(task.InputNotFound) {
			continue // the sandbox is gone, and what it had open with it
		}
		if err != nil {
			worker = "unknown"
		}
		of[worker] = append(of[worker], l)
	}
	out := make([]api.MachineCut, 0, len(of))
	var mu sync.Mutex
	var running sync.WaitGroup
	for worker, list := range of {
		running.Go(func() {
			one := api.MachineCut{Worker: worker, Leases: len(list), Cut: true}
			if err := d.Grants.Withdraw(ctx, list); err != nil {
				d.Log.WarnContext(ctx, "everything was revoked, and a machine was not told; what it holds ends by itself", "worker", worker, "error", err.Error())
				one.Cut = false
			}
			mu.Lock()
			defer mu.Unlock()
			out = append(out, one)
		})
	}
	running.Wait()
	slices.SortFunc(out, func(a, b api.MachineCut) int {
		if a.Worker < b.Worker {
			return -1
		}
		return 1
	})
	return out
}
