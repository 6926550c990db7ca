// Package denial is the account of what a sandbox's kernel refused on protected
// paths: the lines that denial/sink writes from within the kernel, on the host's
// disk and out of the workload's reach, and how the worker reads them.
//
// Words. A line is one refusal, or a tally of so many alike after it. The file is
// bounded: a last line says how many more there were.
//
// What stands in a line comes from the workload in part, and a kernel that the
// workload took over could write anything: every text is escaped, bounded and
// checked again when it is read, and a line that can't be read is counted, not
// believed.
package denial

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/internal/task"
)

// The bounds of the file.
const (
	MaxBytes = 1 << 20 // of the file; the sink stops there
	maxLine  = 16 << 10
	maxText  = 4096 // bytes of a path once escaped
	maxName  = 64   // bytes of a program's name once escaped
)

// Operations that are no system call's.
const (
	More       = "more"       // so many refusals that the file had no room for
	Unreadable = "unreadable" // so many lines that could not be read
)

// Line is one line of the file.
type Line struct {
	Time      int64  `json:"t"` // nanoseconds since 1970
	Operation string `json:"op"`
	Path      string `json:"path,omitempty"` // escaped
	Error     string `json:"err,omitempty"`
	Program   string `json:"prog,omitempty"` // escaped
	PID       int    `json:"pid,omitempty"`
	Count     int64  `json:"n,omitempty"`
}

// Append appends the line and its end.
func Append(dst []byte, l Line) []byte {
	text, err := json.Marshal(l)
	if err != nil { // A struct of texts and numbers always can be.
		return dst
	}
	return append(append(dst, text...), '\n')
}

// Escape makes bytes that a workload chose into one line of printable text: what
// isn't printable, and the backslash, as Go writes it. Longer texts are cut.
func Escape(raw string) string { return escape(raw, maxText) }

// EscapeName is Escape for a program's name.
func EscapeName(raw string) string { return escape(raw, maxName) }

func escape(raw string, most int) string {
	out := make([]byte, 0, min(len(raw), most))
	for len(raw) > 0 {
		r, n := utf8.DecodeRuneInString(raw)
		start := len(out)
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, raw[0])
		case r == '\\':
			out = append(out, `\\`...)
		case strconv.IsPrint(r):
			out = append(out, raw[:n]...)
		default:
			quoted := strconv.QuoteRuneToASCII(r)
			out = append(out, quoted[1:len(quoted)-1]...)
		}
		if len(out) > most {
			return string(out[:start]) + "…"
		}
		raw = raw[n:]
	}
	return string(out)
}

// clean escapes what Escape did not make, whoever wrote it.
func clean(text string, most int) string {
	for _, r := range text {
		if r == utf8.RuneError || !strconv.IsPrint(r) {
			return escape(text, most)
		}
	}
	if len(text) > most+len("…") {
		return escape(text, most)
	}
	return text
}

// Read returns the refusals after number after. They are numbered by their place
// in the file.
func Read(path, sandbox string, after int64) ([]task.FileDenial, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the account of refused writes: %w", err)
	}
	defer file.Close()
	list, err := Parse(io.LimitReader(file, 2*MaxBytes), sandbox)
	if err != nil {
		return nil, fmt.Errorf("the account of refused writes: %w", err)
	}
	return list[min(max(after, 0), int64(len(list))):], nil
}

// Parse reads lines. Half a line at the end is one that is being written. Each
// line has one number for ever, whether it can be read or not.
func Parse(from io.Reader, sandbox string) ([]task.FileDenial, error) {
	var list []task.FileDenial
	r := bufio.NewReaderSize(from, maxLine)
	for {
		text, err := r.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = r.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		d := task.FileDenial{Operation: Unreadable, Count: 1}
		if !long {
			d = parseLine(text)
		}
		d.Seq, d.Sandbox = int64(len(list))+1, sandbox
		list = append(list, d)
	}
}

func parseLine(text []byte) task.FileDenial {
	unreadable := task.FileDenial{Operation: Unreadable, Count: 1}
	var l Line
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil || decoder.More() {
		return unreadable
	}
	if l.Count < 0 || l.PID < 0 || !Known(l.Operation) && l.Operation != More || !knownError(l.Error) && l.Operation != More {
		return unreadable
	}
	at := time.Unix(0, l.Time).UTC()
	if at.Year() < 2000 || at.Year() > 2200 {
		return unreadable
	}
	return task.FileDenial{
		Time: at, Operation: l.Operation, Path: clean(l.Path, maxText), Error: clean(l.Error, maxName),
		Program: clean(l.Program, maxName), PID: l.PID, Count: l.Count,
	}
}

// Known says whether an operation is one that the sink reports.
func Known(operation string) bool {
	switch operation {
	case "open", "rename", "unlink", "rmdir", "mkdir", "link", "symlink", "mknod", "chmod", "chown", "utime",
		"setxattr", "removexattr", "truncate", "mount", "umount":
		return true
	}
	return false
}

func knownError(e string) bool {
	switch e {
	case "EROFS", "EACCES", "EBUSY", "EPERM", "EXDEV":
		return true
	}
	return false
}
