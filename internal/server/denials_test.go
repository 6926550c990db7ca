package server

import (
	"context"
	"testing"

	"github.com/cofferdam/cofferdam/internal/task"
)

// FileDenials makes one up for each task.
func (m *memory) FileDenials(_ context.Context, id string) ([]task.FileDenial, error) {
	return []task.FileDenial{{Seq: 1, Sandbox: "sb-of-" + id, Operation: "open", Path: "/workspace/.git/config", Error: "EROFS", Program: "sh", PID: 3, Count: 2}}, nil
}

func TestFileDenialsAreListed(t *testing.T) {
	s := newSite(t)
	tk := s.newTask(t, "alice")
	list, err := s.as(t, "alice").FileDenials(t.Context(), tk.ID)
	if err != nil || len(list) != 1 || list[0].Path != "/workspace/.git/config" || list[0].Error != "EROFS" || list[0].Count != 2 || list[0].Sandbox != "sb-of-"+tk.ID {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := s.as(t, "bob").FileDenials(t.Context(), tk.ID); err == nil {
		t.Error("bob reads of alice's task")
	}
}
