// Package evidence has the commands that keep a sandbox as evidence: freeze, evidence
// and what checks an archive without a server.
package evidence

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	archive "github.com/cofferdam/cofferdam/internal/audit/evidence"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// Host is what the commands are part of.
type Host struct {
	host.Host
	Keys func(all []string) (string, error) // reads public keys, one a line
}

// Commands returns the commands.
func Commands(h Host) []*cobra.Command {
	return []*cobra.Command{h.freeze(), h.frozen(), h.evidence()}
}

func (h Host) freeze() *cobra.Command {
	var req api.Freezing
	cmd := &cobra.Command{
		Use: "freeze ID", Short: "Keep a sandbox as evidence: nothing runs in it any more, and nothing cleans it up", Args: cobra.ExactArgs(1),
		Long: `Keep a sandbox as evidence. Its connections are cut and it reaches nothing, every process
in it is stopped for good, what was lent to it ends, and its task ends as cancelled. The
sandbox stays: nobody works in it, and neither its time, nor its task's end, nor
"cofferdam down" removes it, until "sandbox rm --evidence". A restart of the machine ends
it, so export it soon: "sandbox evidence".

It may be repeated, and should be where the sandbox's machine did not answer.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				out, err := c.FreezeSandbox(ctx, args[0], req)
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(out)
				}
				text := "sandbox " + out.Sandbox + ": frozen, kept as evidence on worker " + out.Worker
				if out.Ending {
					text += "; task " + out.Task + " ends as cancelled"
				}
				_, err = fmt.Fprintln(h.Out, show.Line(text))
				return err
			})
		},
	}
	cmd.Flags().StringVar(&req.Reason, "reason", "", "`text` for the record and for who looks later")
	return cmd
}

func (h Host) frozen() *cobra.Command {
	return &cobra.Command{
		Use: "frozen", Short: "List the sandboxes that are kept as evidence", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return host.List(cmd.Context(), h.Host, (*client.Client).FrozenSandboxes, func(list []api.FrozenSandbox) any { return api.FrozenList{Sandboxes: list} },
				[]string{"SANDBOX", "TASK", "WORKER", "FROZEN", "BY", "REASON"}, func(f api.FrozenSandbox) []string {
					return []string{f.Sandbox, f.Task, f.Worker, f.FrozenAt.Local().Format(time.DateTime), f.By, f.Reason}
				})
		},
	}
}

func (h Host) evidence() *cobra.Command {
	var out string
	var check bool
	var keys []string
	cmd := &cobra.Command{
		Use: "evidence ID -o FILE | evidence --check FILE --key KEY", Short: "Export what was found in a frozen sandbox, or check such an archive", Args: cobra.ExactArgs(1),
		Long: `Export what was found in a frozen sandbox as one archive, a tar file: its files as tar
streams of their own, its processes, what its commands wrote, the gateway's decisions, what
was refused on protected files, its task with the policy, the task's records and receipt,
and last a manifest of all that with sizes and SHA-256, signed with the audit key. What is
not in it is named in the manifest, with the reason.

What a sandbox left is hostile. The archive has it as data: open its inner tar files where
it can do no harm.

With --check FILE the archive is checked without a server: the signature under the keys
that are given, and every byte against the manifest. Give keys that were kept elsewhere.`,
		Example: `  cofferdam sandbox evidence sb-… -o found.tar
  cofferdam sandbox evidence --check found.tar --key audit.pub`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if check {
				return h.check(args[0], keys)
			}
			if out == "" {
				return host.Invalid("-o FILE is needed: where the archive goes")
			}
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return h.export(ctx, c, args[0], out) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&out, "output", "o", "", "`file` that the archive is written to; it must not be there yet")
	f.BoolVar(&check, "check", false, "check an archive instead")
	f.StringArrayVar(&keys, "key", nil, "a public key, or a file that holds one a line; may be repeated")
	return cmd
}

// exported is what export tells.
type exported struct {
	File string `json:"file"`
	Size int64  `json:"size"`
}

// export writes the archive whole or not at all, and over nothing.
func (h Host) export(ctx context.Context, c *client.Client, id, file string) error {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return host.Invalid("-o %s: it is there already; evidence is written over nothing", file)
	}
	from, err := c.Evidence(ctx, id)
	if err != nil {
		return err
	}
	defer from.Close()
	part := file + ".part"
	to, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return host.Invalid("-o %s: %v", file, err)
	}
	defer os.Remove(part) // fails once it is linked and removed
	n, err := io.Copy(to, from)
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		return fmt.Errorf("the archive broke off: %w", err)
	}
	if err := os.Link(part, file); err != nil {
		return host.Invalid("-o %s: %v", file, err)
	}
	if h.JSON() {
		return h.Print(exported{file, n})
	}
	_, err = fmt.Fprintf(h.Out, "%s: %d bytes; keep it elsewhere, and check it with: cofferdam sandbox evidence --check %s --key KEY\n", show.Line(file), n, show.Line(file))
	return err
}

func (h Host) check(file string, all []string) error {
	keys, err := h.Keys(all)
	if err != nil {
		return err
	}
	f, err := os.Open(file)
	if err != nil {
		return host.Invalid("%v", err)
	}
	defer f.Close()
	report := archive.Verify(keys, f)
	if h.JSON() {
		err = h.Print(struct {
			OK   bool   `json:"ok"`
			File string `json:"file"`
			archive.Report
		}{report.OK(), file, report})
	} else {
		err = h.tell(file, report)
	}
	if err == nil && !report.OK() {
		err = h.Failed()
	}
	return err
}

func (h Host) tell(file string, report archive.Report) error {
	if !report.OK() {
		fmt.Fprintf(h.Out, "%s: NOT VERIFIED\n", show.Line(file))
		for _, f := range report.Findings {
			fmt.Fprintf(h.Out, "  %s\n", show.Line(f))
		}
		return nil
	}
	m := report.Manifest
	fmt.Fprintf(h.Out, "%s: verified: sandbox %s, frozen %s by %s, signed by %s (key %s)\n", show.Line(file), show.Line(m.Sandbox),
		m.FrozenAt.Local().Format(time.DateTime), show.Line(m.FrozenBy), show.Line(m.Origin), show.Line(report.Key))
	for _, e := range m.Entries {
		fmt.Fprintf(h.Out, "  %-24s %12d bytes, as the %s told\n", show.Line(e.Name), e.Size, show.Line(e.SeenBy))
	}
	for _, l := range m.Left {
		fmt.Fprintf(h.Out, "  left out: %s: %s\n", show.Line(l.Name), show.Line(l.Why))
	}
	return nil
}
