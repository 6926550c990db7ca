package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/supervise"
)

func (a *app) downCmd() *cobra.Command {
	var o supervise.Stop
	cmd := &cobra.Command{
		Use: "down", Short: "Stop everything on this machine", Args: cobra.NoArgs,
		Long: `Stop everything that "cofferdam up" runs on this machine, and return when it is gone.
Sandboxes are destroyed; tasks that are under way stay in the database, and go on with
a new attempt at the next "up". It works as well when the supervisor was killed.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hold, err := holder()
			if err != nil {
				return err
			}
			o.Hold, o.Log = hold, slog.New(slog.NewTextHandler(a.Err, nil))
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return down(ctx, o, a.json, a.Out)
		},
	}
	cmd.Flags().StringVar(&o.Data, "data", supervise.DefaultData, "data folder of the installation")
	cmd.Flags().StringVar(&o.Bin, "bin", "", "folder of the programs (default: that of this one)")
	cmd.Flags().BoolVar(&o.KeepSandboxes, "keep-sandboxes", false, "leave the sandboxes running, for the next up to adopt")
	return cmd
}

func down(ctx context.Context, o supervise.Stop, asJSON bool, out io.Writer) error {
	done, err := supervise.Down(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, done)
	}
	text := "stopped"
	if !done.Running {
		text = "nothing was running"
	}
	if len(done.Sandboxes) > 0 {
		text += "; kept sandboxes: " + strings.Join(done.Sandboxes, " ")
	}
	if len(done.Evidence) > 0 {
		text += "; kept as evidence: " + strings.Join(done.Evidence, " ")
	}
	_, err = fmt.Fprintln(out, show.Line(text))
	return err
}
