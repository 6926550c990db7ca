package client

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// Keys lists the keys of the installation, without any of them.
func (c *Client) Keys(ctx context.Context) ([]api.Key, error) {
	var out api.KeyList
	err := c.get(ctx, pathf("keys"), nil, &out)
	return out.Keys, err
}

// RotateKey has a key made anew. It is sent again only when the server was not
// reached at all.
func (c *Client) RotateKey(ctx context.Context, name string, req api.KeyRotation) (api.KeyRotated, error) {
	var out api.KeyRotated
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("keys", name, "rotate"), once: true}, req, &out)
	return out, err
}
