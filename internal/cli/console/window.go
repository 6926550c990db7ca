package console

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/cofferdam/cofferdam/api"
)

// DefaultSize is a terminal's size where nothing tells another.
func DefaultSize() api.TerminalSize { return api.TerminalSize{Rows: 24, Cols: 80} }

// ParseSize reads ROWSxCOLS.
func ParseSize(s string) (api.TerminalSize, error) {
	rows, cols, ok := strings.Cut(s, "x")
	r, rerr := strconv.ParseUint(rows, 10, 16)
	c, cerr := strconv.ParseUint(cols, 10, 16)
	if !ok || rerr != nil || cerr != nil || r == 0 || c == 0 {
		return api.TerminalSize{}, fmt.Errorf("size %q: not ROWSxCOLS, such as 24x80", s)
	}
	return api.TerminalSize{Rows: uint16(r), Cols: uint16(c)}, nil
}

// Window is the terminal that the CLI runs on, if it does.
type Window struct {
	in, out *os.File // nil: no terminal
	fixed   *api.TerminalSize
}

// NewWindow looks at the CLI's own input and output. A size that is given is kept.
func NewWindow(in io.Reader, out io.Writer, fixed *api.TerminalSize) *Window {
	w := &Window{fixed: fixed}
	if f, ok := in.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w.in = f
	}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		w.out = f
	}
	return w
}

// Raw says whether what is typed comes from a terminal.
func (w *Window) Raw() bool { return w.in != nil }

// Size is the window's size now.
func (w *Window) Size() api.TerminalSize {
	if w.fixed != nil {
		return *w.fixed
	}
	for _, f := range []*os.File{w.out, w.in} {
		if f == nil {
			continue
		}
		if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 && rows > 0 && cols < 1<<16 && rows < 1<<16 {
			return api.TerminalSize{Rows: uint16(rows), Cols: uint16(cols)}
		}
	}
	return DefaultSize()
}

// open gives every key to the other end, and tells it the window's size whenever
// that changes, and now if it doesn't know. stop makes the window as it was.
func (w *Window) open(ctx context.Context, known bool, resize func(api.TerminalSize)) (stop func(), err error) {
	restore := func() {}
	if w.in != nil {
		old, err := term.MakeRaw(int(w.in.Fd()))
		if err != nil {
			return nil, fmt.Errorf("this terminal can't be made raw: %w", err)
		}
		restore = func() { _ = term.Restore(int(w.in.Fd()), old) } // It may be gone.
	}
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		if !known {
			resize(w.Size())
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				resize(w.Size())
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		restore()
	}, nil
}
