package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// ofFrozen are the requests that a sandbox which is kept as evidence answers: what
// reads, what keeps it so, and what lets it go.
func ofFrozen() map[string]bool {
	return map[string]bool{
		"GET /sandboxes/{id}":                           true,
		"GET /sandboxes/{id}/egress":                    true,
		"GET /sandboxes/{id}/denials":                   true,
		"PUT /sandboxes/{id}/grant":                     true, // of nothing
		"POST /sandboxes/{id}/get":                      true,
		"GET /sandboxes/{id}/commands":                  true,
		"GET /sandboxes/{id}/commands/{command}":        true,
		"GET /sandboxes/{id}/commands/{command}/live":   true,
		"GET /sandboxes/{id}/commands/{command}/output": true,
		"POST /sandboxes/{id}/freeze":                   true,
		"POST /sandboxes/{id}/release":                  true,
	}
}

// thawed refuses what a frozen sandbox does not answer.
func (d *Door) thawed(pattern, id string) error {
	if id == "" || !d.opts.Frozen.Has(id) || ofFrozen()[pattern] {
		return nil
	}
	return kept(id)
}

func kept(id string) error {
	return task.Fail(task.InputConflict, fmt.Sprintf("sandbox %s is kept as evidence: nothing is started, changed or ended in it until it is released (cofferdam sandbox rm --evidence %s)", id, id), nil)
}

// freeze keeps a sandbox as evidence: first that is a fact that outlives everything,
// then it reaches nothing, then nothing in it runs. A dead one is kept as it is.
func (d *Door) freeze(w http.ResponseWriter, r *http.Request) error {
	if d.opts.Frozen == nil {
		return task.Fail(task.InfraMachine, "this machine can't keep sandboxes as evidence", nil)
	}
	id := r.PathValue("id")
	info, err := d.find(r.Context(), id)
	if err != nil {
		return err
	}
	err = d.effect(r, func(ctx context.Context) error {
		if err := d.opts.Frozen.Add(id); err != nil {
			return task.Fail(task.InfraStorage, "that the sandbox is kept can't be written", err)
		}
		var errs []error
		if info.Network {
			// Connections of before are cut. One that the gateway has forgotten reaches nothing.
			if err := d.opts.Egress.SetGrant(ctx, task.Grant{Task: info.Task, Sandbox: id}); err != nil && link.ProblemOf(err).Reason != task.InputNotFound {
				errs = append(errs, err)
			}
		}
		if freezer, ok := d.opts.Driver.(sandbox.Freezer); !ok {
			errs = append(errs, task.Fail(task.InfraMachine, "this machine can't stop what runs in a sandbox", nil))
		} else if info.State == sandbox.Live {
			errs = append(errs, freezer.Freeze(ctx, id))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	info.Frozen = true
	return writeJSON(w, http.StatusOK, trim(info, maxCommands))
}

// release lets a sandbox go: from here on it is one like all others, in which
// nothing runs any more, and can be destroyed.
func (d *Door) release(w http.ResponseWriter, r *http.Request) error {
	err := d.effect(r, func(context.Context) error {
		if d.opts.Frozen == nil {
			return nil
		}
		return d.opts.Frozen.Remove(r.PathValue("id"))
	})
	if err != nil {
		return task.Fail(task.InfraStorage, "that the sandbox is released can't be written", err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
