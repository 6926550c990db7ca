package client

import (
	"context"
	"io"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// FreezeSandbox keeps a sandbox as evidence: nothing runs in it and it reaches
// nothing until it is released. It may be repeated.
func (c *Client) FreezeSandbox(ctx context.Context, id string, req api.Freezing) (api.FrozenSandbox, error) {
	var out api.FrozenSandbox
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("sandboxes", id, "freeze")}, req, &out)
	return out, err
}

// FrozenSandboxes lists the sandboxes that are kept.
func (c *Client) FrozenSandboxes(ctx context.Context) ([]api.FrozenSandbox, error) {
	var out api.FrozenList
	err := c.get(ctx, pathf("evidence"), nil, &out)
	return out.Sandboxes, err
}

// Evidence gives what was found in a frozen sandbox, as one archive (a tar file).
func (c *Client) Evidence(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: pathf("sandboxes", id, "evidence")})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// ReleaseEvidence lets a frozen sandbox go and destroys it. It may be repeated.
func (c *Client) ReleaseEvidence(ctx context.Context, id string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("sandboxes", id, "evidence")}, nil, nil)
	return err
}
