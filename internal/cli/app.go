package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Stdio is where a command reads from and writes to.
type Stdio struct {
	In       io.Reader
	Out, Err io.Writer
}

// Execute runs one command of the program of that version. It prints the error
// it returns, unless that only carries an exit code; ExitCode translates it.
func Execute(ctx context.Context, version string, args []string, stdio Stdio) error {
	a := &app{Stdio: stdio, version: version}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdio.In)
	root.SetOut(stdio.Out)
	root.SetErr(stdio.Err)
	err := root.ExecuteContext(ctx)
	if err != nil {
		a.report(err, a.json || wantsJSON(args))
	}
	return err
}

// app is what all commands share.
type app struct {
	Stdio
	version string
	json    bool
	config  string
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "cofferdam",
		Short: "Run coding agents in isolated sandboxes on machines you own",
		Long: `Cofferdam runs coding agents in isolated sandboxes on machines you own.

Start everything on this machine with "sudo cofferdam up", then give it work with
"cofferdam run". COFFERDAM_URL and COFFERDAM_TOKEN override the configuration that
"up" writes. Every command takes --json and then prints one JSON document.

Exit codes: 0 succeeded, 10 agent failed, 11 verification failed, 12 denied by
policy, 13 limit reached, 14 approval, 15 infrastructure, 16 cancelled, 17 checkout
or setup failed, 2 usage, 1 anything else.`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
		Args:              cobra.NoArgs,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print one JSON document")
	root.PersistentFlags().StringVar(&a.config, "config", "", "file with URL and token, such as client.json of a data folder")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err.Error()} })
	root.AddCommand(
		a.upCmd(), a.downCmd(), a.holdCmd(),
		a.runCmd(), a.taskCmd(), a.outputCmd(), a.auditCmd(),
		a.sandboxCmd(), a.agentCmd(), a.credentialCmd(), a.budgets().Group(), a.approvals().Group(), a.approvals().Answer(true), a.approvals().Answer(false), a.identityCmd(), a.keyCmd(), a.workerCmd(), a.policyCmd(), a.doctorCmd(), a.versionCmd(),
	)
	wrapArgs(root)
	return root
}

// group is a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return usage("cofferdam %s: give one of its commands; see cofferdam %s --help", use, use)
	}
	cmd.AddCommand(subs...)
	return cmd
}

// wrapArgs makes each command's complaint about its arguments a usage error.
func wrapArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usage("%s; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		wrapArgs(sub)
	}
}

// wantsJSON looks for --json where parsing failed before it was seen.
func wantsJSON(args []string) bool {
	for _, arg := range args {
		switch arg {
		case "--json", "--json=true":
			return true
		case "--":
			return false
		}
	}
	return false
}

// interruptible gives a context that ends with the first signal to stop.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}

// terminal says whether w is a terminal.
func terminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// colour says whether w may be given colours and cursor movements.
func colour(w any) bool {
	return terminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// inside returns where bytes from inside are written to: escaped on a
// terminal, as they are elsewhere or when raw is asked for.
func inside(w io.Writer, raw bool) io.WriteCloser {
	if raw || !terminal(w) {
		return keepOpen{w}
	}
	return show.NewEscaper(w)
}

// keepOpen is a writer whose Close does nothing.
type keepOpen struct{ io.Writer }

func (keepOpen) Close() error { return nil }

// absolute makes a path of the caller independent of the working folder.
func absolute(path string) string {
	if path == "" {
		return ""
	}
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}
