package cli

import (
	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/files"
)

func (a *app) sandboxFileCmd() *cobra.Command {
	return group("file", "Work on single files of a sandbox", files.Commands(files.Host{Host: a.host(), Usage: usage, Terminal: func() bool { return terminal(a.Out) }})...)
}
