package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/agentlog"
)

type taskLogsOptions struct {
	id   string
	log  client.Log
	raw  bool
	json bool
	all  bool // what the agent said and did, whether or not it has begun
}

func (a *app) taskLogsCmd() *cobra.Command {
	var o taskLogsOptions
	cmd := &cobra.Command{
		Use: "logs ID", Short: "Print what a stage of a task wrote", Args: cobra.ExactArgs(1),
		Long: `Print what a stage of a task wrote: the agent's, unless --stage names another.

What an agent that asks a model said and did is printed an event after the
other, always escaped; --raw prints the bytes of its log instead. On a terminal, control characters and other things that could deceive are shown
escaped; into a pipe or a file, and with --raw, the bytes go as they are.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id, o.json = args[0], a.json
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return taskLogs(ctx, c, o, a.Out) })
		},
	}
	cmd.Flags().StringVar(&o.log.Stage, "stage", "", "admit, provision, checkout, setup, agent, export, verify, act or close (default agent)")
	cmd.Flags().IntVar(&o.log.Attempt, "attempt", 0, "an attempt by number (default the latest)")
	cmd.Flags().Int64Var(&o.log.Offset, "offset", 0, "bytes to leave out")
	cmd.Flags().BoolVarP(&o.log.Follow, "follow", "f", false, "go on until the stage has ended")
	cmd.Flags().BoolVar(&o.raw, "raw", false, "the bytes as they are, on a terminal too")
	cmd.Flags().BoolVar(&o.all, "events", false, "what the agent said and did, even if it has not begun")
	return cmd
}

func taskLogs(ctx context.Context, c *client.Client, o taskLogsOptions, out io.Writer) error {
	if o.log.Attempt < 0 || o.log.Offset < 0 {
		return usage("--attempt and --offset: must not be negative")
	}
	if o.raw && o.all {
		return usage("--raw and --events: one of them")
	}
	plain := (o.log.Stage == "" || o.log.Stage == "agent") && o.log.Attempt == 0 && o.log.Offset == 0 && !o.raw
	if o.all || plain && agentlog.Any(ctx, c, o.id) {
		return agentEvents(ctx, c, o, out)
	}
	if !o.json {
		w := inside(out, o.raw)
		_, err := c.FollowLogs(ctx, o.id, o.log, w)
		if cerr := w.Close(); err == nil {
			err = cerr
		}
		return err
	}
	// The document begins with the first bytes, so that a task that does not
	// exist is an ordinary failure.
	late := &lateDocument{out: out, task: o.id, stage: o.log.Stage}
	end, err := c.FollowLogs(ctx, o.id, o.log, late)
	if late.d == nil {
		if err != nil {
			return err
		}
		late.begin()
	}
	late.d.endList()
	late.d.field("end", end)
	return late.d.end(err)
}

// agentEvents prints what the agent said and did.
func agentEvents(ctx context.Context, c *client.Client, o taskLogsOptions, out io.Writer) error {
	if !o.json {
		return agentlog.Read(ctx, c, o.id, o.log.Follow, func(e api.AgentEvent) error { return agentlog.Print(out, e) })
	}
	d := newDocument(out)
	d.field("task", o.id)
	d.list("events")
	err := agentlog.Read(ctx, c, o.id, o.log.Follow, func(e api.AgentEvent) error { return d.item(e) })
	d.endList()
	return d.end(err)
}

type lateDocument struct {
	out         io.Writer
	task, stage string
	d           *document
}

func (l *lateDocument) begin() {
	if l.stage == "" {
		l.stage = "agent"
	}
	l.d = newDocument(l.out)
	l.d.field("task", l.task)
	l.d.field("stage", l.stage)
	l.d.list("chunks")
}

func (l *lateDocument) Write(p []byte) (int, error) {
	if l.d == nil {
		l.begin()
	}
	return pieces{l.d}.Write(p)
}
