package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/agents"
	"github.com/cofferdam/cofferdam/internal/cli/approvals"
	"github.com/cofferdam/cofferdam/internal/cli/budgets"
	"github.com/cofferdam/cofferdam/internal/cli/history"
	"github.com/cofferdam/cofferdam/internal/cli/outputs"
	"github.com/cofferdam/cofferdam/internal/cli/progress"
	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/cli/verification"
)

func (a *app) taskShowCmd() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show one task: state, stages, outputs", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				return taskShow(ctx, c, args[0], a.json, a.Out)
			})
		},
	}
}

func taskShow(ctx context.Context, c *client.Client, id string, asJSON bool, out io.Writer) error {
	t, err := c.Task(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(out, t)
	}
	attempt := ""
	if t.Attempt > 1 {
		attempt = strconv.Itoa(t.Attempt)
	}
	if err := show.Facts(out,
		"task", t.ID, "state", t.State, "reason", t.Reason, "because", t.Text, "requested by", t.RequestedBy,
		"repository", t.Repo, "ref", t.Ref, "commit", t.Commit, "worker", t.Worker, "policy", t.PolicyDigest, "project", t.Project, "models", agents.Access(t),
		"attempt", attempt, "created", t.CreatedAt.Local().Format(time.DateTime), "time", lasted(t),
		"network", fmt.Sprintf("%d connections allowed, %d denied, %s in, %s out", t.Usage.EgressAllowed, t.Usage.EgressDenied, size(t.Usage.BytesIn), size(t.Usage.BytesOut)),
	); err != nil {
		return err
	}
	rows := make([][]string, 0, len(t.Stages))
	for _, s := range t.Stages {
		rows = append(rows, []string{s.Name, s.State, s.Reason, progress.StageTime(s), s.Sandbox, s.Text})
	}
	fmt.Fprintln(out)
	if err := show.Table(out, []string{"STAGE", "STATE", "REASON", "TIME", "SANDBOX", "TEXT"}, rows); err != nil {
		return err
	}
	if err := errors.Join(history.Print(out, t), verification.Print(out, t)); err != nil {
		return err
	}
	if len(t.Leases) > 0 {
		fmt.Fprintln(out)
		if err := leaseTable(out, t.Leases); err != nil {
			return err
		}
	}
	if len(t.Approvals) > 0 {
		fmt.Fprintln(out)
		if err := approvals.Table(out, t.Approvals); err != nil {
			return err
		}
	}
	if len(t.Usage.Models)+len(t.Budgets) > 0 {
		fmt.Fprintln(out)
		if err := budgets.Tables(out, t.Usage.Models, t.Budgets); err != nil {
			return err
		}
	}
	if len(t.Outputs) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	return outputTable(out, t.Outputs)
}

// leaseTable says what was lent to which stage, from when until when.
func leaseTable(out io.Writer, leases []api.Lease) error {
	rows := make([][]string, 0, len(leases))
	for _, l := range leases {
		until := "lasts"
		if l.Until != nil {
			until = l.Until.Local().Format(time.DateTime) + " (" + l.Ended + ")"
		}
		rows = append(rows, []string{l.Credential, l.Kind, l.Stage, l.Sandbox, strings.Join(l.Hosts, " "), l.From.Local().Format(time.DateTime), until})
	}
	return show.Table(out, []string{"LENT", "KIND", "STAGE", "SANDBOX", "HOSTS", "FROM", "UNTIL"}, rows)
}

func outputTable(out io.Writer, list []api.Output) error {
	rows := make([][]string, 0, len(list))
	for _, o := range list {
		rows = append(rows, []string{o.Name, o.Kind, size(o.Size), o.Digest, outputs.Flags(o)})
	}
	if err := show.Table(out, []string{"OUTPUT", "KIND", "SIZE", "DIGEST", "FLAGS"}, rows); err != nil {
		return err
	}
	return outputs.Findings(out, list)
}
