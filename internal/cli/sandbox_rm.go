package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
)

func (a *app) sandboxRmCmd() *cobra.Command {
	kept := false
	cmd := &cobra.Command{
		Use: "rm ID...", Short: "Destroy sandboxes and everything in them", Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.sandboxRm(ctx, c, args, kept) })
		},
	}
	cmd.Flags().BoolVar(&kept, "evidence", false, "also sandboxes that are kept as evidence, which are let go")
	return cmd
}

// sandboxRm removes as many as it can, and fails with the first failure.
func (a *app) sandboxRm(ctx context.Context, c *client.Client, ids []string, kept bool) error {
	for _, id := range ids {
		if !sandboxID.MatchString(id) {
			return usage("%q is not the id of a sandbox", id)
		}
	}
	removed := []string{}
	var failed error
	for _, id := range ids {
		remove := c.RemoveSandbox
		if kept {
			remove = c.ReleaseEvidence
		}
		err := remove(ctx, id)
		switch {
		case err == nil:
			removed = append(removed, id)
			if !a.json {
				fmt.Fprintln(a.Out, id)
			}
		case failed == nil:
			failed = fmt.Errorf("%s: %w", id, err)
		case !a.json:
			a.report(fmt.Errorf("%s: %w", id, err), false)
		}
	}
	if !a.json || len(removed) == 0 && failed != nil {
		return failed
	}
	d := newDocument(a.Out)
	d.field("removed", removed)
	return d.end(failed)
}
