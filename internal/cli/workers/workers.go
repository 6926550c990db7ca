// Package workers has the commands about the machines that sandboxes run on: ls,
// drain, quarantine, release and forget.
package workers

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Host is what the commands are part of.
type Host struct {
	host.Host
}

// Commands returns the commands.
func Commands(h Host) []*cobra.Command {
	return []*cobra.Command{
		h.ls(),
		h.mark("drain", "draining", "Place no new sandboxes on a worker", `Place no new sandboxes on a worker; those that are there go on and end.`),
		h.mark("quarantine", "quarantined", "Place nothing new on a worker and lend its gateway nothing", `Place no new sandboxes on a worker, and lend its gateway nothing more: what it holds
ends within a minute. Its sandboxes go on without credentials. This outlasts restarts.`),
		h.mark("forget", "forgotten", "Give up a worker that never returns", `Give up a worker that never returns. Its sandboxes are counted as lost, and their tasks
go on elsewhere with a new attempt. Should the machine come back, it is refused until it
is released; what it has is not removed, so wipe it before.`),
		h.release(),
	}
}

func (h Host) ls() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the workers", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return host.List(cmd.Context(), h.Host, (*client.Client).Workers, func(list []api.Worker) any { return api.WorkerList{Workers: list} },
				[]string{"WORKER", "STATE", "MARK", "SANDBOXES", "VERSION", "SEEN"}, row)
		},
	}
}

func row(w api.Worker) []string {
	mark, seen := "-", "never"
	if w.Mark != nil {
		mark = w.Mark.State + " by " + w.Mark.By
		if w.Mark.Reason != "" {
			mark += ": " + w.Mark.Reason
		}
	}
	if w.SeenAt != nil {
		seen = show.Span(time.Since(*w.SeenAt))
	}
	return []string{w.Name, w.State, mark, strconv.Itoa(w.Sandboxes), w.Version, seen}
}

func (h Host) mark(verb, state, short, long string) *cobra.Command {
	req := api.WorkerMarking{State: state}
	cmd := &cobra.Command{
		Use: verb + " NAME", Short: short, Long: long, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				out, err := c.MarkWorker(ctx, args[0], req)
				return h.tell(out, err)
			})
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "`text` for the record and for who looks later")
	return cmd
}

func (h Host) release() *cobra.Command {
	return &cobra.Command{
		Use: "release NAME", Short: "Let a worker take part again", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				out, err := c.ReleaseWorker(ctx, args[0])
				return h.tell(out, err)
			})
		},
	}
}

func (h Host) tell(out api.WorkerMarked, err error) error {
	if err != nil {
		return err
	}
	if h.JSON() {
		return h.Print(out)
	}
	state, what := "takes part", "on it"
	if out.Mark != nil {
		state = out.Mark.State
		if state == "forgotten" {
			what = "lost with it"
		}
	}
	_, err = fmt.Fprintf(h.Out, "worker %s: %s; sandboxes %s: %d\n", show.Line(out.Worker), show.Line(state), what, out.Sandboxes)
	return err
}
