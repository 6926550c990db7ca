package gvisor

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/sandbox"
)

var _ sandbox.Freezer = (*Driver)(nil)

// Freeze implements sandbox.Freezer. The guest goes on, so that files can be read.
func (d *Driver) Freeze(ctx context.Context, id string) error {
	b, err := d.alive(id)
	if err != nil {
		return err
	}
	return b.failure(b.conn.Freeze(ctx))
}
