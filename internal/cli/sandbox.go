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
	kept := evidence.Commands(evidence.Host{Host: a.host(), Keys: receipts.Keys})
	return group("sandbox", "Make sandboxes by hand and work in them, and keep them as evidence", append(kept,
		a.sandboxCreateCmd(), a.sandboxExecCmd(), a.sandboxShellCmd(), a.sandboxAttachCmd(), a.sandboxPsCmd(), a.sandboxKillCmd(), a.sandboxCpCmd(), a.sandboxFileCmd(), a.sandboxLsCmd(), a.sandboxRmCmd())...)
}
