package policies

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

func (h Host) project() *cobra.Command {
	cmd := &cobra.Command{
		Use: "project", Short: "Keep the policy layers of projects", Args: cobra.NoArgs,
		Long: `Keep the policy layers of projects. "cofferdam run --project NAME" puts a task
beneath one: it may reach what the project says, or less.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return &api.Problem{Code: "input.invalid", Detail: "cofferdam policy project: give one of its commands; see cofferdam policy project --help"}
		},
	}
	cmd.AddCommand(h.projectSet(), h.projectShow(), h.projectLs(), h.projectRm())
	return cmd
}

func (h Host) projectSet() *cobra.Command {
	return &cobra.Command{
		Use: "set NAME FILE", Short: "Set a project's layer, after the examples in it held", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := h.Read(args[1])
			if err != nil {
				return err
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				p, err := c.SetProject(ctx, args[0], text)
				return h.told(p, err, func(out io.Writer) error {
					_, err := fmt.Fprintf(out, "project %s: %s\n", show.Line(p.Name), show.Line(p.Digest))
					return err
				})
			})
		},
	}
}

// told prints a project, as a document or as shown says.
func (h Host) told(p api.Project, err error, shown func(io.Writer) error) error {
	if err != nil {
		return err
	}
	if h.JSON() {
		return h.Print(p)
	}
	return shown(h.Out)
}

func (h Host) projectShow() *cobra.Command {
	return &cobra.Command{
		Use: "show NAME", Short: "Print a project's layer", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				p, err := c.Project(ctx, args[0])
				return h.told(p, err, func(out io.Writer) error {
					_, err := fmt.Fprintln(out, show.Text(p.Text))
					return err
				})
			})
		},
	}
}

func (h Host) projectLs() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the projects that have a layer", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return host.List(cmd.Context(), h.Host, (*client.Client).Projects, func(list []api.Project) any { return api.ProjectList{Projects: list} },
				[]string{"PROJECT", "SET BY", "AT", "DIGEST"}, func(p api.Project) []string {
					return []string{p.Name, p.By, p.At.Local().Format(time.DateTime), p.Digest}
				})
		},
	}
}

func (h Host) projectRm() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "Forget a project's layer; its tasks keep their copy", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if err := c.RemoveProject(ctx, args[0]); err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(struct {
						Removed string `json:"removed"`
					}{args[0]})
				}
				return nil
			})
		},
	}
}
