package cli

import "github.com/cofferdam/cofferdam/internal/cli/approvals"

// approvals is what the commands of the inbox are part of.
func (a *app) approvals() approvals.Host {
	return approvals.Host{Host: a.host()}
}
