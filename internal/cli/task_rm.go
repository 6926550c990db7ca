package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/outputs"
)

func (a *app) taskRmCmd() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rm ID", Short: "Remove a task and all that it left", Args: cobra.ExactArgs(1),
		Long: `Remove a task that has ended: its rows, events, logs, egress records and outputs, and
the bytes that no other task refers to.

What stays is said in the answer: its records in the audit, its receipt, which verifies
as before, and its id, owner and the digest of its idempotency key, which makes no
other task.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				r, err := outputs.Remove(ctx, c, args[0], force)
				if err != nil {
					return err
				}
				if a.json {
					return printJSON(a.Out, r)
				}
				return outputs.PrintRemoval(a.Out, r)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "cancel it first if it has not ended")
	return cmd
}
