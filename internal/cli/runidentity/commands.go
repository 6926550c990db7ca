// Package runidentity has the commands about who runs are: show, rotate and
// export. What they export is what relying parties read, byte by byte as the
// server publishes it.
package runidentity

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// Commands returns the commands.
func Commands(h Host) []*cobra.Command {
	return []*cobra.Command{h.show(), h.rotate(), h.export()}
}

func (h Host) show() *cobra.Command {
	return &cobra.Command{
		Use: "show", Short: "Show the issuer of the runs' tokens, and its keys", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				have, err := c.RunIdentity(ctx)
				if err != nil {
					return err
				}
				return h.tell(have)
			})
		},
	}
}

func (h Host) tell(have api.RunIdentity) error {
	if h.JSON() {
		return h.Print(have)
	}
	if err := show.Facts(h.Out, "issuer", have.Issuer, "discovery", have.Discovery); err != nil {
		return err
	}
	fmt.Fprintln(h.Out)
	rows := make([][]string, 0, len(have.Keys))
	for _, k := range have.Keys {
		until := "-"
		if k.PublishedUntil != nil {
			until = k.PublishedUntil.Local().Format(time.DateTime)
		}
		rows = append(rows, []string{k.ID, k.Algorithm, k.State, k.SignsFrom.Local().Format(time.DateTime), until})
	}
	return show.Table(h.Out, []string{"KEY", "ALGORITHM", "STATE", "SIGNS FROM", "PUBLISHED UNTIL"}, rows)
}

func (h Host) rotate() *cobra.Command {
	var req api.IdentityRotation
	cmd := &cobra.Command{
		Use: "rotate", Short: "Make a new key for the runs' tokens", Args: cobra.NoArgs,
		Long: `Make a new key for the tokens that say who a run is. It is published at once and signs
when relying parties have had time to read it; the key before it is published until the
last token that it signed has ended. Where the documents are exported, export them again
before the new key signs.

With --now the new key signs at once and every other one is forgotten: for a key that
others may have. Tokens of before are refused as soon as relying parties look again, and
new ones by those who have not looked yet.`,
		Example: `  cofferdam identity rotate && cofferdam identity export /srv/www/issuer`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				have, err := c.RotateIdentity(ctx, req)
				if err != nil {
					return err
				}
				return h.tell(have)
			})
		},
	}
	cmd.Flags().BoolVar(&req.Now, "now", false, "sign with it at once, and forget every other key")
	cmd.Flags().StringVar(&req.Algorithm, "algorithm", "", "`RS256` or ES256 (default RS256, which every relying party knows)")
	return cmd
}

// exported is what export tells.
type exported struct {
	Issuer string   `json:"issuer"`
	Files  []string `json:"files"`
}

func (h Host) export() *cobra.Command {
	return &cobra.Command{
		Use: "export DIR", Short: "Write the two documents that relying parties read", Args: cobra.ExactArgs(1),
		Long: `Write the discovery document and the public keys beneath DIR, where any https host that
answers for the issuer URL can serve them: relying parties need not reach this server. Export
again after each rotation. There is nothing secret in them.`,
		Example: `  cofferdam identity export /srv/www/issuer`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				have, err := c.RunIdentity(ctx)
				if err != nil {
					return err
				}
				done := exported{Issuer: have.Issuer}
				// The keys first: who reads the new discovery document finds them.
				for _, path := range []string{client.IdentityKeysPath, client.DiscoveryPath} {
					text, err := c.Published(ctx, path)
					if err != nil {
						return err
					}
					file := filepath.Join(args[0], filepath.FromSlash(path))
					if err := replace(file, text); err != nil {
						return &api.Problem{Code: "input.invalid", Detail: "the document can't be written: " + err.Error()}
					}
					done.Files = append(done.Files, file)
				}
				if h.JSON() {
					return h.Print(done)
				}
				for _, file := range done.Files {
					fmt.Fprintln(h.Out, show.Line(file))
				}
				fmt.Fprintf(h.Out, "serve %s at %s\n", show.Line(args[0]), show.Line(have.Issuer))
				return nil
			})
		},
	}
}

// replace puts a document that anybody may read in place of a file, whole.
func replace(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already when all went well
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}
