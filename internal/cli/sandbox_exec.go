package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

type sandboxExecOptions struct {
	sandbox string
	argv    []string
	id, dir string
	env     []string
	timeout time.Duration
	raw     bool
	json    bool
}

func (a *app) sandboxExecCmd() *cobra.Command {
	var o sandboxExecOptions
	cmd := &cobra.Command{
		Use: "exec ID -- CMD ARGS", Short: "Run a command in a sandbox", Args: cobra.MinimumNArgs(1),
		Long: `Run a command in a sandbox and end with its exit code: 128 and the signal's number when
a signal ended it, 127 when it could not be started, 13 when it hit a limit. Its output
comes byte for byte; on a terminal it is shown escaped, unless --raw is given. The
standard input is not passed on.

Ctrl-C ends the command and waits for it; a second one leaves. Should the connection
break or the server be restarted, the command goes on and so does its output.`,
		Example: `  cofferdam sandbox exec sb-abcdefghijklmnop -- sh -c "make 2>&1"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			if dash != 1 || len(args) < 2 {
				return usage("give one sandbox, --, and the command: cofferdam sandbox exec ID -- CMD ARGS")
			}
			o.sandbox, o.argv, o.json = args[0], args[1:], a.json
			return a.sandboxExec(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.id, "id", "", "an id of your own for the command; the same again starts no second one")
	f.StringVar(&o.dir, "dir", "", "working folder (default /workspace)")
	f.StringArrayVarP(&o.env, "env", "e", nil, "NAME=VALUE, added to the environment; may be repeated")
	f.DurationVar(&o.timeout, "timeout", 0, "end the command after this time (default: the sandbox's limit)")
	f.BoolVar(&o.raw, "raw", false, "the bytes as they are, on a terminal too")
	return cmd
}

// request makes the request of the options.
func (o sandboxExecOptions) request() (api.ExecRequest, error) {
	req := api.ExecRequest{ID: o.id, Argv: o.argv, Dir: o.dir, TimeoutSeconds: o.timeout.Seconds()}
	if o.timeout < 0 {
		return req, usage("--timeout: must not be negative")
	}
	for _, e := range o.env {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return req, usage("--env %s: not NAME=VALUE", e)
		}
		if req.Env == nil {
			req.Env = map[string]string{}
		}
		req.Env[name] = value
	}
	return req, nil
}

func (a *app) sandboxExec(ctx context.Context, o sandboxExecOptions) error {
	req, err := o.request()
	if err != nil {
		return err
	}
	c, err := a.connected(ctx)
	if err != nil {
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	started := &atomic.Pointer[string]{}
	defer a.killOnInterrupt(ctx, leave, c, o.sandbox, started)()
	var st api.CommandStatus
	if o.json {
		st, err = execDocument(ctx, c, o.sandbox, req, started, a.Out)
	} else {
		stdout, stderr := inside(a.Out, o.raw), inside(a.Err, o.raw)
		st, err = execStream(ctx, c, o.sandbox, req, started, func(fd int, data []byte) error {
			w := stdout
			if fd == api.FrameStderr {
				w = stderr
			}
			_, err := w.Write(data)
			return err
		})
		_ = stdout.Close()
		_ = stderr.Close()
	}
	if err != nil {
		return a.away(err)
	}
	return execEnd(st, o.json, a.Err)
}

// execStream starts the command and hands its output on, in order, until it
// has ended.
func execStream(ctx context.Context, c *client.Client, sandbox string, req api.ExecRequest, started *atomic.Pointer[string], write func(int, []byte) error) (api.CommandStatus, error) {
	req.Wait = true
	res, err := c.Exec(ctx, sandbox, req)
	if err != nil {
		return res.Command, err
	}
	started.Store(&res.Command.ID)
	for _, chunk := range res.Output {
		data, err := chunk.Bytes()
		if err == nil {
			err = write(chunk.Fd, data)
		}
		if err != nil {
			return res.Command, err
		}
	}
	if res.Done {
		return res.Command, nil
	}
	return c.ExecStream(ctx, sandbox, res.Command.ID, res.Next, func(f api.Frame) error { return write(int(f.Fd), f.Data) })
}

// execDocument writes the output as a list of chunks, and then the status.
func execDocument(ctx context.Context, c *client.Client, sandbox string, req api.ExecRequest, started *atomic.Pointer[string], out io.Writer) (api.CommandStatus, error) {
	var d *document
	var offset int64
	begin := func() {
		if d == nil {
			d = newDocument(out)
			d.field("sandbox", sandbox)
			d.list("output")
		}
	}
	st, err := execStream(ctx, c, sandbox, req, started, func(fd int, data []byte) error {
		begin()
		chunk := api.NewChunk(fd, offset, data)
		offset += int64(len(data))
		return d.item(chunk)
	})
	if err != nil && d == nil {
		return st, err
	}
	begin()
	d.endList()
	if err == nil {
		d.field("command", st)
	}
	return st, d.end(err)
}

// killOnInterrupt ends the command at the first interrupt and leaves at the
// second, or at another signal to stop. The returned function stops listening.
func (a *app) killOnInterrupt(ctx context.Context, leave context.CancelFunc, c *client.Client, sandbox string, started *atomic.Pointer[string]) func() {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		var asked time.Time
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-signals:
				if s == os.Interrupt && sameKey(asked) {
					continue
				}
				id := started.Load()
				if s != os.Interrupt || !asked.IsZero() || id == nil {
					leave()
					return
				}
				asked = time.Now()
				go func() {
					if err := c.KillCommand(ctx, sandbox, *id); err != nil && ctx.Err() == nil {
						_, detail := describe(err)
						fmt.Fprintf(a.Err, "cofferdam: the command could not be ended: %s\n", show.Line(detail))
					}
				}()
			}
		}
	}()
	return func() { signal.Stop(signals) }
}

// Exit codes of commands that did not end by themselves, as shells have them.
const (
	exitNotStarted = 127
	exitSignal     = 128
)

// execEnd gives the program the command's own end.
func execEnd(st api.CommandStatus, silent bool, errs io.Writer) error {
	say := func(format string, args ...any) {
		if !silent {
			fmt.Fprintf(errs, "cofferdam: "+format+"\n", args...)
		}
	}
	switch {
	case st.Error != "":
		say("the command could not be started: %s", show.Line(st.Error))
		return &exitError{exitNotStarted}
	case st.TimedOut:
		say("the command ran out of time and was ended (limit.time)")
		return &exitError{api.ExitCode("limit.time")}
	case st.Reason != "" && (st.Signal != 0 || st.ExitCode < 0):
		say("the command was ended: %s", show.Line(st.Reason))
		return &exitError{max(1, api.ExitCode(st.Reason))}
	case st.Signal != 0:
		return &exitError{exitSignal + st.Signal}
	case st.ExitCode < 0:
		say("the command's end is not known")
		return &exitError{1}
	case st.ExitCode > 0:
		return &exitError{st.ExitCode}
	}
	return nil
}
