package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/cofferdam/cofferdam/api"
)

// Approvals lists what waits for an answer, newest first; with all, what was
// answered too. task, when not empty, is the only task meant.
func (c *Client) Approvals(ctx context.Context, all bool, task string) ([]api.Approval, error) {
	q := url.Values{}
	if all {
		q.Set("all", "true")
	}
	if task != "" {
		q.Set("task", task)
	}
	var l api.ApprovalList
	err := c.get(ctx, pathf("approvals"), q, &l)
	return l.Approvals, err
}

// Approval gives one question and its answer.
func (c *Client) Approval(ctx context.Context, id string) (api.Approval, error) {
	var a api.Approval
	err := c.get(ctx, pathf("approvals", id), nil, &a)
	return a, err
}

// Decide answers a question. It is sent again only when the server was not
// reached at all.
func (c *Client) Decide(ctx context.Context, id string, answer api.ApprovalAnswer) (api.Approval, error) {
	var a api.Approval
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("approvals", id, "decide"), once: true}, answer, &a)
	return a, err
}

// Decisions lists answers that stand, newest first; with all, those that ended
// too.
func (c *Client) Decisions(ctx context.Context, all bool) ([]api.Decision, error) {
	q := url.Values{}
	if all {
		q.Set("all", "true")
	}
	var l api.DecisionList
	err := c.get(ctx, pathf("decisions"), q, &l)
	return l.Decisions, err
}

// WithdrawDecision takes a decision back, or with the id of an approval an
// answer for one use, and has what passes under it cut.
func (c *Client) WithdrawDecision(ctx context.Context, id string) (api.DecisionEnd, error) {
	var end api.DecisionEnd
	_, err := c.json(ctx, call{method: http.MethodPost, path: pathf("decisions", id, "withdraw")}, nil, &end)
	return end, err
}
