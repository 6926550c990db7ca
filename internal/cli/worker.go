package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/workers"
)

func (a *app) workerCmd() *cobra.Command {
	return group("worker", "Look at machines and set them apart", workers.Commands(workers.Host{Host: a.host()})...)
}
