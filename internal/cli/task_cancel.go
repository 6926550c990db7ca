package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

func (a *app) taskCancelCmd() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{
		Use: "cancel ID", Short: "Ask for a task's end", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return taskCancel(ctx, c, args[0], wait, a.json, a.Out)
			})
		},
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "return when the task has ended")
	return cmd
}

func taskCancel(ctx context.Context, c *client.Client, id string, wait, asJSON bool, out io.Writer) error {
	if err := c.CancelTask(ctx, id); err != nil {
		return err
	}
	if wait {
		if err := c.WatchTask(ctx, id, 0, func(api.Event) error { return nil }); err != nil {
			return err
		}
	}
	t, err := c.Task(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, t)
	}
	if t.Ended() {
		_, err = fmt.Fprintf(out, "task %s has ended: %s\n", show.Line(t.ID), show.Line(t.State))
		return err
	}
	_, err = fmt.Fprintf(out, "task %s is asked to end\n", show.Line(t.ID))
	return err
}
