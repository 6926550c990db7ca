package store

import (
	"slices"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestFileDenialsAreKeptOnce(t *testing.T) {
	s := open(t)
	id := create(t, s, task.Task{}).ID
	at := time.Date(2026, 3, 1, 12, 0, 0, 5, time.UTC)
	list := []task.FileDenial{
		{Seq: 1, Time: at, Sandbox: "sb-1", Operation: "open", Path: `/workspace/.git/\xff`, Error: "EROFS", Program: "sh", PID: 4},
		{Seq: 2, Time: at, Sandbox: "sb-1", Operation: "rename", Path: "/workspace/.git", Error: "EBUSY", Count: 3},
	}
	must(t, s.AddFileDenials(t.Context(), id, list[:1]))
	must(t, s.AddFileDenials(t.Context(), id, list))
	must(t, s.AddFileDenials(t.Context(), id, []task.FileDenial{{Seq: 1, Time: at, Sandbox: "sb-2", Operation: "open"}}))
	must(t, s.AddFileDenials(t.Context(), id, nil))
	all, err := s.FileDenials(t.Context(), id)
	must(t, err)
	if len(all) != 3 || !slices.Equal(all[:2], list) || all[2].Sandbox != "sb-2" {
		t.Errorf("%+v", all)
	}
	_, events := read(t, s, id)
	if len(events) != 4 || events[1].Type != "files" || events[1].Data.(task.FileDenial) != list[0] {
		t.Errorf("events %+v", events)
	}
	if _, err := s.FileDenials(t.Context(), "t-aaaaaaaaaaaaaaaa"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("a task that is none: %v", err)
	}
}
