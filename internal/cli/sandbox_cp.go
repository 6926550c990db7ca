package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/cp"
)

func (a *app) sandboxCpCmd() *cobra.Command {
	return cp.Command(cp.Host{Host: a.host(), Usage: usage, Size: parseSize})
}
