package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/cp"
)

func (a *app) sandboxCpCmd() *cobra.Command {
	return cp.Command(cp.Host{
		Stay: a.stay, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) },
		Usage: usage, Size: parseSize, Failed: func() error { return &exitError{1} }, Err: a.Err,
	})
}
