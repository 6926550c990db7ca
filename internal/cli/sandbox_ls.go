package cli

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

func (a *app) sandboxLsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List sandboxes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error { return sandboxLs(ctx, c, a.json, a.Out) })
		},
	}
}

func sandboxLs(ctx context.Context, c *client.Client, asJSON bool, out io.Writer) error {
	list, err := c.Sandboxes(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		if list == nil {
			list = []api.Sandbox{}
		}
		return printJSON(out, api.SandboxList{Sandboxes: list})
	}
	rows := make([][]string, 0, len(list))
	for _, s := range list {
		network := "none"
		if s.Network {
			network = "gateway"
		}
		state := s.State
		if s.Reason != "" {
			state += " (" + s.Reason + ")"
		}
		running := 0
		for _, cmd := range s.Commands {
			if cmd.Phase == api.CommandRunning {
				running++
			}
		}
		rows = append(rows, []string{s.ID, state, s.Role, s.Task, s.Owner, s.Worker, network, strconv.Itoa(running), show.Span(time.Since(s.CreatedAt))})
	}
	return show.Table(out, []string{"SANDBOX", "STATE", "ROLE", "TASK", "OWNER", "WORKER", "NETWORK", "RUNNING", "AGE"}, rows)
}
