// Package cp has the command that copies files into sandboxes and out of them: it
// finds out what stands at both ends, and transfer carries it.
package cp

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/host"
	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/cli/transfer"
)

// Host is what the command is part of.
type Host struct {
	host.Host
	Usage func(format string, args ...any) error
	Size  func(flag, text string) (int64, error) // reads a number of bytes
}

var sandboxID = regexp.MustCompile(`^sb-[a-z2-7]{16}$`)

type options struct {
	src, dst string
	maxSize  string
}

// Command returns the command.
func Command(h Host) *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "cp SRC DST", Short: "Copy files into a sandbox or out of it", Args: cobra.ExactArgs(2),
		Long: `Copy a file or a folder into a sandbox or out of it: ID:/PATH is a place in a sandbox.
A destination that is a folder, or ends with a slash, gets the source under its own
name; otherwise the destination is the new name. SRC/. copies what is in a folder.

What comes out of a sandbox is treated as hostile: nothing outside of the destination
is touched; links that lead out of what is copied, devices and the like are left out, named, and
make the exit code 1.`,
		Example: `  cofferdam sandbox cp ./project sb-abcdefghijklmnop:/workspace/
  cofferdam sandbox cp sb-abcdefghijklmnop:/workspace/report.txt .`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.src, o.dst = args[0], args[1]
			return h.Stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return h.copy(ctx, c, o) })
		},
	}
	cmd.Flags().StringVar(&o.maxSize, "max-size", "10g", "most bytes to take out of a sandbox")
	return cmd
}

// place is one side of a copy; sandbox is empty on this machine.
type place struct{ sandbox, path string }

func (h Host) place(arg string) (place, error) {
	id, p, ok := strings.Cut(arg, ":")
	if !ok || !sandboxID.MatchString(id) {
		return place{path: arg}, nil
	}
	if !path.IsAbs(p) {
		return place{}, h.Usage("%s: the path in a sandbox must be absolute, such as %s:/workspace/%s", arg, id, p)
	}
	return place{sandbox: id, path: p}, nil
}

func (h Host) copy(ctx context.Context, c *client.Client, o options) error {
	src, err := h.place(o.src)
	if err != nil {
		return err
	}
	dst, err := h.place(o.dst)
	if err != nil {
		return err
	}
	limit, err := h.Size("--max-size", o.maxSize)
	if err != nil {
		return err
	}
	var done transfer.Copied
	switch {
	case (src.sandbox == "") == (dst.sandbox == ""):
		return h.Usage("exactly one of SRC and DST must be in a sandbox, as ID:/PATH")
	case src.sandbox == "":
		done, err = h.in(ctx, c, src.path, dst)
	default:
		done, err = h.out(ctx, c, src, dst.path, limit)
	}
	if err != nil {
		return err
	}
	return h.tell(done)
}

func (h Host) tell(done transfer.Copied) error {
	if h.JSON() {
		if done.Skipped == nil {
			done.Skipped = []transfer.Skipped{}
		}
		if err := h.Print(done); err != nil {
			return err
		}
	} else {
		for _, s := range done.Skipped {
			fmt.Fprintf(h.Err, "cofferdam: left out %s: %s\n", show.Line(s.Name), show.Line(s.Why))
		}
	}
	if len(done.Skipped) > 0 {
		return h.Failed()
	}
	return nil
}

// inSandbox says what stands at a path in a sandbox.
func inSandbox(ctx context.Context, c *client.Client, at place) (folder, exists bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // the first entry says enough
	body, err := c.GetFiles(ctx, at.sandbox, at.path)
	var p *api.Problem
	if errors.As(err, &p) && p.Code == "input.not_found" {
		// The path, or the sandbox itself: that one is asked about.
		_, err := c.Sandbox(ctx, at.sandbox)
		return false, false, err
	}
	if err != nil {
		return false, false, err
	}
	defer body.Close()
	head, err := tar.NewReader(body).Next()
	if err != nil {
		return false, false, fmt.Errorf("%s:%s: %w", at.sandbox, at.path, err)
	}
	return head.Typeflag == tar.TypeDir, true, nil
}

// in sends a file or a folder of this machine into a sandbox.
func (h Host) in(ctx context.Context, c *client.Client, src string, dst place) (transfer.Copied, error) {
	info, err := os.Stat(src)
	if err != nil {
		return transfer.Copied{}, h.Usage("%s: %v", src, errors.Unwrap(err))
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return transfer.Copied{}, h.Usage("%s: neither a file nor a folder", src)
	}
	contents := info.IsDir() && (src == "." || strings.HasSuffix(src, "/."))
	dir, name := path.Clean(dst.path), filepath.Base(absolute(src))
	if !contents {
		folder, _, err := inSandbox(ctx, c, dst)
		if err != nil {
			return transfer.Copied{}, err
		}
		if !folder && !strings.HasSuffix(dst.path, "/") {
			dir, name = path.Dir(dir), path.Base(dir)
		}
	} else {
		name = "."
	}
	r, w := io.Pipe()
	var done transfer.Copied
	packed := make(chan error, 1)
	go func() {
		err := transfer.Pack(src, info, name, w, &done)
		w.CloseWithError(err)
		packed <- err
	}()
	err = c.PutFiles(ctx, dst.sandbox, dir, r)
	r.CloseWithError(errors.New("the server takes no more"))
	if perr := <-packed; perr != nil && err == nil {
		err = perr
	}
	return done, err
}

// out fetches a file or a folder of a sandbox.
func (h Host) out(ctx context.Context, c *client.Client, src place, dst string, limit int64) (transfer.Copied, error) {
	body, err := c.GetFiles(ctx, src.sandbox, strings.TrimSuffix(src.path, "/."))
	if err != nil {
		return transfer.Copied{}, err
	}
	defer body.Close()
	contents := strings.HasSuffix(src.path, "/.")
	info, err := os.Stat(dst)
	name := path.Base(path.Clean(src.path))
	dir := dst
	switch {
	case err == nil && info.IsDir():
		if contents {
			dir, name = filepath.Dir(absolute(dst)), filepath.Base(absolute(dst))
		}
	case strings.HasSuffix(dst, "/"):
		return transfer.Copied{}, h.Usage("%s: there is no such folder", dst)
	default:
		dir, name = filepath.Dir(absolute(dst)), filepath.Base(absolute(dst))
	}
	done, err := transfer.Unpack(body, dir, name, limit)
	if errors.Is(err, transfer.ErrTooMuch) {
		err = &api.Problem{Code: "limit.size", Detail: fmt.Sprintf("the sandbox sent too much: %v; --max-size allows more", err)}
	}
	return done, err
}

// absolute makes a path of the caller independent of the working folder.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		return abs
	}
	return path
}
