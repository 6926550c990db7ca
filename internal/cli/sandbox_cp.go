package cli

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/cli/transfer"
)

type sandboxCpOptions struct {
	src, dst string
	maxSize  string
}

func (a *app) sandboxCpCmd() *cobra.Command {
	var o sandboxCpOptions
	cmd := &cobra.Command{
		Use: "cp SRC DST", Short: "Copy files into a sandbox or out of it", Args: cobra.ExactArgs(2),
		Long: `Copy a file or a folder into a sandbox or out of it: ID:/PATH is a place in a sandbox.
A destination that is a folder, or ends with a slash, gets the source under its own
name; otherwise the destination is the new name. SRC/. copies what is in a folder.

What comes out of a sandbox is treated as hostile: nothing outside of the destination
is touched; links that lead out of what is transfer.Copied, devices and the like are left out,
named, and make the exit code 1.`,
		Example: `  cofferdam sandbox cp ./project sb-abcdefghijklmnop:/workspace/
  cofferdam sandbox cp sb-abcdefghijklmnop:/workspace/report.txt .`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.src, o.dst = args[0], args[1]
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return a.sandboxCp(ctx, c, o) })
		},
	}
	cmd.Flags().StringVar(&o.maxSize, "max-size", "10g", "most bytes to take out of a sandbox")
	return cmd
}

// place is one side of a copy; sandbox is empty on this machine.
type place struct{ sandbox, path string }

func parsePlace(arg string) (place, error) {
	id, p, ok := strings.Cut(arg, ":")
	if !ok || !sandboxID.MatchString(id) {
		return place{path: arg}, nil
	}
	if !path.IsAbs(p) {
		return place{}, usage("%s: the path in a sandbox must be absolute, such as %s:/workspace/%s", arg, id, p)
	}
	return place{sandbox: id, path: p}, nil
}

func (a *app) sandboxCp(ctx context.Context, c *client.Client, o sandboxCpOptions) error {
	src, err := parsePlace(o.src)
	if err != nil {
		return err
	}
	dst, err := parsePlace(o.dst)
	if err != nil {
		return err
	}
	limit, err := parseSize("--max-size", o.maxSize)
	if err != nil {
		return err
	}
	var done transfer.Copied
	switch {
	case (src.sandbox == "") == (dst.sandbox == ""):
		return usage("exactly one of SRC and DST must be in a sandbox, as ID:/PATH")
	case src.sandbox == "":
		done, err = copyIn(ctx, c, src.path, dst)
	default:
		done, err = copyOut(ctx, c, src, dst.path, limit)
	}
	if err != nil {
		return err
	}
	return a.tellCopied(done)
}

func (a *app) tellCopied(done transfer.Copied) error {
	if a.json {
		if done.Skipped == nil {
			done.Skipped = []transfer.Skipped{}
		}
		if err := printJSON(a.Out, done); err != nil {
			return err
		}
	} else {
		for _, s := range done.Skipped {
			fmt.Fprintf(a.Err, "cofferdam: left out %s: %s\n", show.Line(s.Name), show.Line(s.Why))
		}
	}
	if len(done.Skipped) > 0 {
		return &exitError{1}
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

// copyIn sends a file or a folder of this machine into a sandbox.
func copyIn(ctx context.Context, c *client.Client, src string, dst place) (transfer.Copied, error) {
	info, err := os.Stat(src)
	if err != nil {
		return transfer.Copied{}, usage("%s: %v", src, errors.Unwrap(err))
	}
	if !info.IsDir() && !info.Mode().IsRegular() {
		return transfer.Copied{}, usage("%s: neither a file nor a folder", src)
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

// copyOut fetches a file or a folder of a sandbox.
func copyOut(ctx context.Context, c *client.Client, src place, dst string, limit int64) (transfer.Copied, error) {
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
		return transfer.Copied{}, usage("%s: there is no such folder", dst)
	default:
		dir, name = filepath.Dir(absolute(dst)), filepath.Base(absolute(dst))
	}
	done, err := transfer.Unpack(body, dir, name, limit)
	if errors.Is(err, transfer.ErrTooMuch) {
		err = problem("limit.size", "the sandbox sent too much: %v; --max-size allows more", err)
	}
	return done, err
}
