package credentials

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/cofferdam/cofferdam/internal/cli/host"
)

// maxValue bounds what is read. The server's own bound is lower and says so.
const maxValue = 64 << 10

// value reads the value: from the file when one is named, from the terminal
// without an echo when there is one, or from the standard input. One line break
// at its end is not part of it.
func (h Host) value(ctx context.Context, file string) (string, error) {
	if file == "" {
		if fd, ok := terminal(h.In); ok {
			return h.prompt(ctx, fd)
		}
		return read(h.In, "the standard input")
	}
	f, err := os.Open(file)
	if err != nil {
		return "", host.Invalid("--from-file: %v", err)
	}
	defer f.Close()
	return read(f, "--from-file "+file)
}

func read(from io.Reader, what string) (string, error) {
	data, err := io.ReadAll(io.LimitReader(from, maxValue+1))
	if err != nil {
		return "", host.Invalid("%s: %v", what, err)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case len(data) > maxValue:
		return "", host.Invalid("%s: too long for a credential", what)
	case text == "":
		return "", host.Invalid("%s: holds no value", what)
	}
	return text, nil
}

func terminal(in io.Reader) (int, bool) {
	f, ok := in.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	return int(f.Fd()), true
}

// prompt asks on a terminal. The echo comes back whatever happens, also when
// the person interrupts.
func (h Host) prompt(ctx context.Context, fd int) (string, error) {
	before, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("terminal: %w", err)
	}
	fmt.Fprint(h.Err, "value (not shown): ")
	type line struct {
		text []byte
		err  error
	}
	typed := make(chan line, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		typed <- line{text, err}
	}()
	select {
	case l := <-typed:
		fmt.Fprintln(h.Err)
		if l.err != nil {
			return "", fmt.Errorf("terminal: %w", l.err)
		}
		if len(l.text) == 0 {
			return "", host.Invalid("no value was typed")
		}
		return string(l.text), nil
	case <-ctx.Done():
		err := term.Restore(fd, before)
		fmt.Fprintln(h.Err)
		if err != nil {
			return "", fmt.Errorf("terminal: %w", err)
		}
		return "", ctx.Err()
	}
}
