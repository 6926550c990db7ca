package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/credentials"
)

func (a *app) credentialCmd() *cobra.Command {
	return group("credential", "Keep the keys that tasks use without seeing them", credentials.Commands(credentials.Host{
		Ask: a.ask, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) },
		In: a.In, Out: a.Out, Err: a.Err,
	})...)
}
