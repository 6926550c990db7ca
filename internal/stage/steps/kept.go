package steps

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/glob"
	"github.com/cofferdam/cofferdam/internal/stage/steps/listing"
	"github.com/cofferdam/cofferdam/internal/stage/steps/script"
	"github.com/cofferdam/cofferdam/internal/task"
)

// flagRenamed marks a kept file that is listed under another name than it had.
const flagRenamed = "renamed"

// listWanted is what script.Export takes for "list the files"; empty: don't.
func listWanted(spec task.Spec) string {
	if len(spec.Files) == 0 {
		return ""
	}
	return "list"
}

// keepFiles keeps the files of the agent's workspace that the task's globs name,
// by the copy of it in the throw-away sandbox. What is left out is told in the
// stage's text.
func (r *run) keepFiles(ctx context.Context) error {
	if len(r.task.Spec.Files) == 0 {
		return nil
	}
	set, err := glob.Compile(r.task.Spec.Files)
	if err != nil {
		return task.Fail(task.InputInvalid, "files: "+err.Error(), nil)
	}
	_, most, count := r.plan.Limits.OfOutputs()
	var c listing.Choice
	err = r.getFile(ctx, "/tmp/cofferdam-work/out/list", func(from io.Reader) error {
		c, err = listing.Choose(from, set, most, count)
		return err
	})
	if err != nil {
		return err
	}
	if text := c.Text(most, count); text != "" {
		r.note(text)
	}
	if len(c.Names) == 0 {
		return nil
	}
	if err := r.pack(ctx, c.Names); err != nil {
		return err
	}
	return r.getFile(ctx, "/tmp/cofferdam-work/out/kept.tar", func(from io.Reader) error { return r.unpack(ctx, from, set, most, count) })
}

// pack has the named files packed in the throw-away sandbox.
func (r *run) pack(ctx context.Context, names []string) error {
	text := strings.Join(names, "\x00") + "\x00"
	err := r.put(ctx, func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Name: "names", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err := io.WriteString(w, text)
		return err
	})
	if err != nil {
		return err
	}
	res, err := r.exec(ctx, command{
		id: "export-kept", argv: []string{"sh", "-c", script.Pack, "kept"}, env: []string{"LC_ALL=C"}, timeout: r.plan.CommandTime(task.Export),
	}, 0, nil)
	r.row.ExitCode = nil
	if err != nil {
		return err
	}
	return r.judge(res, task.ExportFailed, "tar of the files to keep")
}

// unpack keeps each file of a tar stream, which is still a sandbox's word: what
// does not match, is no file, or is more than there is room for is not taken.
func (r *run) unpack(ctx context.Context, from io.Reader, set glob.Set, most, count int64) error {
	archive := tar.NewReader(from)
	taken := map[string]bool{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return task.Fail(task.ExportFailed, "the files to keep can't be read", err)
		}
		name := header.Name
		if header.Typeflag != tar.TypeReg || !set.Match(name) {
			continue
		}
		if header.Size > most || int64(len(taken)) >= count {
			return task.Fail(task.LimitSize, "the files to keep are more than were listed", nil)
		}
		most -= header.Size
		if err := r.keepFile(ctx, name, unique(taken, "file/"+glob.Shown(name)), io.LimitReader(archive, header.Size)); err != nil {
			return err
		}
	}
}

func (r *run) keepFile(ctx context.Context, path, name string, from io.Reader) error {
	digest, size, err := r.Blobs.Put(ctx, r.clean("a file to keep", from), 1<<40)
	if err != nil {
		return err
	}
	flags := []string{}
	if name != "file/"+path {
		flags = append(flags, flagRenamed)
	}
	return r.addOutput(ctx, task.Output{Name: name, Kind: "file", Digest: digest, Size: size, Flags: flags, Path: []byte(path)})
}

// unique is name, or name with a number when it is taken.
func unique(taken map[string]bool, name string) string {
	free := name
	for i := 2; taken[free]; i++ {
		free = name + "~" + strconv.Itoa(i)
	}
	taken[free] = true
	return free
}
