// Package policies has the commands about policies: explain, check and project.
// What a policy means is asked of the server, whose operator's and projects'
// layers count; nothing is decided here, and what files say is shown escaped.
package policies

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Host is what the commands are part of.
type Host struct {
	host.Host
	Read   func(path string) (string, error) // the text of a policy file; "-" is the standard input
	Failed func() error                      // ends the program as examples that don't hold do
}

// Commands returns the commands.
func Commands(h Host) []*cobra.Command {
	return []*cobra.Command{h.explain(), h.check(), h.project()}
}

func (h Host) explain() *cobra.Command {
	var q api.PolicyQuestion
	cmd := &cobra.Command{
		Use: "explain [FILE]", Short: "Print the effective policy and the layer of every line", Args: cobra.MaximumNArgs(1),
		Long: `Print what a policy file comes to beneath the layers above it: limits, what each
stage may reach and what that trusts, the file protections, and the ceilings. Every
line says which layer it comes from and where it stands there. Without FILE, it says
what holds for a task that has no policy of its own.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := h.text(&q, args); err != nil {
				return err
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				e, err := c.ExplainPolicy(ctx, q)
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(e)
				}
				return explanation(h.Out, e)
			})
		},
	}
	cmd.Flags().StringVar(&q.Project, "project", "", "`name` of the project whose layer counts")
	cmd.Flags().StringVar(&q.Stage, "stage", "", "only what is about this `stage`: checkout, setup, agent or verify")
	cmd.Flags().StringVar(&q.Agent, "agent", "", "`name` of the agent: tells how it asks its models, and with what")
	return cmd
}

// text reads the policy file of a question.
func (h Host) text(q *api.PolicyQuestion, args []string) (err error) {
	if len(args) > 0 {
		q.Policy, err = h.Read(args[0])
	}
	return err
}

func explanation(out io.Writer, e api.PolicyExplanation) error {
	facts := []string{"policy", e.PolicyDigest}
	for _, l := range e.Layers {
		facts = append(facts, l.Layer, l.Digest)
	}
	if err := show.Facts(out, facts...); err != nil {
		return err
	}
	rows := make([][]string, 0, len(e.Lines))
	for _, l := range e.Lines {
		where := l.Layer
		if l.Line > 0 {
			where += " line " + strconv.Itoa(l.Line)
		}
		stage := l.Stage
		if stage == "" {
			stage = "all"
		}
		rows = append(rows, []string{stage, l.Field, l.Text, where, l.Note})
	}
	fmt.Fprintln(out)
	return show.Table(out, []string{"STAGE", "FIELD", "VALUE", "LAYER", "NOTE"}, rows)
}

func (h Host) check() *cobra.Command {
	var q api.PolicyQuestion
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Run the examples of a policy file", Args: cobra.ExactArgs(1),
		Long: `Run the examples of a policy file: what the file says is allowed must be, and what
it says is denied must be. The program ends with 12 when one does not hold.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := h.text(&q, args); err != nil {
				return err
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				r, err := c.CheckPolicy(ctx, q)
				if err != nil {
					return err
				}
				if h.JSON() {
					err = h.Print(r)
				} else {
					err = checked(h.Out, r)
				}
				if err == nil && !r.Passed {
					return h.Failed()
				}
				return err
			})
		},
	}
	cmd.Flags().StringVar(&q.Project, "project", "", "`name` of the project whose layer counts")
	return cmd
}

func checked(out io.Writer, r api.PolicyCheck) error {
	if len(r.Examples) == 0 {
		_, err := fmt.Fprintln(out, "the file is right, and has no examples")
		return err
	}
	rows := make([][]string, 0, len(r.Examples))
	for _, e := range r.Examples {
		result := "holds"
		if !e.Passed {
			result = "FAILS: " + e.Why
		}
		by := e.Rule
		if by == "" {
			by = e.Reason
		}
		rows = append(rows, []string{strconv.Itoa(e.Line), e.Text, e.Expect, result, by})
	}
	return show.Table(out, []string{"LINE", "EXAMPLE", "EXPECTED", "RESULT", "BECAUSE"}, rows)
}
