package host

import (
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// read reads a command's output until it holds want.
func readUntil(t *testing.T, c *Conn, id, want string) string {
	t.Helper()
	stream, err := c.Attach(soon(t), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var all strings.Builder
	for !strings.Contains(all.String(), want) {
		chunk, err := stream.Next()
		if err != nil {
			t.Fatalf("%q never came, but %q: %v", want, all.String(), err)
		}
		all.Write(chunk.Data)
	}
	return all.String()
}

// TestTerminalSize is cases.md B35: the right size at once, and after a resize.
func TestTerminalSize(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	cmd := sh("tty", `stty size; tty >/dev/null && echo terminal; trap 'echo winch $(stty size)' WINCH; echo ready; while :; do sleep 0.02; done`)
	cmd.Stdin, cmd.Terminal = true, &guest.Size{Rows: 40, Cols: 120}
	if _, err := c.Start(soon(t), cmd); err != nil {
		t.Fatal(err)
	}
	if got := readUntil(t, c, "tty", "ready"); !strings.HasPrefix(got, "40 120\r\nterminal\r\n") {
		t.Errorf("at first: %q", got)
	}
	if err := c.Resize(soon(t), "tty", guest.Size{Rows: 20, Cols: 60}); err != nil {
		t.Fatal(err)
	}
	readUntil(t, c, "tty", "winch 20 60")
	c.Close() // Detached, and attached again at another size.
	c = p.dial()
	if err := c.Resize(soon(t), "tty", guest.Size{Rows: 30, Cols: 90}); err != nil {
		t.Fatal(err)
	}
	readUntil(t, c, "tty", "winch 30 90")
	if err := c.Resize(soon(t), "tty", guest.Size{Rows: 30, Cols: 90}); err != nil {
		t.Fatal(err)
	}
	if got := readUntil(t, c, "tty", "winch 30 90\r\nwinch 30 90"); strings.Contains(got, "0 0") {
		t.Errorf("%q", got)
	}
	if err := c.Resize(soon(t), "tty", guest.Size{}); err == nil {
		t.Error("a size of nothing was taken")
	}
	if err := c.Signal(soon(t), "tty", 9); err != nil {
		t.Fatal(err)
	}
	if _, _, s := attach(t, c.Journals(), "tty"); s.Signal != 9 || !s.Terminal {
		t.Errorf("%+v", s)
	}
	if err := c.Resize(soon(t), "tty", guest.Size{Rows: 1, Cols: 1}); err == nil {
		t.Error("a terminal that is gone was resized")
	}
}

// TestTerminalControlsJobs types at a shell: an interrupt ends what stands in
// front and not the shell, and jobs stop and go on.
func TestTerminalControlsJobs(t *testing.T) {
	c := newPlace(t).dial()
	cmd := guest.Command{ID: "shell", Argv: []string{"bash", "--norc", "-i"}, Env: []string{"PS1=$ "}, Stdin: true, Terminal: &guest.Size{Rows: 24, Cols: 80}}
	if _, err := c.Start(soon(t), cmd); err != nil {
		t.Fatal(err)
	}
	typed := ""
	enter := func(keys string) {
		typed += keys
		feed(t, c, "shell", []byte(typed), int64(len(typed)-len(keys)), false)
	}
	readUntil(t, c, "shell", "$ ")
	// What speaks stands in front: the shell hands the terminal over before it runs a program.
	enter(`sh -c "echo fi''rst; exec sleep 300"` + "\n")
	readUntil(t, c, "shell", "first")
	enter("\x03")
	enter("echo code $?\n")
	readUntil(t, c, "shell", "code 130")
	enter(`sh -c "echo sec''ond; exec sleep 301"` + "\n")
	readUntil(t, c, "shell", "second")
	enter("\x1a") // Ctrl-Z.
	readUntil(t, c, "shell", "Stopped")
	enter("kill %1; exit 7; exit 7\n") // Bash warns of a stopped job once, if it doesn't know yet that it is gone.
	if out, errs, s := attach(t, c.Journals(), "shell"); s.ExitCode != 7 || errs != "" || strings.Contains(out, "no job control") {
		t.Errorf("%+v %q %q", s, out, errs)
	}
}
