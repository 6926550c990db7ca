package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/traffic"
)

func (a *app) taskEgressCmd() *cobra.Command {
	return traffic.Command(traffic.Host{Host: a.host()})
}
