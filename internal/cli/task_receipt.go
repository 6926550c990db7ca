package cli

import (
	"context"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
)

func (a *app) taskReceiptCmd() *cobra.Command {
	return &cobra.Command{
		Use: "receipt ID", Short: "Print the signed receipt of a task that has ended", Args: cobra.ExactArgs(1),
		Example: `  cofferdam task receipt t-abcdefghijklmnop > receipt.json
  cofferdam audit verify --key key.txt receipt.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error { return taskReceipt(ctx, c, args[0], a.json, a.Out) })
		},
	}
}

// taskReceipt prints the receipt's very bytes: they are what is signed.
func taskReceipt(ctx context.Context, c *client.Client, id string, asJSON bool, out io.Writer) error {
	receipt, err := c.Receipt(ctx, id)
	if err != nil {
		return err
	}
	if asJSON && !json.Valid(receipt) {
		return printJSON(out, struct {
			Receipt string `json:"receipt"`
		}{string(receipt)})
	}
	w := inside(out, false)
	if _, err := w.Write(receipt); err != nil {
		return err
	}
	return w.Close()
}
