package credentials

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// everything ends all that is lent, and tells what was not reached.
func (h Host) everything(cmd *cobra.Command, args []string, all, keys bool) error {
	if len(args) > 0 || !all {
		return host.Invalid("--all revokes every credential and takes no NAME; --keys goes with it")
	}
	return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
		end, err := c.RevokeEverything(ctx, api.RevokeEverything{Keys: keys})
		if err != nil {
			return err
		}
		if h.JSON() {
			return h.Print(end)
		}
		fmt.Fprintf(h.Out, "%d credentials revoked; %d leases ended\n", end.Credentials, end.Leases)
		for _, m := range end.Machines {
			if m.Cut {
				fmt.Fprintf(h.Out, "worker %s: connections under %d leases are cut\n", show.Line(m.Worker), m.Leases)
			} else {
				fmt.Fprintf(h.Err, "cofferdam: worker %s did not answer; what it was lent ends within a minute; ask again when it is back\n", show.Line(m.Worker))
			}
		}
		if end.Minted > 0 {
			fmt.Fprintf(h.Out, "%d minted values are being revoked at who made them\n", end.Minted)
		}
		if end.Keys != "" {
			fmt.Fprintf(h.Out, "key of the runs' tokens: %s\n", show.Line(end.Keys))
		}
		return nil
	})
}
