package cli

import (
	"regexp"

	"github.com/spf13/cobra"
)

// sandboxID is what the server takes as a sandbox's id.
var sandboxID = regexp.MustCompile(`^sb-[a-z2-7]{16}$`)

func (a *app) sandboxCmd() *cobra.Command {
	return group("sandbox", "Make sandboxes by hand and work in them",
		a.sandboxCreateCmd(), a.sandboxExecCmd(), a.sandboxShellCmd(), a.sandboxAttachCmd(), a.sandboxPsCmd(), a.sandboxKillCmd(), a.sandboxCpCmd(), a.sandboxFileCmd(), a.sandboxLsCmd(), a.sandboxRmCmd())
}
