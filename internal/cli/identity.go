package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/runidentity"
)

func (a *app) identityCmd() *cobra.Command {
	return group("identity", "The tokens that say who a run is: their issuer and its keys", runidentity.Commands(runidentity.Host{Host: a.host()})...)
}
