package server

import (
	"errors"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/sandbox"
)

// TestInputIsFedToTheEnd feeds a command that takes little at a time, once.
func TestInputIsFedToTheEnd(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	alice, id := s.as(t, "alice"), s.newSandbox(t, "alice").ID
	res, err := alice.Exec(ctx, id, api.ExecRequest{ID: "c", Argv: []string{"cat"}, Stdin: true, Terminal: &api.TerminalSize{Rows: 2, Cols: 3}})
	if err != nil || !res.Command.Started {
		t.Fatal(res, err)
	}
	text := strings.Repeat("some input, ", 20)
	if _, err := alice.WriteInput(ctx, id, "c", 0, []byte(text[:2]), false); err != nil {
		t.Fatal(err)
	}
	n, err := alice.Feed(ctx, id, "c", 0, strings.NewReader(text)) // Two bytes again.
	if err != nil || n != int64(len(text)) {
		t.Fatalf("%d, %v", n, err)
	}
	_, c, err := s.fleet.held(id, "c")
	if err != nil || string(c.input) != text || !c.closed {
		t.Errorf("%q, %v, %v", c.input, c.closed, err)
	}
	if _, err := alice.Feed(ctx, id, "c", n, strings.NewReader("more")); !errors.Is(err, client.ErrInputClosed) {
		t.Errorf("more: %v", err)
	}
	if _, err := alice.WriteInput(ctx, id, "c", n+1, nil, false); code(err) != "input.invalid" {
		t.Errorf("a gap: %v", err)
	}
	if _, err := alice.WriteInput(ctx, id, "c", n, make([]byte, api.MaxInput+1), false); code(err) != "limit.size" {
		t.Errorf("too much at once: %v", err)
	}
	st, err := alice.Command(ctx, id, "c")
	if err != nil || st.Input != n || st.InputOpen || len(st.Processes) != 1 || st.Processes[0].Command != "sleep 9" {
		t.Errorf("%+v, %v", st, err)
	}
	list, err := alice.Commands(ctx, id)
	if err != nil || len(list) != 1 || list[0].ID != "c" || len(list[0].Processes) != 1 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestSignalsAndSizes(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	alice, id := s.as(t, "alice"), s.newSandbox(t, "alice").ID
	if _, err := alice.Exec(ctx, id, api.ExecRequest{ID: "c", Argv: []string{"cat"}}); err != nil {
		t.Fatal(err)
	}
	for signal, want := range map[string]int{"TERM": 15, "sigint": 2, "9": 9} {
		if err := alice.Signal(ctx, id, "c", api.SignalRequest{Signal: signal, Group: true}); err != nil {
			t.Fatal(err)
		}
		_, c, _ := s.fleet.held(id, "c")
		if got := c.signals[len(c.signals)-1]; got != (sandbox.Signal{Number: want, Group: true}) {
			t.Errorf("%s: %+v", signal, got)
		}
	}
	for _, r := range []api.SignalRequest{{Signal: "NONE"}, {Signal: "0"}, {Signal: "9", Group: true, PID: 4}, {}} {
		if err := alice.Signal(ctx, id, "c", r); code(err) != "input.invalid" {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := alice.Resize(ctx, id, "c", api.TerminalSize{Rows: 40, Cols: 120}); err != nil {
		t.Fatal(err)
	}
	if _, c, _ := s.fleet.held(id, "c"); c.size != (sandbox.Size{Rows: 40, Cols: 120}) {
		t.Errorf("%+v", c.size)
	}
	if err := alice.Resize(ctx, id, "c", api.TerminalSize{Cols: 1}); code(err) != "input.invalid" {
		t.Errorf("no rows: %v", err)
	}
	for _, r := range []api.ExecRequest{
		{Argv: []string{"cat"}, Stdin: true, Wait: true},
		{Argv: []string{"cat"}, StdinIdle: 1},
		{Argv: []string{"cat"}, User: "sudo"},
		{Argv: []string{"cat"}, Terminal: &api.TerminalSize{}},
	} {
		if _, err := alice.Exec(ctx, id, r); code(err) != "input.invalid" {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// TestRootIsTheLesserOne: who asks for root gets the workload's, which the worker
// refuses where the policy does not allow it.
func TestRootIsTheLesserOne(t *testing.T) {
	for user, want := range map[string]string{"": "", "agent": "", "root": "sudo"} {
		var cmd sandbox.Command
		if err := consoleOf(api.ExecRequest{User: user}, &cmd); err != nil || cmd.User != want {
			t.Errorf("%q: %q, %v", user, cmd.User, err)
		}
	}
}
