package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/console"
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

	interactive, tty bool
	attached         bool
	user, size       string
	closeAfter       time.Duration
}

func (a *app) sandboxExecCmd() *cobra.Command {
	var o sandboxExecOptions
	cmd := &cobra.Command{
		Use: "exec ID -- CMD ARGS", Short: "Run a command in a sandbox", Args: cobra.MinimumNArgs(1),
		Long: `Run a command in a sandbox and end with its exit code: 128 and the signal's number when
a signal ended it, 127 when it could not be started, 13 when it hit a limit. Its output
comes byte for byte; on a terminal it is shown escaped, unless --raw or -t is given.
The standard input is passed on when it is no terminal, or with -i; after an
interrupted call the same --id goes on with it where the command stopped reading.

Ctrl-C ends the command and waits for it; a second one leaves. Should the connection
break or the server be restarted, the command goes on and so does its output.

With -t the command runs on a terminal of this window's size and gets every key;
what it writes is not escaped. Ctrl-P Ctrl-Q leaves it running.`,
		Example: `  cofferdam sandbox exec sb-abcdefghijklmnop -- sh -c "make 2>&1"
  tar c src | cofferdam sandbox exec sb-abcdefghijklmnop -- tar x
  cofferdam sandbox exec -t sb-abcdefghijklmnop -- vi main.go`,
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
	f.BoolVarP(&o.interactive, "interactive", "i", false, "pass the standard input on, from a terminal too")
	f.BoolVarP(&o.tty, "tty", "t", false, "run the command on a terminal")
	f.StringVar(&o.size, "size", "", "the terminal's size as ROWSxCOLS (default: this window's)")
	f.StringVarP(&o.user, "user", "u", "", "agent, or root where the policy allows sudo (default agent)")
	f.DurationVar(&o.closeAfter, "stdin-close-after", 0, "close the command's input when none came for so long, as when this client dies (default: it stays open)")
	return cmd
}

// terminalOf gives the window, and the size of the terminal to ask for.
func (a *app) terminalOf(o sandboxExecOptions) (*console.Window, *api.TerminalSize, error) {
	var fixed *api.TerminalSize
	if o.size != "" {
		size, err := console.ParseSize(o.size)
		if err != nil {
			return nil, nil, usage("--size: %s", err)
		}
		fixed = &size
	}
	w := console.NewWindow(a.In, a.Out, fixed)
	size := w.Size()
	return w, &size, nil
}

// input is the standard input to pass on; nil: none.
func (a *app) input(wanted bool) io.Reader {
	f, ok := a.In.(*os.File)
	if wanted || !ok {
		return a.In
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice != 0 {
		return nil // A terminal, or the null device.
	}
	return f
}

// request makes the request of the options.
func (o sandboxExecOptions) request() (api.ExecRequest, error) {
	req := api.ExecRequest{
		ID: o.id, Argv: o.argv, Dir: o.dir, TimeoutSeconds: o.timeout.Seconds(), User: o.user, StdinIdle: o.closeAfter.Seconds(),
	}
	if o.timeout < 0 || o.closeAfter < 0 {
		return req, usage("--timeout and --stdin-close-after: must not be negative")
	}
	if o.user != "" && o.user != "agent" && o.user != "root" {
		return req, usage("--user %s: there are agent and root", o.user)
	}
	if o.tty && o.json {
		return req, usage("--tty and --json: a terminal's output is no document")
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
	session := &console.Session{Client: c, Sandbox: o.sandbox, Input: a.input(o.interactive || o.tty), Skip: true}
	if o.tty {
		if session.Window, req.Terminal, err = a.terminalOf(o); err != nil {
			return err
		}
		session.Skip = !session.Window.Raw()
		if name := os.Getenv("TERM"); name != "" && req.Env["TERM"] == "" && session.Window.Raw() {
			req.Env = maps.Clone(req.Env)
			if req.Env == nil {
				req.Env = map[string]string{}
			}
			req.Env["TERM"] = name
		}
	}
	if session.Input == nil {
		req.StdinIdle = 0
	}
	return a.inSession(ctx, session, o, func(ctx context.Context) (api.CommandStatus, error) { return session.Run(ctx, req) })
}

// inSession runs a command, or attaches to one, and gives the program its end.
func (a *app) inSession(ctx context.Context, session *console.Session, o sandboxExecOptions, run func(context.Context) (api.CommandStatus, error)) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	if !o.attached { // An interrupt of one who only looks on is no word to the command.
		defer a.killOnInterrupt(ctx, leave, session)()
	}
	var st api.CommandStatus
	var err error
	if o.json {
		st, err = execDocument(ctx, session, run, a.Out)
	} else {
		stdout, stderr := inside(a.Out, o.raw || o.tty), inside(a.Err, o.raw || o.tty)
		session.Write = func(fd int, data []byte) error {
			w := stdout
			if fd == api.FrameStderr {
				w = stderr
			}
			_, err := w.Write(data)
			return err
		}
		st, err = run(ctx)
		_ = stdout.Close()
		_ = stderr.Close()
	}
	if errors.Is(err, console.ErrDetached) {
		id, _ := session.ID()
		fmt.Fprintf(a.Err, "\r\ncofferdam: detached; cofferdam sandbox attach %s %s comes back\r\n", o.sandbox, id)
		return nil
	}
	if err != nil {
		return a.away(err)
	}
	return execEnd(st, o.json, a.Err)
}

// execDocument writes the output as a list of chunks, and then the status.
func execDocument(ctx context.Context, session *console.Session, run func(context.Context) (api.CommandStatus, error), out io.Writer) (api.CommandStatus, error) {
	var d *document
	var offset int64
	begin := func() {
		if d == nil {
			d = newDocument(out)
			d.field("sandbox", session.Sandbox)
			d.list("output")
		}
	}
	session.Write = func(fd int, data []byte) error {
		begin()
		chunk := api.NewChunk(fd, offset, data)
		offset += int64(len(data))
		return d.item(chunk)
	}
	st, err := run(ctx)
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
func (a *app) killOnInterrupt(ctx context.Context, leave context.CancelFunc, session *console.Session) func() {
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
				id, known := session.ID()
				if s != os.Interrupt || !asked.IsZero() || !known {
					leave()
					return
				}
				asked = time.Now()
				go func() {
					if err := session.Client.KillCommand(ctx, session.Sandbox, id); err != nil && ctx.Err() == nil {
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
	if st.Cut > 0 {
		say("the output was cut: %d bytes beyond the limit are missing", st.Cut)
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
		if st.Reason != "" {
			say("the command failed at a limit: %s", show.Line(st.Reason))
		}
		return &exitError{st.ExitCode}
	}
	return nil
}
