package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
)

func (a *app) auditExportCmd() *cobra.Command {
	return &cobra.Command{
		Use: "export", Short: "Print the whole account, a JSON document a line", Args: cobra.NoArgs,
		Long: `Print the whole account: every record, every receipt and a signed checkpoint, a JSON
document a line, as "audit verify --log" reads it. With --json the lines are the list of
one document.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return auditExport(ctx, c, a.json, a.Out) })
		},
	}
}

func auditExport(ctx context.Context, c *client.Client, asJSON bool, out io.Writer) error {
	if !asJSON {
		w := inside(out, false)
		if err := c.AuditExport(ctx, w); err != nil {
			return err
		}
		return w.Close()
	}
	l := &lineList{out: out}
	err := c.AuditExport(ctx, l)
	if l.d == nil {
		if err != nil {
			return err
		}
		l.begin()
	}
	l.d.endList()
	return l.d.end(err)
}

// lineList makes a list of documents that come a line each.
type lineList struct {
	out  io.Writer
	d    *document
	rest []byte
}

func (l *lineList) begin() {
	l.d = newDocument(l.out)
	l.d.list("lines")
}

func (l *lineList) Write(p []byte) (int, error) {
	if l.d == nil {
		l.begin()
	}
	l.rest = append(l.rest, p...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		if err := l.d.item(json.RawMessage(line)); err != nil {
			return 0, err
		}
		l.rest = append([]byte(nil), rest...)
	}
}
