package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/supervise"
)

type upOptions struct {
	supervise.Options
	detach  bool
	readyFd int
	json    bool
}

func (a *app) upCmd() *cobra.Command {
	var o upOptions
	cmd := &cobra.Command{
		Use: "up", Short: "Run everything on this machine", Args: cobra.NoArgs,
		Long: `Run everything on this machine until stopped, and print the address when ready. The
URL and a token are written into client.json in the data folder, and into the caller's
configuration folder (of the user behind sudo).

Needs root, for the worker; the other daemons run as users without rights: cofferdam
and cofferdam-gateway where the machine has them, else the numbers 47810 and 47811.

Ctrl-C stops everything and destroys the sandboxes, as "cofferdam down" does. SIGTERM
stops the daemons and leaves the sandboxes, to be adopted by the next "up". A daemon
that ends is started again. Should this very process be killed, daemons and sandboxes
go on, and the next "up" takes them over.`,
		Example: `  sudo cofferdam up --detach
  sudo cofferdam up --data /srv/cofferdam --listen 127.0.0.1:7171`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			hold, err := holder()
			if err != nil {
				return err
			}
			o.Hold, o.json = hold, a.json
			if o.KeepTasks < 0 || o.KeepOutputs < 0 {
				return usage("--keep-tasks and --keep-outputs: must not be negative")
			}
			if o.detach {
				return detach(cmd.Context(), o, a.Stdio)
			}
			return up(cmd.Context(), o, a.Stdio)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Data, "data", supervise.DefaultData, "data folder of the installation")
	f.StringVar(&o.Listen, "listen", "127.0.0.1:7070", "address of the API; port 0: a free one")
	f.BoolVar(&o.ListenPublic, "listen-public", false, "allow --listen to name an address that other machines reach")
	f.StringVar(&o.Hosts, "hosts", "", "further names, comma-separated, that clients may call this server by")
	f.BoolVar(&o.detach, "detach", false, "return once everything is ready")
	f.StringVar(&o.OperatorPolicy, "policy-operator", "", "file of the operator's policy layer")
	f.StringVar(&o.Prices, "prices", "", "file with what models cost, in place of the program's own prices")
	f.StringVar(&o.Issuer, "issuer", "", "https URL of the issuer of the tokens that say who a run is (default: none are signed)")
	f.DurationVar(&o.PublishDelay, "identity-publish-delay", 0, "how long a new key of theirs is published before it signs (default 1h)")
	f.DurationVar(&o.KeepTasks, "keep-tasks", 0, "how long tasks that have ended are kept, such as 720h (default: for ever)")
	f.DurationVar(&o.KeepOutputs, "keep-outputs", 0, "how long the bytes of their outputs and logs are (default: as long as the task)")
	f.StringVar(&o.DNS, "dns", "", "HOST:PORT of the resolver for names outside (default: the machine's own)")
	f.StringVar(&o.Roots, "roots", "", "PEM file of authorities that servers outside are verified under, beside the system's; trusted inside sandboxes too")
	f.StringVar(&o.Images, "images", "", "folder of root images, which installations may share; off: none (default: in the data folder)")
	f.StringVar(&o.ServiceUser, "service-user", "", "user of cofferdamd and of the engine: a name or a number")
	f.StringVar(&o.GatewayUser, "gateway-user", "", "user of the gateway: a name or a number")
	f.StringVar(&o.Bin, "bin", "", "folder of the programs (default: that of this one)")
	f.IntVar(&o.readyFd, "ready-fd", 0, "descriptor to tell the waiting parent on")
	_ = f.MarkHidden("ready-fd")
	return cmd
}

// holdCmd is what the supervisor starts programs with; see supervise.Hold.
func (a *app) holdCmd() *cobra.Command {
	return &cobra.Command{
		Use: "hold", Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return supervise.Hold(args) },
	}
}

// holder is how this very program comes to holdCmd.
func holder() ([]string, error) {
	exe, err := os.Executable()
	if err == nil {
		exe, err = filepath.EvalSymlinks(exe)
	}
	if err != nil {
		return nil, fmt.Errorf("this executable: %w", err)
	}
	return []string{exe, "hold"}, nil
}

// told is what a detached supervisor tells its parent.
type told struct {
	Ready *supervise.Ready `json:"ready,omitempty"`
	Error *failureJSON     `json:"error,omitempty"`
}

func up(ctx context.Context, o upOptions, stdio Stdio) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// A terminal that goes away stops nothing.
	signal.Ignore(syscall.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		select {
		case s := <-signals:
			if s == os.Interrupt {
				cancel(supervise.ErrDrain)
			}
			cancel(nil)
		case <-ctx.Done():
		}
	}()
	tell := func(told) {}
	if o.readyFd > 2 {
		pipe := os.NewFile(uintptr(o.readyFd), "parent")
		syscall.CloseOnExec(o.readyFd)
		tell = func(t told) {
			_ = json.NewEncoder(pipe).Encode(t)
			pipe.Close()
		}
	}
	o.Log = slog.New(slog.NewTextHandler(stdio.Err, nil))
	o.Ready = func(r supervise.Ready) {
		tell(told{Ready: &r})
		if o.readyFd == 0 {
			_ = printReady(r, o.json, stdio)
		}
	}
	err := supervise.Up(ctx, o.Options)
	if err != nil && o.readyFd > 2 {
		f := failureOf(err)
		tell(told{Error: &f})
	}
	return err
}

func printReady(r supervise.Ready, asJSON bool, stdio Stdio) error {
	if asJSON {
		return printJSON(stdio.Out, r)
	}
	if r.Note != "" {
		fmt.Fprintf(stdio.Err, "note: the configuration of the command line was not written: %s; use --config %s\n",
			show.Line(r.Note), show.Line(filepath.Join(r.Data, "client.json")))
	}
	_, err := fmt.Fprintf(stdio.Out, "ready %s\n", r.URL)
	return err
}

// errSilent is a child that ended without a word.
var errSilent = errors.New("ended without a word")

// readTold reads what the child tells.
func readTold(r io.Reader) (told, error) {
	var t told
	if err := json.NewDecoder(r).Decode(&t); err != nil || (t.Ready == nil && t.Error == nil) {
		return t, errSilent
	}
	return t, nil
}
