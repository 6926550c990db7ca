// Package doctor has the command that looks for what is wrong with an installation,
// from this machine and by asking the server.
package doctor

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/supervise"
)

// Host is what the command is part of.
type Host struct {
	Interruptible func(context.Context) (context.Context, context.CancelFunc) // until a signal to stop
	Ask           func(ctx context.Context, work func(context.Context, *client.Client) error) error
	Data          func() string     // data folder of the configuration; empty: none on this machine
	Named         func() bool       // a configuration was named by flag or environment
	Use           func(file string) // takes this one
	JSON          func() bool       // one document is wanted
	Print         func(v any) error // prints it
	Describe      func(err error) (code, detail string)
	Failed        func(code int) error // ends with code when what was to be said was said
	URL           func() string        // of the server; empty: none is known
	Usage         func(format string, args ...any) error
	Out, Err      io.Writer
}

// Command returns the command.
func Command(h Host) *cobra.Command {
	var data string
	var o assault
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong, and say what to do", Args: cobra.NoArgs,
		Long: `Look for what is wrong with an installation: with its processes, folders and disk when
it is on this machine, and with what the server finds about itself, its workers, and
about objects on them that no record explains. Ends with 0 when all is well, and with
15 otherwise.

With --attack, tries instead from inside of sandboxes what must not work, on this
machine, in about two minutes: each check is tried for real and held, fell, or could
not be tried. Ends with 0 only if all held. It makes sandboxes and removes them. As root
it also starts a platform apart, by the same programs, with throw-away credentials and
servers of its own, tries there what needs some, and removes it.`,
		Example: `  cofferdam doctor
  cofferdam doctor --attack --page report.html`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := h.Interruptible(cmd.Context())
			defer stop()
			if err := o.check(h); err != nil || o.attack {
				if err == nil {
					h.meant(data)
					err = o.run(ctx, h)
				}
				return err
			}
			found := h.local(data)
			return h.report(append(found, h.server(ctx, data)...))
		},
	}
	cmd.Flags().StringVar(&data, "data", "", "data folder of an installation on this machine (default: that of the configuration)")
	o.flags(cmd.Flags())
	return cmd
}

// local looks at this machine when an installation on it was named, or
// is the one that the configuration is of.
func (h Host) local(data string) []api.Check {
	if data == "" {
		if data = h.Data(); data == "" {
			return nil
		}
	}
	l, err := supervise.NewLayout(data)
	if err != nil {
		return []api.Check{{ID: "local.data", Outcome: api.CheckFailed, Text: err.Error()}}
	}
	checks := []api.Check{}
	for _, f := range l.Inspect() {
		checks = append(checks, api.Check{ID: f.ID, Outcome: f.Outcome, Text: f.Text})
	}
	return checks
}

// meant takes the server of a data folder, unless another one is named.
func (h Host) meant(data string) {
	if data == "" || h.Named() {
		return
	}
	if l, err := supervise.NewLayout(data); err == nil {
		if _, err := os.Stat(l.ClientFile()); err == nil {
			h.Use(l.ClientFile())
		}
	}
}

// server asks the server; that it does not answer is a finding too.
func (h Host) server(ctx context.Context, data string) []api.Check {
	h.meant(data)
	var d api.Doctor
	err := h.Ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		d, err = c.Doctor(ctx)
		return err
	})
	if err != nil {
		code, detail := h.Describe(err)
		return []api.Check{{ID: "server", Outcome: api.CheckFailed, Text: detail + " (" + code + ")"}}
	}
	checks := append([]api.Check{{ID: "server", Outcome: api.CheckOK, Text: "it answers"}}, d.Checks...)
	if failing := api.CheckFailed; !d.OK && !anyWrong(checks) {
		checks[0] = api.Check{ID: "server", Outcome: failing, Text: "it says that something is wrong, and not what; see its log"}
	}
	return checks
}

// wrong says whether a check found something that must be dealt with.
func wrong(c api.Check) bool {
	return c.Outcome != api.CheckOK && c.Outcome != api.CheckWarning || len(c.Leftovers) > 0
}

func anyWrong(checks []api.Check) bool {
	return slices.ContainsFunc(checks, wrong)
}

func (h Host) report(checks []api.Check) error {
	bad := anyWrong(checks)
	if h.JSON() {
		if err := h.Print(api.Doctor{OK: !bad, Checks: checks}); err != nil {
			return err
		}
	} else if err := list(checks, bad, h.Out); err != nil {
		return err
	}
	if bad {
		return h.Failed(api.ExitCode("infra.internal"))
	}
	return nil
}

func list(checks []api.Check, bad bool, out io.Writer) error {
	rows := make([][]string, 0, len(checks))
	for _, c := range checks {
		rows = append(rows, []string{c.Outcome, c.ID, c.Text})
		for _, l := range c.Leftovers {
			text := "left over: " + l.Kind + " " + l.Name
			if l.Sandbox != "" {
				text += " of " + l.Sandbox
			}
			if l.Detail != "" {
				text += " (" + l.Detail + ")"
			}
			rows = append(rows, []string{"", "", text})
		}
	}
	if err := show.Table(out, []string{"OUTCOME", "CHECK", "WHAT WAS FOUND"}, rows); err != nil {
		return err
	}
	end := "all is well"
	if bad {
		end = "something is wrong; see above"
	}
	_, err := fmt.Fprintln(out, end)
	return err
}
