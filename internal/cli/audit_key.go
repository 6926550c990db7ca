package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

func (a *app) auditKeyCmd() *cobra.Command {
	return &cobra.Command{
		Use: "key", Short: "Print the key that receipts are verified with", Args: cobra.NoArgs,
		Long: `Print the public key that receipts are verified with. Take a copy when the installation
is made, and keep it elsewhere: a key that is fetched from a server at the time of
verifying proves nothing against that server.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error { return auditKey(ctx, c, a.json, a.Out) })
		},
	}
}

func auditKey(ctx context.Context, c *client.Client, asJSON bool, out io.Writer) error {
	key, err := c.AuditKey(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, key)
	}
	_, err = fmt.Fprintln(out, show.Line(key.Key))
	return err
}
