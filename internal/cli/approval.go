package cli

import "github.com/cofferdam/cofferdam/internal/cli/approvals"

// approvals is what the commands of the inbox are part of.
func (a *app) approvals() approvals.Host {
	return approvals.Host{
		Ask: a.ask, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) },
		Out: a.Out, Err: a.Err,
	}
}
