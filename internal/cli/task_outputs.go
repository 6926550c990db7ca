package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
)

func (a *app) taskOutputsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "outputs ID", Short: "List what a task left", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return taskOutputs(ctx, c, args[0], a.json, a.Out)
			})
		},
	}
}

func taskOutputs(ctx context.Context, c *client.Client, id string, asJSON bool, out io.Writer) error {
	t, err := c.Task(ctx, id)
	if err != nil {
		return err
	}
	if !asJSON {
		return outputTable(out, t.Outputs)
	}
	if t.Outputs == nil {
		t.Outputs = []api.Output{}
	}
	return printJSON(out, struct {
		Task    string       `json:"task"`
		Outputs []api.Output `json:"outputs"`
	}{t.ID, t.Outputs})
}
