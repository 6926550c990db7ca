package client

import (
	"context"
	"io"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// The documents that relying parties look up, beneath the issuer.
const (
	DiscoveryPath    = "/.well-known/openid-configuration"
	IdentityKeysPath = "/.well-known/jwks.json"
)

// maxDocument bounds a published document.
const maxDocument = 1 << 20

// RunIdentity tells the issuer of the tokens that say who a run is.
func (c *Client) RunIdentity(ctx context.Context) (api.RunIdentity, error) {
	var out api.RunIdentity
	err := c.get(ctx, pathf("identity"), nil, &out)
	return out, err
}

// RotateIdentity asks for a new key. It is sent again only when the server was
// not reached at all.
func (c *Client) RotateIdentity(ctx context.Context, req api.IdentityRotation) (api.RunIdentity, error) {
	var out api.RunIdentity
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("identity", "rotate"), once: true}, req, &out)
	return out, err
}

// Published gives a document that relying parties look up, as it is served.
func (c *Client) Published(ctx context.Context, path string) ([]byte, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, maxDocument))
}
