package server

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// running is a server under its own address that can be stopped.
type running struct {
	addr string
	stop func()
}

func (s *site) serve(t *testing.T, addr string) running {
	t.Helper()
	srv, err := New(Options{
		Boot: "boot2", Version: "v1", AuditKeys: func() (string, []string) { return "k", nil }, Log: s.server.log, Identities: s.server.identities, Now: s.server.now, Needs: s.server.need,
	})
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	eventually(t, "the address is free", func() bool {
		l, err = Listen(t.Context(), addr, false)
		return err == nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		if err := srv.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	return running{l.Addr().String(), func() { cancel(); done.Wait() }}
}

// A server that is stopped and started again under open streams costs their
// readers nothing.
func TestStreamsSurviveRestarts(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	tk := s.newTask(t, "alice")
	row, _ := s.Task(ctx, tk.ID)
	row.State, row.Attempt, row.Stages = task.Running, 1, []task.Stage{{Name: task.Agent, State: task.StageRunning}}
	s.setTask(row)
	sb := s.newSandbox(t, "alice")
	if _, err := s.as(t, "alice").Exec(ctx, sb.ID, api.ExecRequest{ID: "c1", Argv: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	j := s.fleet.cmds[sb.ID+"/c1"]

	up := s.serve(t, "127.0.0.1:0")
	c, err := client.New("http://"+up.addr, s.tokens["alice"])
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var events []int64
	var log, out safeBuffer
	var readers sync.WaitGroup
	readers.Go(func() {
		err := c.WatchTask(ctx, tk.ID, 0, func(e api.Event) error {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e.Seq)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	readers.Go(func() {
		if _, err := c.FollowLogs(ctx, tk.ID, client.Log{Follow: true}, &log); err != nil {
			t.Error(err)
		}
	})
	readers.Go(func() {
		st, err := c.ExecStream(ctx, sb.ID, "c1", 0, func(f api.Frame) error { _, err := out.Write(f.Data); return err })
		if err != nil || st.ExitCode != 5 {
			t.Errorf("%+v %v", st, err)
		}
	})
	want := ""
	for round := range 4 {
		s.emit(tk.ID, 3, false)
		s.appendLog(tk.ID, 1, task.Agent, "abc")
		j.write(1, "abc")
		want += "abc"
		eventually(t, "all of it arrived", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(events) == 3*(round+1) && log.String() == want && out.String() == want
		})
		up.stop()
		s.emit(tk.ID, 0, false) // nobody watches now
		up = s.serve(t, up.addr)
	}
	defer func() { up.stop() }()
	j.end(sandbox.Status{ExitCode: 5})
	s.emit(tk.ID, 1, true)
	readers.Wait()
	for i, seq := range events {
		if seq != int64(i+1) {
			t.Fatalf("events %v", events)
		}
	}
	if len(events) != 13 || log.String() != want || out.String() != want {
		t.Errorf("%v %q %q", events, log.String(), out.String())
	}
}
