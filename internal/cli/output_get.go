package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cofferdam/cofferdam/client"
)

type outputGetOptions struct {
	task, name string
	file       string
	raw        bool
	json       bool
}

func (a *app) outputCmd() *cobra.Command {
	return group("output", "Fetch what tasks left", a.outputGetCmd())
}

func (a *app) outputGetCmd() *cobra.Command {
	var o outputGetOptions
	cmd := &cobra.Command{
		Use: "get TASK NAME", Short: "Print the bytes of an output", Args: cobra.ExactArgs(2),
		Long: `Print the bytes of an output, checked against its digest. They were chosen inside a
sandbox: on a terminal they are shown escaped, into a pipe or a file they go as they
are.`,
		Example: `  cofferdam output get t-abcdefghijklmnop patch | git apply`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.task, o.name, o.json = args[0], args[1], a.json
			return a.stay(cmd.Context(), func(ctx context.Context, c *client.Client) error { return outputGet(ctx, c, o, a.Out) })
		},
	}
	cmd.Flags().StringVarP(&o.file, "output", "o", "", "write into this file, which appears when complete")
	cmd.Flags().BoolVar(&o.raw, "raw", false, "the bytes as they are, on a terminal too")
	return cmd
}

func outputGet(ctx context.Context, c *client.Client, o outputGetOptions, out io.Writer) error {
	body, blob, err := c.Output(ctx, o.task, o.name)
	if err != nil {
		return err
	}
	defer body.Close()
	switch {
	case o.file != "":
		if err := saveFile(o.file, body); err != nil {
			return err
		}
		if o.json {
			return printJSON(out, map[string]any{"task": o.task, "name": o.name, "digest": blob.Digest, "file": o.file})
		}
		return nil
	case o.json:
		d := newDocument(out)
		d.field("task", o.task)
		d.field("name", o.name)
		d.field("digest", blob.Digest)
		d.next()
		d.put("\n  \"base64\": \"")
		enc := base64.NewEncoder(base64.StdEncoding, out)
		_, err = io.Copy(enc, body)
		if cerr := enc.Close(); err == nil {
			err = cerr
		}
		d.put(`"`)
		return d.end(err)
	}
	w := inside(out, o.raw)
	if _, err := io.Copy(w, body); err != nil {
		return err
	}
	return w.Close()
}

// saveFile writes a file that is either complete or not there.
func saveFile(path string, r io.Reader) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("output file: %w", err)
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("output file %s: %w", path, err)
	}
	return nil
}
