// Package traffic prints what the gateway decided for a task's sandboxes, for
// people and for programs. Names, paths and commands were chosen inside, so all
// of them are shown escaped.
package traffic

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Host is what the command needs of the program around it.
type Host struct {
	host.Host
}

type options struct {
	id     string
	follow bool
	denied bool
	stage  string
}

// Command returns the command.
func Command(h Host) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "egress ID", Short: "List what the gateway decided for a task's sandboxes", Args: cobra.ExactArgs(1),
		Long: `List what the gateway decided for a task's sandboxes: every connection, and where
requests are looked into every request, with the rule that allowed it or the
reason it was refused for, the credential's lease that it carried, the bytes both ways once it
is done, and what ran in the sandbox then.

The query of a request is never recorded. Alike refusals beyond the first may be counted together.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.id = args[0]
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return h.run(ctx, c, o) })
		},
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "go on until the task has ended")
	cmd.Flags().BoolVar(&o.denied, "denied", false, "refusals only")
	cmd.Flags().StringVar(&o.stage, "stage", "", "of one `stage` only")
	return cmd
}

func (o options) wants(r api.EgressRecord) bool {
	return (!o.denied || r.Verdict == "denied") && (o.stage == "" || r.Stage == o.stage)
}

func (h Host) run(ctx context.Context, c *client.Client, o options) error {
	list := api.EgressList{Records: []api.EgressRecord{}}
	if !o.follow {
		all, err := c.Egress(ctx, o.id)
		if err != nil {
			return err
		}
		for _, r := range all {
			if o.wants(r) {
				list.Records = append(list.Records, r)
			}
		}
		if h.JSON() {
			return h.Print(list)
		}
		return Print(h.Out, list.Records)
	}
	err := c.WatchTask(ctx, o.id, 0, func(e api.Event) error {
		var r api.EgressRecord
		if e.Type != "egress" {
			return nil
		}
		if err := json.Unmarshal(e.Data, &r); err != nil || !o.wants(r) {
			return err
		}
		if h.JSON() {
			list.Records = append(list.Records, r)
			return nil
		}
		_, err := fmt.Fprintln(h.Out, line(r))
		return err
	})
	if h.JSON() && err == nil {
		return h.Print(list)
	}
	return err
}

// Print prints the records as a table.
func Print(out io.Writer, records []api.EgressRecord) error {
	rows := make([][]string, 0, len(records))
	for _, r := range records {
		rows = append(rows, []string{r.Time.Local().Format("15:04:05.000"), r.Stage, verdict(r), where(r), r.Protocol, request(r), bytes(r), because(r), r.Lease, strings.Join(r.Commands, "; ")})
	}
	return show.Table(out, []string{"TIME", "STAGE", "VERDICT", "WHERE", "BY", "REQUEST", "IN/OUT", "RULE OR REASON", "LEASE", "RUNNING"}, rows)
}

// line is a record while the task goes on.
func line(r api.EgressRecord) string {
	parts := []string{r.Time.Local().Format("15:04:05.000"), r.Stage, verdict(r), where(r), r.Protocol, request(r), bytes(r), because(r), r.Lease}
	if len(r.Commands) > 0 {
		parts = append(parts, "("+strings.Join(r.Commands, "; ")+")")
	}
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, show.Line(p))
		}
	}
	return strings.Join(out, "  ")
}

func verdict(r api.EgressRecord) string {
	switch {
	case r.Done && r.Verdict != "denied":
		return "done"
	case r.Count > 0:
		return r.Verdict + " ×" + strconv.FormatInt(r.Count, 10)
	}
	return r.Verdict
}

func where(r api.EgressRecord) string {
	host := r.Name
	switch {
	case host == "":
		host = r.Address
	case r.Address != "":
		return host + ":" + strconv.Itoa(int(r.Port)) + " (" + r.Address + ")"
	}
	return host + ":" + strconv.Itoa(int(r.Port))
}

func request(r api.EgressRecord) string {
	text := strings.TrimSpace(r.Method + " " + r.Path)
	if r.Status > 0 {
		text += " → " + strconv.Itoa(r.Status)
	}
	return strings.TrimSpace(text)
}

func bytes(r api.EgressRecord) string {
	if !r.Done {
		return ""
	}
	return fmt.Sprintf("%d/%d", r.BytesIn, r.BytesOut)
}

func because(r api.EgressRecord) string {
	if r.Reason != "" {
		return strings.TrimSpace(r.Reason + " " + r.Rule)
	}
	return r.Rule
}
