package client

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// RevokeEverything wipes every credential's value and ends everything that is
// lent. It may be repeated.
func (c *Client) RevokeEverything(ctx context.Context, req api.RevokeEverything) (api.EverythingRevoked, error) {
	var out api.EverythingRevoked
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("incident", "revoke")}, req, &out)
	return out, err
}

// MarkWorker sets a worker apart. It may be repeated.
func (c *Client) MarkWorker(ctx context.Context, name string, req api.WorkerMarking) (api.WorkerMarked, error) {
	var out api.WorkerMarked
	_, err := c.json(ctx, call{method: http.MethodPut, path: pathf("workers", name, "mark")}, req, &out)
	return out, err
}

// ReleaseWorker lets a worker take part again.
func (c *Client) ReleaseWorker(ctx context.Context, name string) (api.WorkerMarked, error) {
	var out api.WorkerMarked
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("workers", name, "mark")}, nil, &out)
	return out, err
}
