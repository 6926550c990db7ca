package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/traffic"
)

func (a *app) taskEgressCmd() *cobra.Command {
	return traffic.Command(traffic.Host{
		Stay: a.stay, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) }, Out: a.Out,
	})
}
