package host

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// Freeze stops every process of the sandbox but the guest, for good. It may be
// repeated.
func (c *Conn) Freeze(ctx context.Context) error {
	_, err := c.call(ctx, guest.Freeze, nil)
	return wrap("freeze", err)
}
