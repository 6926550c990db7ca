package cli

import "github.com/cofferdam/cofferdam/internal/cli/budgets"

// budgets is what the commands about budgets are part of.
func (a *app) budgets() budgets.Host {
	return budgets.Host{Ask: a.ask, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) }, Out: a.Out}
}
