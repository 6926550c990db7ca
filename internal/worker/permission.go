package worker

import (
	"context"
	"net/http"
	"strconv"

	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// protector is the driver as far as it protects files.
func (d *Door) protector() (sandbox.Protector, error) {
	p, ok := d.opts.Driver.(sandbox.Protector)
	if !ok {
		return nil, task.Fail(task.InfraMachine, "this machine's sandboxes can't protect files", nil)
	}
	return p, nil
}

// protect takes rights on the workspace's files away.
func (d *Door) protect(w http.ResponseWriter, r *http.Request) error {
	var rules task.FileRules
	if err := read(r, &rules); err != nil {
		return err
	}
	p, err := d.protector()
	if err != nil {
		return err
	}
	var done task.FileProtection
	err = d.effect(r, func(ctx context.Context) (err error) {
		done, err = p.Protect(ctx, r.PathValue("id"), rules)
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, done)
}

// denials answers with a page of what was refused.
func (d *Door) denials(w http.ResponseWriter, r *http.Request) error {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil || after < 0 {
		return task.Fail(task.InputInvalid, "after is not a sequence number", err)
	}
	p, err := d.protector()
	if err != nil {
		return err
	}
	list, err := p.Denials(r.Context(), r.PathValue("id"), after)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, link.DenialList{Denials: list[:min(len(list), link.MaxDenials)]})
}
