package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/supervise"
)

func (a *app) doctorCmd() *cobra.Command {
	var data string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look for what is wrong, and say what to do", Args: cobra.NoArgs,
		Long: `Look for what is wrong with an installation: with its processes, folders and disk when
it is on this machine, and with what the server finds about itself, its workers, and
about objects on them that no record explains. Ends with 0 when all is well, and with
15 otherwise.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			found := a.localChecks(data, cmd.Flags().Changed("data"))
			return reportDoctor(append(found, a.serverChecks(ctx, data)...), a.json, a.Out)
		},
	}
	cmd.Flags().StringVar(&data, "data", supervise.DefaultData, "data folder of an installation on this machine")
	return cmd
}

// localChecks looks at this machine when the installation is on it: when its
// folder was named, or the server's address is this machine and the default
// folder is there.
func (a *app) localChecks(data string, named bool) []api.Check {
	l, err := supervise.NewLayout(data)
	if err != nil {
		return []api.Check{{ID: "local.data", Outcome: api.CheckFailed, Text: err.Error()}}
	}
	if !named && (!l.Exists() || !a.serverIsHere()) {
		return nil
	}
	checks := []api.Check{}
	for _, f := range l.Inspect() {
		checks = append(checks, api.Check{ID: f.ID, Outcome: f.Outcome, Text: f.Text})
	}
	return checks
}

func (a *app) serverIsHere() bool {
	conf, err := a.configuration()
	if err != nil {
		return true
	}
	u, err := url.Parse(conf.URL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// serverChecks asks the server; that it does not answer is a finding too.
func (a *app) serverChecks(ctx context.Context, data string) []api.Check {
	if l, err := supervise.NewLayout(data); err == nil && a.config == "" && os.Getenv("COFFERDAM_URL") == "" {
		if _, err := os.Stat(l.ClientFile()); err == nil && data != supervise.DefaultData {
			a.config = l.ClientFile()
		}
	}
	var d api.Doctor
	err := a.ask(ctx, func(ctx context.Context, c *client.Client) (err error) {
		d, err = c.Doctor(ctx)
		return err
	})
	if err != nil {
		code, detail := describe(err)
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
	for _, c := range checks {
		if wrong(c) {
			return true
		}
	}
	return false
}

func reportDoctor(checks []api.Check, asJSON bool, out io.Writer) error {
	bad := anyWrong(checks)
	if asJSON {
		if err := printJSON(out, api.Doctor{OK: !bad, Checks: checks}); err != nil {
			return err
		}
	} else if err := printDoctor(checks, bad, out); err != nil {
		return err
	}
	if bad {
		return &exitError{api.ExitCode("infra.internal")}
	}
	return nil
}

func printDoctor(checks []api.Check, bad bool, out io.Writer) error {
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
	if err := table(out, []string{"OUTCOME", "CHECK", "WHAT WAS FOUND"}, rows); err != nil {
		return err
	}
	end := "all is well"
	if bad {
		end = "something is wrong; see above"
	}
	_, err := fmt.Fprintln(out, end)
	return err
}
