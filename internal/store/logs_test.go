package store

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestLogs(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{}).ID
	readLog := func(attempt int, name task.StageName, offset int64) (string, int64) {
		t.Helper()
		r, size, err := s.OpenLog(t.Context(), id, attempt, name, offset)
		must(t, err)
		b, err := io.ReadAll(r)
		must(t, errors.Join(err, r.Close()))
		return string(b), size
	}
	if text, size := readLog(0, task.Agent, 0); text != "" || size != 0 {
		t.Errorf("not begun: %q, %d", text, size)
	}
	wake, stop := s.Watch(id)
	defer stop()
	for i, text := range []string{"one\n", "two\n"} {
		w, err := s.Log(t.Context(), id, 1, task.Agent)
		must(t, err)
		if w.Offset() != int64(i*4) {
			t.Errorf("offset %d", w.Offset())
		}
		_, err = w.Write([]byte(text))
		must(t, errors.Join(err, w.Close()))
		<-wake
	}
	w, err := s.Log(t.Context(), id, 12, task.Agent)
	must(t, err)
	must(t, w.Close())
	for _, c := range []struct {
		attempt int
		offset  int64
		want    string
		size    int64
	}{{1, 0, "one\ntwo\n", 8}, {1, 5, "wo\n", 8}, {1, 99, "", 8}, {1, -1, "one\ntwo\n", 8}, {0, 0, "", 0}, {2, 0, "", 0}} {
		if text, size := readLog(c.attempt, task.Agent, c.offset); text != c.want || size != c.size {
			t.Errorf("%+v: %q, %d", c, text, size)
		}
	}
	for _, name := range []task.StageName{"", "x", "../agent", "agent.log"} {
		if _, err := s.Log(t.Context(), id, 1, name); task.ReasonOf(err) != task.InputNotFound {
			t.Errorf("stage %q: %v", name, err)
		}
	}
	if _, err := s.Log(t.Context(), "../x", 1, task.Agent); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("a task that is a path: %v", err)
	}
}

func TestTokens(t *testing.T) {
	s := open(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	want := []identity.Token{
		{ID: "tok-1", User: "alice", Role: identity.Admin, Note: "laptop", Hash: "aa", CreatedAt: at},
		{ID: "tok-2", User: "w1", Role: identity.Worker, Hash: "bb", CreatedAt: at.Add(1), ExpiresAt: at.Add(5)},
	}
	for _, tok := range want {
		must(t, s.AddToken(t.Context(), tok))
	}
	all, err := s.Tokens(t.Context())
	must(t, err)
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	if got, err := s.TokenByHash(t.Context(), "bb"); err != nil || got != want[1] {
		t.Errorf("%+v, %v", got, err)
	}
	if err := s.AddToken(t.Context(), identity.Token{ID: "tok-3", Hash: "aa", CreatedAt: at}); err == nil {
		t.Error("one hash stands for two tokens")
	}
	must(t, s.RemoveToken(t.Context(), "tok-2"))
	if err := s.RemoveToken(t.Context(), "tok-2"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("removed twice: %v", err)
	}
	if _, err := s.TokenByHash(t.Context(), "bb"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("a removed token: %v", err)
	}
}

func TestWatch(t *testing.T) {
	s := open(t)
	id, other := create(t, s, task.Task{}).ID, create(t, s, task.Task{}).ID
	one, stopOne := s.Watch(id)
	all, stopAll := s.Watch("")
	must(t, s.SetTask(t.Context(), other, stage.TaskUpdate{State: task.Running}))
	<-all
	select {
	case <-one:
		t.Error("woken for another task")
	default:
	}
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{State: task.Running}))
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{Worker: "w"}))
	<-one
	<-all
	stopOne()
	stopAll()
	must(t, s.SetTask(t.Context(), id, stage.TaskUpdate{Worker: "x"}))
	select {
	case <-one:
		t.Error("woken after the end")
	case <-all:
		t.Error("woken after the end")
	default:
	}
	if n := len(s.wakes.chans); n != 0 {
		t.Errorf("%d watchers left", n)
	}
}
