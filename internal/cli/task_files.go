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

func (a *app) taskFilesCmd() *cobra.Command {
	return &cobra.Command{
		Use: "files ID", Short: "List what was refused on a task's protected files", Args: cobra.ExactArgs(1),
		Long: "Lists each write to a protected file, and each reading of a hidden one, that the sandbox's kernel refused. " +
			"What is protected is said by cofferdam policy explain; a stage's text says what was widened.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return taskFiles(ctx, c, args[0], a.json, a.Out)
			})
		},
	}
}

func taskFiles(ctx context.Context, c *client.Client, id string, asJSON bool, out io.Writer) error {
	list, err := c.FileDenials(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		if list == nil {
			list = []api.FileDenial{}
		}
		return printJSON(out, struct {
			Task    string           `json:"task"`
			Denials []api.FileDenial `json:"denials"`
		}{id, list})
	}
	rows := make([][]string, 0, len(list))
	for _, d := range list {
		rows = append(rows, []string{
			d.Time.Local().Format(time.DateTime), d.Operation, d.Path, d.Error, d.Program, strconv.FormatInt(max(d.Count, 1), 10),
		})
	}
	return show.Table(out, []string{"TIME", "OPERATION", "PATH", "ERROR", "PROGRAM", "COUNT"}, rows)
}
