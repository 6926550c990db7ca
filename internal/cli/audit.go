package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/receipts"
)

func (a *app) auditCmd() *cobra.Command {
	h := receipts.Host{
		Ask: a.ask, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) },
		Failed: func() error { return &exitError{1} }, In: a.In, Out: a.Out,
	}
	return group("audit", "Prove what happened", receipts.Verify(h), a.auditExportCmd(), receipts.Key(h))
}
