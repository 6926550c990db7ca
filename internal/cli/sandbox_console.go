package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/console"
)

func (a *app) sandboxShellCmd() *cobra.Command {
	o := sandboxExecOptions{tty: true, argv: []string{"/bin/bash", "-l"}}
	cmd := &cobra.Command{
		Use: "shell ID", Short: "Work in a sandbox at a shell", Args: cobra.ExactArgs(1),
		Long: `Work in a sandbox at a shell: the same as "cofferdam sandbox exec -t ID -- bash -l".
Ctrl-P Ctrl-Q leaves the shell running; "cofferdam sandbox attach" comes back to it.
What the sandbox writes reaches this terminal as it is.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.sandbox, o.json = args[0], a.json
			return a.sandboxExec(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.id, "id", "", "an id of your own for the shell")
	f.StringVar(&o.dir, "dir", "", "working folder (default /workspace)")
	f.StringVarP(&o.user, "user", "u", "", "agent, or root where the policy allows sudo (default agent)")
	f.StringVar(&o.size, "size", "", "the terminal's size as ROWSxCOLS (default: this window's)")
	return cmd
}

func (a *app) sandboxAttachCmd() *cobra.Command {
	var o sandboxExecOptions
	offset := int64(-1)
	cmd := &cobra.Command{
		Use: "attach ID COMMAND", Short: "Come back to a command that runs", Args: cobra.ExactArgs(2),
		Long: `Come back to a command that runs in a sandbox, and end with its exit code. Output comes
from its begin, or from --offset on; of one on a terminal what it draws from now on, at
this window's size. The standard input goes on where the command's stood, when this is
a terminal or with -i. Ctrl-P Ctrl-Q leaves a command on a terminal running; "cofferdam
sandbox ps" lists commands.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				o.sandbox, o.json, o.attached = args[0], a.json, true
				w, _, err := a.terminalOf(o)
				if err != nil {
					return err
				}
				session := &console.Session{Client: c, Sandbox: o.sandbox, Window: w}
				if o.interactive || w.Raw() {
					session.Input = a.In
				}
				st, err := c.Command(ctx, o.sandbox, args[1])
				if err != nil {
					return err
				}
				o.tty = st.Terminal
				return a.inSession(ctx, session, o, func(ctx context.Context) (api.CommandStatus, error) {
					return session.Attach(ctx, args[1], offset)
				})
			})
		},
	}
	f := cmd.Flags()
	f.Int64Var(&offset, "offset", offset, "bytes of output to leave out")
	f.BoolVar(&o.raw, "raw", false, "the bytes as they are, on a terminal too")
	f.BoolVarP(&o.interactive, "interactive", "i", false, "pass the standard input on, and close the command's at its end")
	f.StringVar(&o.size, "size", "", "the terminal's size as ROWSxCOLS (default: this window's)")
	return cmd
}

func (a *app) sandboxPsCmd() *cobra.Command {
	return &cobra.Command{
		Use: "ps ID [COMMAND]", Short: "List a sandbox's commands and their living processes", Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := console.Statuses(ctx, c, args[0], args[1:])
				switch {
				case err != nil:
					return err
				case a.json:
					return printJSON(a.Out, api.CommandList{Commands: list})
				}
				return console.Table(a.Out, list)
			})
		},
	}
}

func (a *app) sandboxKillCmd() *cobra.Command {
	req := api.SignalRequest{}
	cmd := &cobra.Command{
		Use: "kill ID COMMAND", Short: "Send a signal to a command", Args: cobra.ExactArgs(2),
		Long: `Send a signal to a command: to every process of its tree, those that left its group or
outlived it included; with --group to the process group of its main process, with --pid
to one process of its tree.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.PID < 0 || req.PID > 0 && req.Group {
				return usage("--pid: a positive number, and not together with --group")
			}
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if err := c.Signal(ctx, args[0], args[1], req); err != nil {
					return err
				}
				if a.json {
					return printJSON(a.Out, map[string]any{"sandbox": args[0], "command": args[1], "signal": req.Signal})
				}
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.StringVarP(&req.Signal, "signal", "s", "TERM", "the signal's name or number")
	f.BoolVar(&req.Group, "group", false, "only the process group of the command's main process")
	f.IntVar(&req.PID, "pid", 0, "only this process of the command's tree")
	return cmd
}
