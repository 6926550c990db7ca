package loop

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/cofferdam/cofferdam/internal/stage"
)

// readScript prints the first $2 bytes of the file $1.
const readScript = `exec head -c "$2" -- "$1"`

// maxRead is how much of a file the tool read looks at.
const maxRead = 8 << 20

func (w *work) read(ctx context.Context, in input) error {
	out := capture{most: maxRead}
	res, err := w.start(ctx, []string{"sh", "-c", readScript, toolRead, in.Path, fmt.Sprint(maxRead + 1)}, fileTime, &out)
	if err != nil {
		return err
	}
	if how := ending(res, fileTime); how != "" {
		return w.done(ctx, joined(readable(out.head), how), true)
	}
	return w.done(ctx, lines(out, in.Offset, in.Limit), false)
}

// lines is the part of a file that was asked for, as far as it fits.
func lines(out capture, offset, limit int) string {
	if out.size == 0 {
		return "[the file is empty]"
	}
	whole := strings.SplitAfter(string(out.head), "\n")
	if whole[len(whole)-1] == "" {
		whole = whole[:len(whole)-1]
	}
	total := fmt.Sprint(len(whole))
	if out.size > int64(len(out.head)) {
		total = "more than " + total
	}
	first := max(offset, 1)
	if first > len(whole) {
		return fmt.Sprintf("[the file has %s lines]", total)
	}
	last := len(whole)
	if limit > 0 {
		last = min(last, first-1+limit)
	}
	var b bytes.Buffer
	n := first - 1
	for ; n < last; n++ {
		if b.Len()+len(whole[n]) > keepHead+keepTail {
			break
		}
		b.WriteString(whole[n])
	}
	if n == first-1 { // one line is longer than all that fits
		line := whole[n]
		return readable([]byte(line[:keepHead])) + fmt.Sprintf("\n[line %d of %s; %d of its %d bytes were left out]", first, total, len(line)-keepHead, len(line))
	}
	text := readable(b.Bytes())
	if n < len(whole) || out.size > int64(len(out.head)) || first > 1 {
		text = joined(text, fmt.Sprintf("[lines %d to %d of %s]", first, n, total))
	}
	return text
}

// writeScript makes the file $2 of the staged $1, if it is as $3 says: the
// digest that it must have, "any", or "none" for a file that must not be there.
// What was staged is moved away first.
const writeScript = `set -eu
staged=$1 file=$2 before=$3
mv -- "$staged" "$staged.taken"
if [ "$before" != any ]; then
  have=$(sha256sum < "$file" | cut -d' ' -f1)
  if [ "$have" != "$before" ]; then echo 'the file was changed meanwhile; read it again' >&2; exit 75; fi
fi
mkdir -p -- "$(dirname -- "$file")"
cat -- "$staged.taken" > "$file"
rm -rf -- "$(dirname -- "$staged")"`

func (w *work) write(ctx context.Context, in input) error {
	content := []byte(*in.Content)
	return w.change(ctx, in.Path, content, "any", fmt.Sprintf("[written: %d bytes]", len(content)))
}

// change gives a file its content: the content is staged, that its command is
// about to run is written down, and then it runs, once.
func (w *work) change(ctx context.Context, file string, content []byte, before, well string) error {
	// Beneath HOME and /tmp everything is the workload's own, and so is this: who
	// changes it there can change the file itself as well.
	dir := "/tmp/cofferdam-loop/" + w.row.Command
	if w.row.State == stage.CallIntended {
		w.row.After = digest(content)
		if err := w.save(ctx); err != nil {
			return err
		}
		if err := w.stage(ctx, dir, content); err != nil {
			return err
		}
	}
	var out capture
	res, err := w.start(ctx, []string{"sh", "-c", writeScript, toolWrite, dir + "/content", file, before}, fileTime, &out)
	if err != nil {
		return err
	}
	if how := ending(res, fileTime); how != "" {
		return w.done(ctx, joined(out.text(), how), true)
	}
	return w.done(ctx, well, false)
}

// stage puts the content where the command takes it from. A repeated put
// replaces what the one before left: the command has not been started.
func (w *work) stage(ctx context.Context, dir string, content []byte) error {
	var b bytes.Buffer
	archive := tar.NewWriter(&b)
	if err := archive.WriteHeader(&tar.Header{Name: "content", Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(content))}); err != nil {
		return err
	}
	if _, err := archive.Write(content); err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return w.job.Hands.Put(ctx, dir, &b)
}

func (w *work) edit(ctx context.Context, in input) error {
	if w.row.State == stage.CallStarted {
		// What it becomes is staged in the sandbox and the command was told; only
		// its end is not known here.
		return w.change(ctx, in.Path, nil, bare(string(w.row.Before)), "[edited]")
	}
	if ok, err := w.mayEver(ctx, in); !ok {
		return err
	}
	out := capture{most: maxContent}
	res, err := w.run.command(ctx, w.row.Command+".r", []string{"sh", "-c", readScript, toolRead, in.Path, fmt.Sprint(maxContent + 1)}, fileTime, &out)
	if err != nil {
		return err
	}
	if how := ending(res, fileTime); how != "" {
		return w.done(ctx, joined(readable(out.head), how), true)
	}
	if out.size > maxContent {
		return w.done(ctx, fmt.Sprintf("the file is larger than %d bytes; use shell", maxContent), true)
	}
	have := string(out.head)
	switch n := strings.Count(have, in.Old); {
	case n == 0:
		return w.done(ctx, "old: does not stand in the file; read it, and give the text exactly", true)
	case n > 1 && !in.All:
		return w.done(ctx, fmt.Sprintf("old: stands %d times in the file; give more of the text around it, or set all", n), true)
	}
	w.row.Before = digest(out.head)
	if ok, err := w.may(ctx, in); !ok {
		return err
	}
	after := []byte(strings.ReplaceAll(have, in.Old, *in.New))
	return w.change(ctx, in.Path, after, bare(string(w.row.Before)), "[edited]")
}

// bare is a digest without the name of its kind.
func bare(digest string) string { return path.Base(strings.ReplaceAll(digest, ":", "/")) }
