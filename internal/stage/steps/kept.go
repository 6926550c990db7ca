package steps

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/internal/output/glob"
	"github.com/cofferdam/cofferdam/internal/task"
)

// flagRenamed marks a kept file that is listed under another name than it had.
const flagRenamed = "renamed"

// listWanted is what exportScript takes for "list the files"; empty: don't.
func listWanted(spec task.Spec) string {
	if len(spec.Files) == 0 {
		return ""
	}
	return "list"
}

// packScript packs the files whose names are in the inbox. They lie in a place
// where nothing runs, so they are what they were when they were listed. Nothing
// is followed: a link that was listed as a file can't be.
const packScript = `set -eu
work=/tmp/cofferdam-work
rm -rf "$work/wanted"
mv /tmp/cofferdam-in "$work/wanted"
tar -C "$work/tree" --no-recursion --hard-dereference --format=posix --null --verbatim-files-from -T "$work/wanted/names" -cf "$work/out/kept.tar"
`

// choice is what is kept of the listed files, and what is not.
type choice struct {
	names              []string
	size               int64
	links, large, over int
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
	var c choice
	err = r.getFile(ctx, "/tmp/cofferdam-work/out/list", func(from io.Reader) error {
		c, err = choose(from, set, most, count)
		return err
	})
	if err != nil {
		return err
	}
	if text := c.text(most, count); text != "" {
		r.note(text)
	}
	if len(c.names) == 0 {
		return nil
	}
	if err := r.pack(ctx, c.names); err != nil {
		return err
	}
	return r.getFile(ctx, "/tmp/cofferdam-work/out/kept.tar", func(from io.Reader) error { return r.unpack(ctx, from, set, most, count) })
}

// text says what was left out.
func (c choice) text(most, count int64) string {
	var parts []string
	if len(c.names)+c.links+c.large+c.over == 0 {
		parts = append(parts, "no file of the workspace matches files")
	}
	if c.links > 0 {
		parts = append(parts, fmt.Sprintf("%d links that match files were left out; links are not followed", c.links))
	}
	if c.large > 0 {
		parts = append(parts, fmt.Sprintf("%d files that match were left out (%s): all together may have %d bytes (limits.kept)", c.large, task.LimitSize, most))
	}
	if c.over > 0 {
		parts = append(parts, fmt.Sprintf("%d files that match were left out (%s): at most %d are kept (limits.keptFiles)", c.over, task.LimitSize, count))
	}
	return strings.Join(parts, "; ")
}

// choose reads the list of exportScript, "f SIZE NAME" or "l 0 NAME" and a NUL
// each, and takes what matches as long as there is room.
func choose(from io.Reader, set glob.Set, most, count int64) (choice, error) {
	var c choice
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		entry, err := r.ReadString(0)
		if errors.Is(err, io.EOF) && entry == "" {
			return c, nil
		}
		if err != nil {
			return c, task.Fail(task.ExportFailed, "the list of the workspace's files is cut", err)
		}
		kind, rest, _ := strings.Cut(strings.TrimSuffix(entry, "\x00"), " ")
		text, name, _ := strings.Cut(rest, " ")
		size, err := strconv.ParseInt(text, 10, 64)
		if err != nil || size < 0 || name == "" {
			return c, task.Fail(task.ExportFailed, "the list of the workspace's files is garbled", err)
		}
		switch {
		case !set.Match(name):
		case kind != "f":
			c.links++
		case int64(len(c.names)) >= count:
			c.over++
		case size > most-c.size:
			c.large++
		default:
			c.names = append(c.names, name)
			c.size += size
		}
	}
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
		id: "export-kept", argv: []string{"sh", "-c", packScript, "kept"}, env: []string{"LC_ALL=C"}, timeout: r.plan.CommandTime(task.Export),
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
	digest, size, err := r.Blobs.Put(ctx, from, 1<<40)
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
