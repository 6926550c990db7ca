// Package files has the commands about single files of sandboxes: ls, stat, cat,
// write, mv, rm, mkdir and chmod. What a sandbox says of its files is hostile: names
// are shown escaped, and bytes go where the user sends them.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
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
	Usage    func(format string, args ...any) error
	Terminal func() bool // Out is one: what a file holds is shown escaped
}

var sandboxID = regexp.MustCompile(`^sb-[a-z2-7]{16}$`)

// Commands returns the commands.
func Commands(h Host) []*cobra.Command {
	return []*cobra.Command{h.ls(), h.stat(), h.cat(), h.write(), h.mv(), h.rm(), h.mkdir(), h.chmod()}
}

// file reads the arguments that name one.
func (h Host) file(id, path string, follow bool) (client.File, error) {
	if !sandboxID.MatchString(id) {
		return client.File{}, h.Usage("%s: this is no sandbox's id; cofferdam sandbox ls lists them", id)
	}
	if !strings.HasPrefix(path, "/") {
		return client.File{}, h.Usage("%s: the path must be absolute, such as /workspace/%s", path, path)
	}
	if trimmed := strings.TrimRight(path, "/"); trimmed != "" {
		path = trimmed
	}
	return client.File{Sandbox: id, Path: path, Follow: follow}, nil
}

const followText = "follow links that stay beneath the same root"

// tell prints what became of a path.
func (h Host) tell(i api.FileInfo, verb, path string) error {
	if h.JSON() {
		return h.Print(i)
	}
	_, err := fmt.Fprintf(h.Out, "%s %s\n", verb, show.Line(path))
	return err
}

func (h Host) ls() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "ls ID PATH", Short: "List what lies in a folder of a sandbox", Args: cobra.ExactArgs(2),
		Long: `List what lies in a folder of a sandbox, by name. Names are shown escaped where they
are no plain text; --json has their bytes, in base64 where they are not UTF-8.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := h.file(args[0], args[1], follow)
			if err != nil {
				return err
			}
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return h.list(ctx, c, f) })
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, followText)
	return cmd
}

// list prints a folder as it comes: it may have very many entries.
func (h Host) list(ctx context.Context, c *client.Client, f client.File) error {
	if !h.JSON() {
		return c.ListFolder(ctx, f, func(i api.FileInfo) error {
			_, err := fmt.Fprintln(h.Out, line(i))
			return err
		})
	}
	begun := false
	err := c.ListFolder(ctx, f, func(i api.FileInfo) error {
		text, err := show.JSON(i, "")
		if err != nil {
			return err
		}
		lead := ",\n    "
		if !begun {
			lead = "{\n  \"entries\": [\n    "
		}
		begun = true
		_, err = fmt.Fprint(h.Out, lead, strings.TrimSpace(string(text)))
		return err
	})
	switch {
	case begun && err == nil:
		_, err = fmt.Fprint(h.Out, "\n  ]\n}\n")
	case err == nil:
		return h.Print(api.FileList{Entries: []api.FileInfo{}})
	}
	return err
}

// line is an entry for people.
func line(i api.FileInfo) string {
	kinds := map[string]string{"file": "-", "folder": "d", "link": "l", "pipe": "p", "socket": "s", "device": "c"}
	name, err := i.NameBytes()
	if err != nil {
		name = "?"
	}
	s := fmt.Sprintf("%1.1s%s %12d %s %s", kinds[i.Kind]+"?", i.Mode, i.Size, i.Modified.UTC().Format(time.DateTime), show.Line(name))
	if target, err := i.TargetBytes(); err == nil && i.Kind == "link" {
		s += " -> " + show.Line(target)
	}
	return s
}

func (h Host) stat() *cobra.Command {
	var follow, digest bool
	cmd := &cobra.Command{
		Use: "stat ID PATH", Short: "Tell what stands at a path of a sandbox", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := h.file(args[0], args[1], follow)
			if err != nil {
				return err
			}
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				i, err := c.StatFile(ctx, f, digest)
				if err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(i)
				}
				facts := []string{
					"kind", i.Kind, "size", strconv.FormatInt(i.Size, 10), "mode", i.Mode, "owner", fmt.Sprintf("%d:%d", i.UID, i.GID),
					"names", strconv.FormatUint(i.Links, 10), "modified", i.Modified.UTC().Format(time.RFC3339),
				}
				if target, err := i.TargetBytes(); err == nil && i.Kind == "link" {
					facts = append(facts, "target", target)
				}
				if i.SHA256 != "" {
					facts = append(facts, "sha256", i.SHA256)
				}
				return show.Facts(h.Out, facts...)
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, followText)
	cmd.Flags().BoolVar(&digest, "digest", false, "SHA-256 of a file")
	return cmd
}

func (h Host) cat() *cobra.Command {
	var follow bool
	var r client.FileRange
	cmd := &cobra.Command{
		Use: "cat ID PATH", Short: "Print bytes of a file of a sandbox", Args: cobra.ExactArgs(2),
		Long: `Print bytes of a regular file of a sandbox to the standard output: as they are, or
