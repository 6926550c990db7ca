// Package approvals has the commands about the inbox: approvals, approve and
// deny. What was asked comes from inside a sandbox: it is shown escaped, and
// whole.
package approvals

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Host is what the commands are part of.
type Host struct {
	host.Host
}

// Group returns the command approvals, which lists what waits, and those
// beneath it.
func (h Host) Group() *cobra.Command {
	cmd := h.list("approvals", "Show what waits for an answer")
	cmd.Long = `Show what waits for an answer: connections that no rule matches, where a task's policy
says "unknown: ask", and uses of tools, where it says so under "agent: tools". Answer with "cofferdam approve ID"
or "cofferdam deny ID"; what nobody answers in time is denied.`
	cmd.AddCommand(h.list("ls", "Show what waits for an answer"), h.show(), h.decisions(), h.withdraw())
	return cmd
}

func (h Host) list(use, short string) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.Approvals(ctx, all, "")
				if err != nil {
					return err
				}
				if h.JSON() {
					if list == nil {
						list = []api.Approval{}
					}
					return h.Print(api.ApprovalList{Approvals: list})
				}
				for i, a := range list {
					if i > 0 {
						fmt.Fprintln(h.Out)
					}
					if err := Print(h.Out, a); err != nil {
						return err
					}
				}
				if len(list) == 0 {
					fmt.Fprintln(h.Err, "nothing waits for an answer")
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also what was answered, expired or withdrawn")
	return cmd
}

func (h Host) show() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show one question and its answer", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				a, err := c.Approval(ctx, args[0])
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(a)
				}
				return Print(h.Out, a)
			})
		},
	}
}

// Answer returns the command approve or deny.
func (h Host) Answer(allow bool) *cobra.Command {
	verb, short, scope := "deny", "Refuse what waits for an answer", "task for a connection, else once"
	if allow {
		verb, short, scope = "approve", "Allow what waits for an answer", "once"
	}
	var answer api.ApprovalAnswer
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
		Long: short + `. Once is this very connection, request or call; task is the same host, port and
protocol, or the same use of a tool, in this stage of the task; project is that in every
task of the project. Decisions for a task or a project are listed by "cofferdam approvals
decisions" and taken back by "cofferdam approvals withdraw ID".`,
		RunE: func(cmd *cobra.Command, args []string) error {
			answer.Allow, answer.ForSeconds = allow, int64(lasts/time.Second)
			if lasts < 0 || lasts%time.Second != 0 {
				return host.Invalid("--for %s: must be whole seconds, such as 1h", lasts)
			}
			if lasts > 0 && answer.Scope != "task" && answer.Scope != "project" {
				return host.Invalid("--for goes with --scope task or --scope project")
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				a, err := c.Decide(ctx, args[0], answer)
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(a)
				}
				line := fmt.Sprintf("approval %s: %s, %s", show.Line(a.ID), show.Line(a.State), show.Line(a.Scope))
				if a.Decision != "" {
					line += ", as decision " + show.Line(a.Decision)
				}
				fmt.Fprintln(h.Out, line+": "+Subject(a))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&answer.Scope, "scope", "", "how far it reaches: once, task or project (default "+scope+")")
	cmd.Flags().DurationVar(&lasts, "for", 0, "how `long` it stands, such as 1h (default as long as the task; a day for a project)")
	return cmd
}

func (h Host) decisions() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "decisions", Short: "List the answers that stand", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ask := func(c *client.Client, ctx context.Context) ([]api.Decision, error) { return c.Decisions(ctx, all) } //nolint:revive // as method expressions are
			return host.List(cmd.Context(), h.Host, ask, func(list []api.Decision) any { return api.DecisionList{Decisions: list} },
				[]string{"DECISION", "ANSWER", "WHAT", "SCOPE", "STAGE", "BY", "UNTIL"}, row)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also those that ended")
	return cmd
}

func row(d api.Decision) []string {
	verdict := "denied"
	if d.Allow {
		verdict = "allowed"
	}
	of := d.Task
	if d.Scope == "project" {
		of = d.Project
	}
	return []string{d.ID, verdict, about(d), d.Scope + " " + of, d.Stage, d.By, until(d)}
}

