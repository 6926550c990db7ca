package receipts

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Key returns the command that prints what verifies.
func Key(h Host) *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use: "key", Short: "Print the key that receipts are verified with", Args: cobra.NoArgs,
		Long: `Print the public key that receipts are verified with. Take a copy when the installation
is made, and keep it elsewhere: a key that is fetched from a server at the time of
verifying proves nothing against that server. With --all, those before it too, the oldest
first: what was signed before a rotation is verified with them.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				key, err := c.AuditKey(ctx)
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(key)
				}
				for _, one := range key.Former {
					if all {
						fmt.Fprintln(h.Out, show.Line(one))
					}
				}
				_, err = fmt.Fprintln(h.Out, show.Line(key.Key))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also the keys that signed before it")
	return cmd
}
