package cli

import "github.com/cofferdam/cofferdam/internal/cli/budgets"

// budgets is what the commands about budgets are part of.
func (a *app) budgets() budgets.Host {
	return budgets.Host{Host: a.host()}
}
