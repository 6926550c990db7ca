package client

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// AddCredential puts a credential into the vault. It is sent again only when
// the server was not reached at all.
func (c *Client) AddCredential(ctx context.Context, req api.CredentialRequest) (api.Credential, error) {
	var out api.Credential
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("credentials"), once: true}, req, &out)
	return out, err
}

// Credentials lists the credentials that the caller may see, without their
// values.
func (c *Client) Credentials(ctx context.Context) ([]api.Credential, error) {
	var l api.CredentialList
	err := c.get(ctx, pathf("credentials"), nil, &l)
	return l.Credentials, err
}

// RevokeCredential wipes a credential's value and ends what is lent of it.
func (c *Client) RevokeCredential(ctx context.Context, name string) (api.CredentialEnd, error) {
	var end api.CredentialEnd
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("credentials", name, "revoke")}, nil, &end)
	return end, err
}

// RemoveCredential revokes a credential and forgets it.
func (c *Client) RemoveCredential(ctx context.Context, name string) (api.CredentialEnd, error) {
	var end api.CredentialEnd
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("credentials", name), once: true}, nil, &end)
	return end, err
}
