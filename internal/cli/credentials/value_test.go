package credentials

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/cli/host"
)

// pseudo opens a terminal: what is written to person is typed at it.
func pseudo(t *testing.T) (person, terminal *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	if err := unix.IoctlSetPointerInt(int(person.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(person.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return person, terminal
}

func echoes(t *testing.T, f *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

type prompted struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *prompted) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *prompted) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

func TestPromptDoesNotEcho(t *testing.T) {
	person, terminal := pseudo(t)
	var said prompted
	type answer struct {
		value string
		err   error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := Host{host.Host{In: terminal, Err: &said}}.value(context.WithoutCancel(t.Context()), "")
		got <- answer{v, err}
	}()
	until(t, "the echo to be off", func() bool { return strings.Contains(said.String(), "not shown") && !echoes(t, terminal) })
	if _, err := person.WriteString("sk-real-value\n"); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.err != nil || a.value != "sk-real-value" {
		t.Errorf("got %+v", a)
	}
	if !echoes(t, terminal) {
		t.Error("the echo stays off")
	}
	if strings.Contains(said.String(), "sk-real") {
		t.Errorf("the prompt shows it: %q", said.String())
	}
}

func TestInterruptedPromptRestoresTheTerminal(t *testing.T) {
	_, terminal := pseudo(t)
	var said prompted
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := Host{host.Host{In: terminal, Err: &said}}.value(ctx, "")
		got <- err
	}()
	until(t, "the echo to be off", func() bool { return strings.Contains(said.String(), "not shown") && !echoes(t, terminal) })
	cancel()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !echoes(t, terminal) {
		t.Error("the echo stays off")
	}
}

func TestValueOfAnInput(t *testing.T) {
	for in, want := range map[string]string{"a\n": "a", "a\r\n": "a", "a": "a", " a \n": " a ", "a\n\n": "a\n", "\n": "", "": "", strings.Repeat("a", maxValue+1): ""} {
		got, err := Host{host.Host{In: strings.NewReader(in)}}.value(t.Context(), "")
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%.20q: %.20q, %v", in, got, err)
		}
	}
}
