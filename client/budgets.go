package client

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
)

// Budgets lists the budgets of users and projects; who is no administrator sees
// the own.
func (c *Client) Budgets(ctx context.Context) ([]api.Budget, error) {
	var l api.BudgetList
	err := c.get(ctx, pathf("budgets"), nil, &l)
	return l.Budgets, err
}

// SetBudget changes the budget of a user or a project.
func (c *Client) SetBudget(ctx context.Context, scope, name string, change api.BudgetChange) (api.Budget, error) {
	var b api.Budget
	_, err := c.json(ctx, call{method: http.MethodPut, path: pathf("budgets", scope, name)}, change, &b)
	return b, err
}

// RemoveBudget forgets it.
func (c *Client) RemoveBudget(ctx context.Context, scope, name string) error {
	_, err := c.json(ctx, call{method: http.MethodDelete, path: pathf("budgets", scope, name)}, nil, nil)
	return err
}

// TaskBudget tells what a task used of models, and the budgets that bind it.
func (c *Client) TaskBudget(ctx context.Context, id string) (api.TaskBudget, error) {
	var b api.TaskBudget
	err := c.get(ctx, pathf("tasks", id, "budget"), nil, &b)
	return b, err
}

// SetTaskBudget changes a task's own budget; a task that waits goes on where
// there is room again.
func (c *Client) SetTaskBudget(ctx context.Context, id string, change api.BudgetChange) (api.TaskBudget, error) {
	var b api.TaskBudget
	_, err := c.json(ctx, call{method: http.MethodPut, path: pathf("tasks", id, "budget")}, change, &b)
	return b, err
}