func about(d api.Decision) string {
	if d.Host != "" {
		return place(d.Host, d.Port) + " " + d.Protocol
	}
	if d.Digest != "" {
		return d.Tool + " " + d.Digest
	}
	return d.Tool
}

func until(d api.Decision) string {
	switch {
	case d.Withdrawn != nil:
		return "withdrawn by " + d.Ended
	case d.Until == nil:
		return "the task's end"
	}
	return d.Until.Local().Format(time.DateTime)
}

func (h Host) withdraw() *cobra.Command {
	return &cobra.Command{
		Use: "withdraw ID", Short: "Take back a decision, or an answer for one use, and cut what passes under it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				end, err := c.WithdrawDecision(ctx, args[0])
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(end)
				}
				fmt.Fprintf(h.Out, "%s: withdrawn\n", show.Line(end.ID))
				if !end.Cut {
					fmt.Fprintln(h.Err, "cofferdam: a machine did not answer; connections that are open there may go on until their stage ends")
				}
				return nil
			})
		},
	}
}

func place(host string, port uint16) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}

// Subject says on one line what is asked, escaped.
func Subject(a api.Approval) string {
	switch {
	case a.Egress != nil:
		e := a.Egress
		s := place(e.Name+e.Address, e.Port) + " " + e.Protocol
		if e.Method != "" {
			s += " " + e.Method + " " + e.Path
		}
		return show.Line(s)
	case a.Tool != nil:
		s := a.Tool.Agent + " " + a.Tool.Tool
		for _, arg := range a.Tool.Argv {
			s += " " + strconv.QuoteToASCII(arg)
		}
		return show.Line(s)
	}
	return show.Line(string(a.Action))
}

// Print shows a question with everything that a person needs to answer it.
func Print(out io.Writer, a api.Approval) error {
	state := a.State
	if a.DecidedBy != "" {
		state += " by " + a.DecidedBy
	}
	if a.Scope != "" {
		state += ", " + a.Scope
	}
	count, input, admins := "", "", ""
	if a.Count > 1 {
		count = strconv.Itoa(a.Count) + " times"
	}
	dir, before := "", ""
	if a.Tool != nil {
		input, dir, before = string(a.Tool.Input), a.Tool.Dir, a.Tool.Before
	}
	if a.Admins {
		admins = "administrators only"
	}
	left := ""
	if a.State == "waiting" {
		left = show.Span(time.Until(a.ExpiresAt)) + " left"
	}
	facts := []string{
		"approval", a.ID, "state", state, "answer within", left, "by", admins, "kind", a.Kind, "what", Subject(a), "in", dir, "input", input, "file as it is", before,
		"task", a.Task, "project", a.Project, "stage", a.Stage, "sandbox", a.Sandbox, "requested by", a.Requester,
		"asked", a.AskedAt.Local().Format(time.DateTime), "asked again", count, "decision", a.Decision, "digest", a.Digest,
	}
	if err := show.Facts(out, facts...); err != nil {
		return err
	}
	for _, c := range a.Commands {
		fmt.Fprintf(out, "  running: %s\n", show.Line(c.ID))
		for _, p := range c.Processes {
			fmt.Fprintf(out, "    %s\n", show.Line(p))
		}
	}
	return nil
}

// Table says in short what was asked of persons for a task.
func Table(out io.Writer, list []api.Approval) error {
	rows := make([][]string, 0, len(list))
	for _, a := range list {
		rows = append(rows, []string{a.ID, a.State, a.Scope, a.Kind, a.Stage, Subject(a), a.DecidedBy, a.AskedAt.Local().Format(time.DateTime)})
	}
	return show.Table(out, []string{"ASKED", "STATE", "SCOPE", "KIND", "STAGE", "WHAT", "BY", "AT"}, rows)
}

// News says on one line what became of a question, for who watches its task.
func News(a api.Approval) string {
	if a.State == "waiting" {
		return "  waits for an answer, " + show.Span(time.Until(a.ExpiresAt)) + " at most: " + Subject(a) + "; cofferdam approve " + a.ID + ", or deny"
	}
	s := "  " + a.State + ": " + Subject(a)
	if a.DecidedBy != "" {
		s += ", by " + a.DecidedBy
	}
	return s
}
