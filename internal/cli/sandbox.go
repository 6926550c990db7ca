package cli

import (
	"regexp"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/evidence"
	"github.com/cofferdam/cofferdam/internal/cli/receipts"
)

// sandboxID is what the server takes as a sandbox's id.
var sandboxID = regexp.MustCompile(`^sb-[a-z2-7]{16}$`)

func (a *app) sandboxCmd() *cobra.Command {
	kept := evidence.Commands(evidence.Host{
		Ask: a.ask, Stay: a.stay, JSON: func() bool { return a.json }, Print: func(v any) error { return printJSON(a.Out, v) }, Out: a.Out,
		Keys: receipts.Keys, Failed: func() error { return &exitError{1} },
	})
	return group("sandbox", "Make sandboxes by hand and work in them, and keep them as evidence", append(kept,
		a.sandboxCreateCmd(), a.sandboxExecCmd(), a.sandboxShellCmd(), a.sandboxAttachCmd(), a.sandboxPsCmd(), a.sandboxKillCmd(), a.sandboxCpCmd(), a.sandboxFileCmd(), a.sandboxLsCmd(), a.sandboxRmCmd())...)
}
