package fleet

import (
	"context"
	"fmt"
	"net/http"

	"github.com/cofferdam/cofferdam/internal/sandbox"
)

// Freeze keeps a sandbox as evidence: it reaches nothing, nothing in it runs, and
// nobody works in it or cleans it up until Release. It may be repeated.
func (f *Fleet) Freeze(ctx context.Context, id string) (info sandbox.Info, err error) {
	err = f.at(ctx, id, func(ctx context.Context, c *conn) error {
		info = sandbox.Info{}
		if err := c.exchange(ctx, http.MethodPost, sandboxPath(id)+"/freeze", nil, &info); err != nil {
			return err
		}
		if info.ID != id || !info.Frozen {
			return protocol(c.worker, fmt.Errorf("asked to freeze %s, got %q", id, info.ID))
		}
		return nil
	})
	return info, err
}

// Release lets a sandbox go that was kept. Destroy it next: nothing in it runs. One
// that nobody has is no error.
func (f *Fleet) Release(ctx context.Context, id string) error {
	return f.at(ctx, id, func(ctx context.Context, c *conn) error {
		return c.exchange(ctx, http.MethodPost, sandboxPath(id)+"/release", nil, nil)
	})
}

// Remember tells where a sandbox is of which the placement may be forgotten.
func (f *Fleet) Remember(id, worker string) { f.places.set(id, worker) }
