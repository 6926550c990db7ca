package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/policies"
)

func (a *app) policyCmd() *cobra.Command {
	return group("policy", "Explain and check policies, and keep those of projects", policies.Commands(policies.Host{
		Host:   a.host(),
		Read:   func(path string) (string, error) { return readPolicy(path, a.In) },
		Failed: func() error { return &exitError{api.ExitCode("policy.denied")} },
	})...)
}
