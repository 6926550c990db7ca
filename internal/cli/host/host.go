// Package host is what the command line gives to the commands that have a
// folder of their own: the server, the terminal, and how an answer is told.
package host

import (
	"context"
	"fmt"
	"io"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Host is what commands are part of. Each needs only some of it.
type Host struct {
	// Ask runs one short question to the server; Stay runs work that takes time and
	// outlives a restart of the server.
	Ask, Stay func(ctx context.Context, work func(context.Context, *client.Client) error) error
	JSON      func() bool       // one document is wanted
	Print     func(v any) error // prints it
	Failed    func() error      // ends with 1 when what was to be said was said
	In        io.Reader
	Out, Err  io.Writer
}

// Invalid is a command line that can't be carried out.
func Invalid(format string, args ...any) error {
	return &api.Problem{Code: "input.invalid", Detail: fmt.Sprintf(format, args...)}
}

// List asks for a list and prints it, as one document or as a table with a row
// for each.
func List[T any](ctx context.Context, h Host, ask func(*client.Client, context.Context) ([]T, error), document func([]T) any, heading []string, row func(T) []string) error {
	return h.Ask(ctx, func(ctx context.Context, c *client.Client) error {
		list, err := ask(c, ctx)
		if err != nil {
			return err
		}
		if h.JSON() {
			if list == nil {
				list = []T{}
			}
			return h.Print(document(list))
		}
		rows := make([][]string, 0, len(list))
		for _, v := range list {
			rows = append(rows, row(v))
		}
		return show.Table(h.Out, heading, rows)
	})
}
