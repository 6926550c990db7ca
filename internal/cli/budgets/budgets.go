// Package budgets has the commands about what tasks, users and projects may use
// of models.
package budgets

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

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

// amount is what a flag says of a number; the zero amount was not given.
type amount struct{ text string }

const none = "none"

func (a amount) tokens() (*int64, error) {
	if a.text == "" {
		return nil, nil
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(a.text, "_", ""), 10, 64)
	if a.text == none {
		n, err = -1, nil
	}
	if err != nil || n == 0 || n < 0 && a.text != none {
		return nil, host.Invalid("--tokens %s: must be a number above 0, or %q for no limit", a.text, none)
	}
	return &n, nil
}

func (a amount) dollars() (*float64, error) {
	if a.text == "" {
		return nil, nil
	}
	v, err := strconv.ParseFloat(strings.TrimPrefix(a.text, "$"), 64)
	if a.text == none {
		v, err = -1, nil
	}
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v == 0 || v < 0 && a.text != none {
		return nil, host.Invalid("--usd %s: must be an amount above 0 such as 2.50, or %q for no limit", a.text, none)
	}
	return &v, nil
}

// wanted are the flags of a change.
type wanted struct {
	tokens, usd amount
	per         string
}

func (w *wanted) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&w.tokens.text, "tokens", "", "how many tokens may be used; \"none\": no limit")
	cmd.Flags().StringVar(&w.usd.text, "usd", "", "how many US dollars may be spent, by the installation's prices; \"none\": no limit")
}

func (w *wanted) change() (api.BudgetChange, error) {
	c := api.BudgetChange{Per: w.per}
	var err error
	if c.Tokens, err = w.tokens.tokens(); err == nil {
		c.USD, err = w.usd.dollars()
	}
	return c, err
}

// Task returns the command `task budget`.
func (h Host) Task() *cobra.Command {
	var w wanted
	cmd := &cobra.Command{
		Use: "budget ID", Short: "Show what a task used of models and may use, or change that", Args: cobra.ExactArgs(1),
		Long: `Show what a task used of models, and the budgets that bind it; with --tokens or --usd,
change its own. A task whose budget is used up waits, with its processes held, and goes on
when there is room again. Whoever asked for the task may raise its budget as far as the
policies above its own allow; an administrator may beyond.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := w.change()
			if err != nil {
				return err
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, cl *client.Client) error {
				ask := cl.TaskBudget
				if c.Tokens != nil || c.USD != nil {
					ask = func(ctx context.Context, id string) (api.TaskBudget, error) { return cl.SetTaskBudget(ctx, id, c) }
				}
				b, err := ask(ctx, args[0])
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(b)
				}
				if len(b.Budgets) == 0 && len(b.Models) == 0 {
					fmt.Fprintln(h.Out, "no model was used, and nothing limits how much may be")
					return nil
				}
				return Tables(h.Out, b.Models, b.Budgets)
			})
		},
	}
	w.flags(cmd)
	return cmd
}

// Group returns the command `budget` and those beneath it.
func (h Host) Group() *cobra.Command {
	cmd := &cobra.Command{
		Use: "budget", Short: "What users and projects may use of models", Args: cobra.NoArgs,
		Long: `What users and projects may use of models a day or a month (UTC), in tokens, in US dollars
by the installation's prices, or both. Where a budget is used up, the tasks that it binds
wait until it is raised or its period is over. "*" stands for every user, or project,
without one of its own.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(h.ls(), h.set(), h.rm())
	return cmd
}

func (h Host) ls() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the budgets of users and projects", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				list, err := c.Budgets(ctx)
				if err != nil {
					return err
				}
				if h.JSON() {
					if list == nil {
						list = []api.Budget{}
					}
					return h.Print(api.BudgetList{Budgets: list})
				}
				return table(h.Out, list)
			})
		},
	}
}

func (h Host) set() *cobra.Command {
	var w wanted
	cmd := &cobra.Command{
		Use: "set user|project NAME", Short: "Change what a user or a project may use", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := w.change()
			switch {
			case err != nil:
				return err
			case c.Tokens == nil && c.USD == nil && c.Per == "":
				return host.Invalid("give --tokens, --usd or both")
			case c.Per != "" && c.Per != "day" && c.Per != "month":
				return host.Invalid("--per %s: must be day or month", c.Per)
			case args[0] != "user" && args[0] != "project":
				return host.Invalid("%s: must be user or project", args[0])
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, cl *client.Client) error {
				b, err := cl.SetBudget(ctx, args[0], args[1], c)
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(b)
				}
				return table(h.Out, []api.Budget{b})
			})
		},
	}
	w.flags(cmd)
	cmd.Flags().StringVar(&w.per, "per", "", "day or month (UTC); default: as it is, else month")
	return cmd
}

func (h Host) rm() *cobra.Command {
	return &cobra.Command{
		Use: "rm user|project NAME", Short: "Take the budget of a user or a project away", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if err := c.RemoveBudget(ctx, args[0], args[1]); err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(map[string]string{"scope": args[0], "name": args[1]})
				}
				fmt.Fprintf(h.Out, "%s %s has no budget any more\n", show.Line(args[0]), show.Line(args[1]))
				return nil
			})
		},
	}
}

// Tables shows what models were used for, and the budgets.
func Tables(out io.Writer, models []api.ModelSpend, budgets []api.Budget) error {
	if len(models) > 0 {
		rows := make([][]string, 0, len(models))
		for _, m := range models {
			name, cost := m.Model, "no price"
			if name == "" {
				name = "(not named)"
			}
			if m.Priced {
				cost = usd(m.USD)
			}
			requests := fmt.Sprint(m.Requests)
			if m.Estimates > 0 {
				requests += fmt.Sprintf(" (%d estimated)", m.Estimates)
			}
			rows = append(rows, []string{name, requests, fmt.Sprint(m.Input), fmt.Sprint(m.CacheRead), fmt.Sprint(m.CacheWrite), fmt.Sprint(m.Output), cost})
		}
		if err := show.Table(out, []string{"MODEL", "REQUESTS", "INPUT", "CACHE READ", "CACHE WRITE", "OUTPUT", "USD"}, rows); err != nil {
			return err
		}
	}
	if len(budgets) == 0 {
		return nil
	}
	if len(models) > 0 {
		fmt.Fprintln(out)
	}
	return table(out, budgets)
}

func table(out io.Writer, budgets []api.Budget) error {
	rows := make([][]string, 0, len(budgets))
	for _, b := range budgets {
		tokens, money, note := "–", "–", b.By
		if b.Tokens > 0 {
			tokens = fmt.Sprintf("%d of %d", b.UsedTokens, b.Tokens)
		}
		if b.USD > 0 {
			money = usd(b.UsedUSD) + " of " + usd(b.USD)
		}
		if note == "" {
			note = "its policy"
		}
		if b.Unpriced != "" && b.USD > 0 {
			note += "; " + b.Unpriced + " has no price"
		}
		rows = append(rows, []string{b.Scope + " " + b.Name, tokens, money, b.Per, note})
	}
	return show.Table(out, []string{"BUDGET", "TOKENS", "USD", "PER", "SET BY"}, rows)
}

func usd(v float64) string {
	digits := 2
	if v < 1 && v > 0 {
		digits = 4
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
