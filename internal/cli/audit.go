package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/receipts"
)

func (a *app) auditCmd() *cobra.Command {
	h := receipts.Host{Host: a.host()}
	return group("audit", "Prove what happened", receipts.Verify(h), a.auditExportCmd(), receipts.Key(h))
}
