// Package keys has the commands about the installation's keys: ls and rotate. No key
// is ever printed; new tokens are, once.
package keys

import (
	"context"
	"errors"
	"fmt"
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
	// Save keeps a new token in the configuration that was used.
	Save func(token string) error
	// Renew has a key made anew while nothing runs; Renewable says of which it can.
	Renew     func(data, name string) error
	Renewable func(name string) bool
}

// Commands returns the commands.
func Commands(h Host) []*cobra.Command { return []*cobra.Command{h.ls(), h.rotate()} }

func (h Host) ls() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the keys: where they are, for what, when they were made anew; never a key", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return host.List(cmd.Context(), h.Host, (*client.Client).Keys, func(list []api.Key) any { return api.KeyList{Keys: list} },
				[]string{"KEY", "ID", "MADE", "ROTATED", "ROTATES", "FOR", "WHERE"}, row)
		},
	}
}

func row(k api.Key) []string {
	rotated := "never"
	if k.RotatedAt != nil {
		rotated = moment(k.RotatedAt) + " by " + k.RotatedBy
	}
	id := k.ID
	if len(id) > 16 {
		id = id[:16]
	}
	if k.Problem != "" {
		id = "PROBLEM: " + k.Problem
	}
	return []string{k.Name, id, moment(k.MadeAt), rotated, k.Rotation, k.For, k.Where}
}

func moment(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

type options struct {
	all  bool
	data string
	req  api.KeyRotation
}

func (h Host) rotate() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "rotate NAME|--all", Short: "Make a key anew", Args: cobra.MaximumNArgs(1),
		Long: `Make a key anew ("key ls" names them). With --all every one that can be while the
platform runs, the tokens last; those that can't are named, with what to do.

  vault      every credential is sealed anew under another key, in one step
  audit      another key signs from here on; what was signed before is verified with the
             old one ("audit key --all" prints both halves that verify)
  engine     another key seals what the engine is handed
  identity   the runs' tokens; the old key is published until its last token has ended,
             or with --now not at all
  tokens     every token of the API, or those of --user: they work no more, and new ones
             are printed once. Yours is kept in the configuration that was used

A key that is "stopped" is made anew while nothing runs: give the data folder.`,
		Example: `  cofferdam key rotate vault
  cofferdam key rotate tokens --user alice
  cofferdam key rotate --all
  sudo cofferdam down && sudo cofferdam key rotate gateway-seal --data /var/lib/cofferdam`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name := ""
			if len(args) == 1 {
				name = args[0]
			}
			switch {
			case o.all == (name != ""):
				return host.Invalid("give the name of one key, or --all")
			case o.data != "":
				return h.stopped(o.data, name)
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if o.all {
					return h.rotateAll(ctx, c, o.req)
				}
				out, err := c.RotateKey(ctx, name, o.req)
				if err != nil {
					return err
				}
				h.save(&out)
				if h.JSON() {
					return h.Print(out)
				}
				return h.tell(out)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "every key that can be made anew while the platform runs")
	f.StringVar(&o.req.User, "user", "", "of tokens, those of this `user` (default: everyone's)")
	f.BoolVar(&o.req.Now, "now", false, "of identity: sign with the new key at once, and forget every other one")
	f.StringVar(&o.data, "data", "", "data `folder` of an installation that does not run")
	return cmd
}

// stopped makes a key anew that nothing may use meanwhile.
func (h Host) stopped(data, name string) error {
	if !h.Renewable(name) {
		return host.Invalid("--data: %q is made anew while the platform runs, or not at all; leave --data out (see cofferdam key ls)", name)
	}
	if err := h.Renew(data, name); err != nil {
		return err
	}
	out := api.KeyRotated{Name: name, Note: "it is made at the next cofferdam up"}
	if h.JSON() {
		return h.Print(out)
	}
	return h.tell(out)
}

// all is what rotateAll tells.
type all struct {
	Rotated []api.KeyRotated `json:"rotated"`
	Failed  []left           `json:"failed"`
	Left    []left           `json:"left"`
}

// left is a key that was not made anew.
type left struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// rotateAll makes every key anew that can be, and goes on where one can't: the more
// are new the better. The tokens come last, since the one that asks is among them.
func (h Host) rotateAll(ctx context.Context, c *client.Client, req api.KeyRotation) error {
	if req.User != "" {
		return host.Invalid("--user goes with tokens; name that key")
	}
	list, err := c.Keys(ctx)
	if err != nil {
		return err
	}
	done := all{Rotated: []api.KeyRotated{}, Failed: []left{}, Left: []left{}}
	rotate := func(name string) {
		one := api.KeyRotation{Now: req.Now && name == "identity"}
		out, err := c.RotateKey(ctx, name, one)
		if err == nil {
			h.save(&out)
			done.Rotated = append(done.Rotated, out)
		}
		if err != nil {
			done.Failed = append(done.Failed, left{name, err.Error()})
		}
	}
	tokens := false
	for _, k := range list {
		switch {
		case k.Rotation != "running":
			done.Left = append(done.Left, left{k.Name, k.How})
		case k.Name == "tokens":
			tokens = true
		default:
			rotate(k.Name)
		}
	}
	if tokens {
		rotate("tokens")
	}
	if err := h.tellAll(done); err != nil {
		return err
	}
	if len(done.Failed) > 0 {
		return h.Failed()
	}
	return nil
}

func (h Host) tellAll(done all) error {
	if h.JSON() {
		return h.Print(done)
	}
	var errs []error
	for _, one := range done.Rotated {
		errs = append(errs, h.tell(one))
	}
	for _, one := range done.Left {
		_, err := fmt.Fprintf(h.Out, "key %s: left as it is: %s\n", show.Line(one.Name), show.Line(one.Why))
		errs = append(errs, err)
	}
	for _, one := range done.Failed {
		_, err := fmt.Fprintf(h.Out, "key %s: NOT made anew: %s\n", show.Line(one.Name), show.Line(one.Why))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// save keeps the caller's own new token.
func (h Host) save(out *api.KeyRotated) {
	for _, t := range out.Tokens {
		if !t.Yours {
			continue
		}
		if err := h.Save(t.Secret); err != nil {
			out.Note += "; your new token could not be kept in your configuration (" + err.Error() + "): it is among these"
		}
	}
}

func (h Host) tell(out api.KeyRotated) error {
	what := "made anew"
	if out.ID != "" {
		what += ", now " + out.ID
	}
	if out.Sealed > 0 {
		what += fmt.Sprintf(", values sealed under it: %d", out.Sealed)
	}
	fmt.Fprintf(h.Out, "key %s: %s\n", show.Line(out.Name), show.Line(what))
	if out.Public != "" {
		fmt.Fprintf(h.Out, "  its public half: %s\n", show.Line(out.Public))
	}
	if out.Note != "" {
		fmt.Fprintf(h.Out, "  %s\n", show.Line(out.Note))
	}
	if len(out.Tokens) == 0 {
		return nil
	}
	rows := make([][]string, 0, len(out.Tokens))
	for _, t := range out.Tokens {
		secret := t.Secret
		if secret == "" {
			secret = "in the file of this machine"
		}
		rows = append(rows, []string{t.ID, t.User, t.Role, t.Note, secret})
	}
	return show.Table(h.Out, []string{"TOKEN", "USER", "ROLE", "NOTE", "SECRET, SHOWN ONCE"}, rows)
}
