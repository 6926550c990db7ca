package cli

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

type taskLsOptions struct {
	limit  int
	before string
	all    bool
	json   bool
}

func (a *app) taskLsCmd() *cobra.Command {
	var o taskLsOptions
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List tasks, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.json = a.json
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error { return taskLs(ctx, c, o, a.Out) })
		},
	}
	cmd.Flags().IntVar(&o.limit, "limit", 50, "tasks on a page")
	cmd.Flags().StringVar(&o.before, "before", "", "go on from there: the `next` of the page before")
	cmd.Flags().BoolVar(&o.all, "all", false, "every page")
	return cmd
}

func taskLs(ctx context.Context, c *client.Client, o taskLsOptions, out io.Writer) error {
	if o.limit < 1 {
		return usage("--limit %d: must be at least 1", o.limit)
	}
	list, err := c.Tasks(ctx, o.limit, o.before)
	for err == nil && o.all && list.Next != "" {
		var more api.TaskList
		more, err = c.Tasks(ctx, o.limit, list.Next)
		list.Tasks, list.Next = append(list.Tasks, more.Tasks...), more.Next
	}
	if err != nil {
		return err
	}
	if list.Tasks == nil {
		list.Tasks = []api.Task{}
	}
	if o.json {
		return printJSON(out, list)
	}
	rows := make([][]string, 0, len(list.Tasks))
	for _, t := range list.Tasks {
		rows = append(rows, []string{t.ID, t.State, t.Reason, t.CreatedAt.Local().Format(time.DateTime), lasted(t), t.Repo, t.Ref})
	}
	return show.Table(out, []string{"TASK", "STATE", "REASON", "CREATED", "TIME", "REPOSITORY", "REF"}, rows)
}

// lasted is how long a task took, or takes by now.
func lasted(t api.Task) string {
	if t.EndedAt != nil {
		return show.Span(t.EndedAt.Sub(t.CreatedAt))
	}
	return show.Span(time.Since(t.CreatedAt))
}
