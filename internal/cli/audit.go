package cli

import "github.com/spf13/cobra"

func (a *app) auditCmd() *cobra.Command {
	return group("audit", "Prove what happened", a.auditVerifyCmd(), a.auditExportCmd(), a.auditKeyCmd())
}
