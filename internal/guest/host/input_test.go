package host

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// feed gives data from offset on to the command, over as many calls as it takes.
func feed(t *testing.T, c *Conn, id string, data []byte, offset int64, close bool) {
	t.Helper()
	s, err := c.Input(soon(t), id, offset, data[offset:], close)
	if err != nil || s.Taken != int64(len(data)) || s.Open == close {
		t.Fatalf("input of %s: %+v, %v", id, s, err)
	}
}

// TestInputReachesTheProgramOnce gives a program more than any buffer holds, some
// of it twice, and closes its input.
func TestInputReachesTheProgramOnce(t *testing.T) {
	c := newPlace(t).dial()
	data := bytes.Repeat([]byte("0123456789abcdef\x00\xff\n"), 200_000)
	cmd := sh("sum", "sha256sum")
	cmd.Stdin = true
	if _, err := c.Start(soon(t), cmd); err != nil {
		t.Fatal(err)
	}
	feed(t, c, "sum", data[:1_000_000], 0, false)
	feed(t, c, "sum", data, 900_000, true) // 100,000 bytes again.
	out, _, s := attach(t, c.Journals(), "sum")
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(data)); out != want || s.ExitCode != 0 || s.Input != int64(len(data)) {
		t.Errorf("%q, want %q; %+v", out, want, s)
	}
	if s, err := c.Input(soon(t), "sum", int64(len(data)), []byte("more"), false); err != nil || s.Open {
		t.Errorf("input of what has ended: %+v, %v", s, err)
	}
}

// TestInputWaitsForTheProgram gives input to a program that reads none: only what
// buffers hold is taken, and the rest once it reads.
func TestInputWaitsForTheProgram(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	cmd := sh("late", "mkfifo go; read x <go; wc -c")
	cmd.Stdin = true
	if _, err := c.Start(soon(t), cmd); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 4<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	s, err := c.Input(ctx, "late", 0, data, true)
	if err != nil || !s.Open || s.Taken == 0 || s.Taken > guest.InputBuffer+1<<20 {
		t.Fatalf("without a reader: %+v, %v", s, err)
	}
	if _, err := c.Input(soon(t), "late", s.Taken+1<<20, []byte("x"), false); err == nil || !strings.Contains(err.Error(), "goes on at") {
		t.Errorf("a gap: %v", err)
	}
	run(t, c, sh("go", "until [ -p go ]; do sleep 0.01; done; echo >go"))
	feed(t, c, "late", data, s.Taken, true)
	if out, _, _ := attach(t, c.Journals(), "late"); strings.TrimSpace(out) != fmt.Sprint(len(data)) {
		t.Errorf("it read %q bytes", out)
	}
}

// TestInputOutlivesTheWorker changes the worker in the middle of a stream: the
// next goes on from what the guest took.
func TestInputOutlivesTheWorker(t *testing.T) {
	p := newPlace(t)
	data := bytes.Repeat([]byte("line of input\n"), 100_000)
	first := p.dial()
	cmd := sh("sum", "read first; sha256sum")
	cmd.Stdin = true
	if _, err := first.Start(soon(t), cmd); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = first.Input(ctx, "sum", 0, data[:len(data)/2], false) // Cut off at some point.
	}()
	eventually(t, "some was taken", func() bool {
		i, err := first.Inspect(soon(t), "sum")
		return err == nil && len(i) == 1 && i[0].Input > 0
	})
	first.Close()
	<-done
	second := p.dial()
	i, err := second.Inspect(soon(t), "sum")
	if err != nil || len(i) != 1 || !i[0].InputOpen || i[0].Input == 0 {
		t.Fatalf("%+v, %v", i, err)
	}
	feed(t, second, "sum", data, i[0].Input, true)
	out, _, _ := attach(t, second.Journals(), "sum")
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256(data[len("line of input\n"):])); out != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestInputClosesByItself starts a command whose input is closed when nobody
// gives any, and one that was given none.
func TestInputClosesByItself(t *testing.T) {
	c := newPlace(t).dial()
	cmd := sh("idle", "cat; echo closed")
	cmd.Stdin, cmd.StdinIdle = true, 50*time.Millisecond
	if out, _, _ := run(t, c, cmd); out != "closed\n" {
		t.Errorf("%q", out)
	}
	if out, _, s := run(t, c, sh("none", "cat; echo closed")); out != "closed\n" || s.InputOpen {
		t.Errorf("%q", out)
	}
	// A child that lives on doesn't keep it open either.
	cmd = sh("child", "sleep 300 & read line; echo $line")
	cmd.Stdin = true
	if _, err := c.Start(soon(t), cmd); err != nil {
		t.Fatal(err)
	}
	feed(t, c, "child", []byte("one\n"), 0, false)
	if out, _, _ := attach(t, c.Journals(), "child"); out != "one\n" {
		t.Errorf("%q", out)
	}
}

// TestLivingProcessesAreListed asks for what runs this moment, and ends one
// process and one group of it.
func TestLivingProcessesAreListed(t *testing.T) {
	c := newPlace(t).dial()
	run(t, c, sh("tree", "sleep 3001 & setsid sleep 3002 & sleep 3003 & echo"))
	names := func() string {
		list, err := c.Inspect(soon(t), "tree")
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		var out []string
		for _, p := range list[0].Processes {
			out = append(out, p.Command)
		}
		return strings.Join(out, ", ")
	}
	eventually(t, "all three", func() bool {
		got := names()
		return strings.Count(got, "sleep 300") == 3 && !strings.Contains(got, "sh -c") && !strings.Contains(got, "setsid")
	})
	all, err := c.Inspect(soon(t), "")
	if err != nil || len(all) != 1 || len(all[0].Children) != 3 {
		t.Fatalf("all: %+v, %v", all, err)
	}
	for _, p := range all[0].Processes {
		if strings.HasSuffix(p.Command, "3003") {
			if err := c.SignalPart(soon(t), guest.SignalRequest{ID: "tree", Signal: 15, PID: p.PID}); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "one is gone", func() bool { return !strings.Contains(names(), "3003") })
	if err := c.SignalPart(soon(t), guest.SignalRequest{ID: "tree", Signal: 15, Group: true}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its group is gone, and what left it lives", func() bool { return names() == "sleep 3002" })
	if err := c.SignalPart(soon(t), guest.SignalRequest{ID: "tree", Signal: 15, PID: 1}); err == nil {
		t.Error("a process of nobody's was signalled")
	}
	if err := c.Signal(soon(t), "tree", 9); err != nil {
		t.Fatal(err)
	}
	if got := names(); got != "" {
		t.Errorf("afterwards: %s", got)
	}
}

func TestCutOutputIsCounted(t *testing.T) {
	c := newPlace(t).dial()
	cmd := sh("big", "head -c 100000 /dev/zero; sleep 300")
	cmd.MaxOutput = 30_000
	_, _, s := run(t, c, cmd)
	if s.Reason != guest.ReasonOutput || s.Output != 30_000 || s.Cut <= 0 || s.Cut > 70_000 {
		t.Errorf("%+v", s)
	}
}
