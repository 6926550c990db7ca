package client

import (
	"context"

	"github.com/cofferdam/cofferdam/api"
)

// FileDenials returns what was refused on protected files in the task's
// sandboxes.
func (c *Client) FileDenials(ctx context.Context, id string) ([]api.FileDenial, error) {
	var l api.FileDenialList
	err := c.get(ctx, pathf("tasks", id, "files"), nil, &l)
	return l.Denials, err
}
