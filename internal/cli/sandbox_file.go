package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/files"
)

func (a *app) sandboxFileCmd() *cobra.Command {
	return group("file", "Work on single files of a sandbox", files.Commands(files.Host{
		Ask: a.ask, Stay: a.stay, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) },
		Usage: usage, Terminal: func() bool { return terminal(a.Out) }, In: a.In, Out: a.Out,
	})...)
}
