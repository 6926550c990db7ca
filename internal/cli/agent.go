package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/agents"
)

func (a *app) agentCmd() *cobra.Command {
	install := &cobra.Command{
		Use: "install NAME[@VERSION]", Short: "Install an agent's program on the workers", Args: cobra.ExactArgs(1),
		Long: `Install an agent's program on the workers: claude, codex, gemini or opencode. Without
a version it is the one this release was tried with, whose digest is part of the
release; another is checked against the registry's own digest. Nothing of it runs
outside of sandboxes.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := agents.Install(ctx, c, args[0], progressOn(a.Err, a.json).Note)
				switch {
				case err != nil:
					return err
				case a.json:
					return printJSON(a.Out, list)
				}
				return agents.Table(a.Out, list)
			})
		},
	}
	ls := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the agents' programs on the workers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.Agents(ctx)
				switch {
				case err != nil:
					return err
				case a.json:
					return printJSON(a.Out, list)
				}
				return agents.Table(a.Out, list)
			})
		},
	}
	rm := &cobra.Command{
		Use: "rm NAME@VERSION", Short: "Remove an agent's program from the workers", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, version, _ := strings.Cut(args[0], "@")
			if name == "" || version == "" {
				return usage("%q: give NAME@VERSION; cofferdam agent ls lists them", args[0])
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				gone, err := c.RemoveAgent(ctx, name, version)
				switch {
				case err != nil:
					return err
				case a.json:
					return printJSON(a.Out, gone)
				}
				_, err = fmt.Fprintln(a.Out, args[0])
				return err
			})
		},
	}
	return group("agent", "Manage the agents that tasks can run", install, ls, rm)
}