escaped on a terminal. Pipes, devices and folders are refused. A file that becomes
shorter meanwhile, or a connection that breaks, ends with an error.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := h.file(args[0], args[1], follow)
			if err != nil {
				return err
			}
			if r.Offset < 0 || r.Length < 0 {
				return h.Usage("--offset and --length can't be negative")
			}
			if h.JSON() {
				return h.Usage("cat prints a file's bytes and no document; stat --json tells about it")
			}
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return h.copyOut(ctx, c, f, r) })
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, followText)
	cmd.Flags().Int64Var(&r.Offset, "offset", 0, "`bytes` to leave out")
	cmd.Flags().Int64Var(&r.Length, "length", 0, "most `bytes` to print; 0: to the file's end")
	return cmd
}

func (h Host) copyOut(ctx context.Context, c *client.Client, f client.File, r client.FileRange) error {
	_, body, err := c.ReadFile(ctx, f, r)
	if err != nil {
		return err
	}
	defer body.Close()
	out := h.Out
	if h.Terminal() {
		escaper := show.NewEscaper(h.Out)
		defer escaper.Close()
		out = escaper
	}
	if _, err := io.CopyBuffer(struct{ io.Writer }{out}, body, make([]byte, 128<<10)); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return &api.Problem{Code: "infra.worker_lost", Detail: "the file broke off: it changed while it was read, or the connection broke; ask again"}
		}
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	return nil
}

func (h Host) mv() *cobra.Command {
	var follow, noReplace bool
	cmd := &cobra.Command{
		Use: "mv ID PATH TO", Short: "Move a path of a sandbox", Args: cobra.ExactArgs(3),
		Long: `Move a path of a sandbox to another, which is the new name itself and not a folder
to move it into. A file that is there is replaced unless --no-replace is given.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := h.file(args[0], args[1], follow)
			if err != nil {
				return err
			}
			to, err := h.file(args[0], args[2], follow)
			if err != nil {
				return err
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				i, err := c.RenameFile(ctx, f, to.Path, noReplace)
				if err != nil {
					return err
				}
				return h.tell(i, "moved to", to.Path)
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, followText)
	cmd.Flags().BoolVar(&noReplace, "no-replace", false, "fail when something is there")
	return cmd
}

func (h Host) rm() *cobra.Command {
	var follow, recursive bool
	cmd := &cobra.Command{
		Use: "rm ID PATH", Short: "Remove a file or folder of a sandbox", Args: cobra.ExactArgs(2),
		Long: "Remove a file, a link or an empty folder of a sandbox. Links are removed and never\nfollowed, also those in a folder that is removed with all in it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := h.file(args[0], args[1], follow)
			if err != nil {
				return err
			}
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				if err := c.RemoveFile(ctx, f, recursive); err != nil {
					return err
				}
				if h.JSON() {
					return h.Print(struct {
						Removed bool `json:"removed"`
					}{true})
				}
				_, err := fmt.Fprintf(h.Out, "removed %s\n", show.Line(f.Path))
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "follow links above the name, beneath the same root")
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "a folder with all in it")
	return cmd
}

func (h Host) mkdir() *cobra.Command {
	var follow, parents bool
	var mode string
	cmd := &cobra.Command{
		Use: "mkdir ID PATH", Short: "Make a folder in a sandbox", Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := h.file(args[0], args[1], follow)
			if err != nil {
				return err
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				i, err := c.MakeFolder(ctx, f, mode, parents)
				if err != nil {
					return err
				}
				return h.tell(i, "made", f.Path)
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, followText)
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "the folders above too; a folder that is there is no error")
	cmd.Flags().StringVar(&mode, "mode", "", "its `mode`, octal (default 0755)")
	return cmd
}

func (h Host) chmod() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "chmod ID MODE PATH", Short: "Change the mode of a file or folder of a sandbox", Args: cobra.ExactArgs(3),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := h.file(args[0], args[2], follow)
			if err != nil {
				return err
			}
			return h.Ask(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				i, err := c.ChmodFile(ctx, f, args[1])
				if err != nil {
					return err
				}
				return h.tell(i, i.Mode, f.Path)
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, followText)
	return cmd
}
