package incident

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/store/workers"
	"github.com/cofferdam/cofferdam/internal/task"
)

// machines are a fleet and an account.
type machines struct {
	marks     map[string]string
	connected map[string]bool
	kinds     []string
	full      error
}

func (m *machines) Mark(k task.WorkerMark) { m.marks[k.Worker] = k.State }

func (m *machines) Connected(worker string) (connected, known bool) {
	return m.connected[worker], m.connected[worker] || m.marks[worker] != ""
}

func (m *machines) Record(_ context.Context, _, _, kind, _ string, _ any) error {
	m.kinds = append(m.kinds, kind)
	return m.full
}

func TestMarksOutlastRestarts(t *testing.T) {
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.SetSandboxWorker(t.Context(), "sb-aaaaaaaaaaaaaaaa", "gone"); err != nil {
		t.Fatal(err)
	}
	m := &machines{marks: map[string]string{}, connected: map[string]bool{"here": true}}
	d := &MachineDesk{Workers: m, Rows: workers.New(s.Base()), Audit: m, Now: time.Now}
	ctx := operation.As(t.Context(), identity.Principal{User: "admin", Role: identity.Admin})
	for _, c := range []struct {
		worker, state string
		want          task.Reason
		sandboxes     int
	}{
		{worker: "here", state: task.WorkerDraining},
		{worker: "here", state: task.WorkerQuarantined},
		{worker: "here", state: task.WorkerForgotten, want: task.InputConflict},
		{worker: "gone", state: task.WorkerForgotten, sandboxes: 1},
		{worker: "never", state: task.WorkerQuarantined, want: task.InputNotFound},
	} {
		out, err := d.mark(ctx, c.worker, api.WorkerMarking{State: c.state, Reason: "odd"})
		if c.want != "" {
			if f, ok := errors.AsType[*task.Failure](err); !ok || f.Reason != c.want {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || out.Body.Mark == nil || out.Body.Mark.State != c.state || out.Body.Mark.By != "admin" || out.Body.Sandboxes != c.sandboxes {
			t.Errorf("%+v: %+v, %v", c, out, err)
		}
	}
	again := &machines{marks: map[string]string{}}
	if err := Restore(t.Context(), d.Rows, again); err != nil || len(again.marks) != 2 || again.marks["here"] != task.WorkerQuarantined || again.marks["gone"] != task.WorkerForgotten {
		t.Errorf("after a restart: %v, %v", again.marks, err)
	}
	// What can't be put on record does not hold.
	m.full = errors.New("no space")
	if _, err := d.mark(ctx, "here", api.WorkerMarking{}); err == nil || m.marks["here"] != task.WorkerQuarantined {
		t.Errorf("marks %v, %v", m.marks, err)
	}
	m.full = nil
	if out, err := d.mark(ctx, "here", api.WorkerMarking{}); err != nil || out.Body.Mark != nil || m.marks["here"] != "" {
		t.Errorf("released: %+v, %v", out, err)
	}
	if list, err := d.Rows.Marks(t.Context()); err != nil || len(list) != 1 || list[0].Worker != "gone" || list[0].Reason != "odd" {
		t.Errorf("marks %v, %v", list, err)
	}
	if got := strings.Join(m.kinds, " "); got != "worker.draining worker.quarantined worker.forgotten worker.released worker.released" {
		t.Error(got)
	}
}
