package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
)

func (h Host) write() *cobra.Command {
	var follow bool
	var n client.NewFile
	cmd := &cobra.Command{
		Use: "write ID PATH [FILE]", Short: "Write a file of a sandbox, whole or not at all", Args: cobra.RangeArgs(2, 3),
		Long: `Write FILE of this machine, or the standard input, to a path of a sandbox. The sandbox
checks size and SHA-256 before the path gets the new content; until then, and when
anything fails, it has the old. The standard input is kept in a temporary file first.`,
		Example: `  cofferdam sandbox file write sb-abcdefghijklmnop /workspace/app.conf app.conf
  make-config | cofferdam sandbox file write sb-abcdefghijklmnop /workspace/app.conf --create`,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := h.file(args[0], args[1], follow)
			if err != nil {
				return err
			}
			if n.Create && n.IfSHA256 != "" {
				return h.Usage("--create can't be had together with --if-sha256")
			}
			source := "-"
			if len(args) > 2 {
				source = args[2]
			}
			data, done, err := h.source(source)
			if err != nil {
				return err
			}
			defer done()
			if n.Size, n.SHA256, err = measure(data); err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error {
				i, err := c.WriteFile(ctx, f, n, func() (io.Reader, error) {
					// A reader of its own: an earlier request may still read.
					return io.NewSectionReader(data, 0, n.Size), nil
				})
				if err != nil {
					return err
				}
				return h.tell(i, fmt.Sprintf("wrote %d bytes to", i.Size), f.Path)
			})
		},
	}
	cmd.Flags().BoolVar(&follow, "follow", false, followText)
	cmd.Flags().StringVar(&n.Mode, "mode", "", "its `mode`, octal (default: as the file has it that is there, or 0644)")
	cmd.Flags().BoolVar(&n.Create, "create", false, "fail when something is there")
	cmd.Flags().StringVar(&n.IfSHA256, "if-sha256", "", "fail unless a file with this SHA-256 (`hex`) is there")
	return cmd
}

// source opens what is to be written. What can be read once only is kept in a file
// that has no name.
func (h Host) source(name string) (data *os.File, done func(), err error) {
	if name != "-" {
		info, err := os.Stat(name) // First: opening a pipe would wait for whoever writes to it.
		if err != nil {
			return nil, nil, h.Usage("%v", err)
		}
		if !info.Mode().IsRegular() {
			return nil, nil, h.Usage("%s: not a regular file; give - to write what the standard input has", name)
		}
		if data, err = os.Open(name); err != nil {
			return nil, nil, h.Usage("%v", err)
		}
		return data, func() { data.Close() }, nil
	}
	if data, err = os.CreateTemp("", "cofferdam-write-"); err != nil {
		return nil, nil, fmt.Errorf("the standard input can't be kept: %w", err)
	}
	done = func() { data.Close() }
	if err = os.Remove(data.Name()); err == nil {
		_, err = io.Copy(data, h.In)
	}
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("the standard input can't be kept: %w", err)
	}
	return data, done, nil
}

// measure gives the size and hash of what is to be written.
func measure(data *os.File) (int64, string, error) {
	if _, err := data.Seek(0, io.SeekStart); err != nil {
		return 0, "", err
	}
	sum := sha256.New()
	n, err := io.Copy(sum, data)
	return n, hex.EncodeToString(sum.Sum(nil)), err
}
