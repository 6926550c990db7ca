package client

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// InstallAgent has the workers begin to install an agent's program, and says
// where each stands; ask Agents how it goes on. An empty version is the one that
// the server's release was tried with. Asking again is harmless.
func (c *Client) InstallAgent(ctx context.Context, name, version string) (api.InstalledAgentList, error) {
	var l api.InstalledAgentList
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("agents")}, api.AgentInstallRequest{Name: name, Version: version}, &l)
	return l, err
}

// Agents lists the agents' programs on the workers.
func (c *Client) Agents(ctx context.Context) (api.InstalledAgentList, error) {
	var l api.InstalledAgentList
	err := c.get(ctx, pathf("agents"), nil, &l)
	return l, err
}

// RemoveAgent removes an agent's program from the workers.
func (c *Client) RemoveAgent(ctx context.Context, name, version string) (api.AgentRemoval, error) {
	var r api.AgentRemoval
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("agents", name, version)}, nil, &r)
	return r, err
}
