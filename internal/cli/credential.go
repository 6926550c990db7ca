package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/credentials"
)

func (a *app) credentialCmd() *cobra.Command {
	return group("credential", "Keep the keys that tasks use without seeing them", credentials.Commands(credentials.Host{Host: a.host()})...)
}
