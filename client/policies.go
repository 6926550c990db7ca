package client

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// ExplainPolicy tells what a policy comes to, line by line.
func (c *Client) ExplainPolicy(ctx context.Context, q api.PolicyQuestion) (api.PolicyExplanation, error) {
	var e api.PolicyExplanation
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("policy", "explain")}, q, &e)
	return e, err
}

// CheckPolicy runs the examples of a policy file.
func (c *Client) CheckPolicy(ctx context.Context, q api.PolicyQuestion) (api.PolicyCheck, error) {
	var r api.PolicyCheck
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("policy", "check")}, q, &r)
	return r, err
}

// SetProject sets a project's policy layer.
func (c *Client) SetProject(ctx context.Context, name, text string) (api.Project, error) {
	var p api.Project
	_, err := c.json(ctx, call{method: http.MethodPut, path: pathf("projects", name)}, api.ProjectRequest{Text: text}, &p)
	return p, err
}

// Project returns a project's policy layer.
func (c *Client) Project(ctx context.Context, name string) (api.Project, error) {
	var p api.Project
	err := c.get(ctx, pathf("projects", name), nil, &p)
	return p, err
}

// Projects lists the projects' policy layers without their texts.
func (c *Client) Projects(ctx context.Context) ([]api.Project, error) {
	var l api.ProjectList
	err := c.get(ctx, pathf("projects"), nil, &l)
	return l.Projects, err
}

// RemoveProject forgets a project's policy layer.
func (c *Client) RemoveProject(ctx context.Context, name string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("projects", name), once: true}, nil, nil)
	return err
}
