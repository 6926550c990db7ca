package server

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/incident"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Nobody but an administrator comes to where an incident is dealt with.
func TestIncidentPermissions(t *testing.T) {
	s := newSiteWith(t, func(o *Options) {
		o.Needs.Desks = []operation.Desk{&incident.Desk{Log: slog.New(slog.DiscardHandler)}, &incident.MachineDesk{}}
	})
	s.tokens["nobody"], s.tokens["bad"] = "", "cfd_x"
	met := 0
	for _, op := range s.server.door.Operations() {
		if _, known := permissions[op.ID]; known {
			continue
		}
		met++
		if op.Access != operation.Admins {
			t.Errorf("%s is not for administrators only", op.ID)
		}
		for caller, want := range map[string]int{"nobody": 401, "bad": 401, "alice": 403, "worker": 403, "gateway": 403} {
			body := ""
			if op.Method == http.MethodPost {
				body = "{}"
			}
			if status, _, text := s.ask(t, caller, op.Method, strings.Replace(op.Path, "{name}", "x", 1), body); status != want {
				t.Errorf("%s as %s: %d %s", op.ID, caller, status, text)
			}
		}
	}
	if met == 0 {
		t.Error("no operation was met")
	}
}

// marks are a fleet, its rows and an account.
type marks struct{ last task.WorkerMark }

func (m *marks) Mark(k task.WorkerMark)                                            { m.last = k }
func (m *marks) Connected(worker string) (bool, bool)                              { return false, worker == "m-1" }
func (m *marks) Record(context.Context, string, string, string, string, any) error { return nil }

func (m *marks) Placed(_ context.Context, worker string) (int, error) {
	if worker == "m-1" {
		return 2, nil
	}
	return 0, nil
}

// rows are the same as rows.
type rows struct{ *marks }

func (r rows) Marks(context.Context) ([]task.WorkerMark, error) { return nil, nil }
func (r rows) Mark(_ context.Context, k task.WorkerMark) error  { r.last = k; return nil }

// An administrator sets a machine apart and takes it back, through the API.
func TestMachineIsSetApart(t *testing.T) {
	m := &marks{}
	s := newSiteWith(t, func(o *Options) {
		o.Needs.Desks = []operation.Desk{&incident.MachineDesk{Workers: m, Rows: rows{m}, Audit: m, Now: time.Now}}
	})
	c := s.as(t, "admin")
	out, err := c.MarkWorker(t.Context(), "m-1", api.WorkerMarking{State: "quarantined", Reason: "odd"})
	if err != nil || out.Mark == nil || out.Mark.State != "quarantined" || out.Mark.By != "admin" || out.Sandboxes != 2 || m.last.Worker != "m-1" || m.last.Reason != "odd" {
		t.Errorf("%+v, %+v, %v", out, m.last, err)
	}
	if out, err = c.ReleaseWorker(t.Context(), "m-1"); err != nil || out.Mark != nil || m.last.State != "" {
		t.Errorf("%+v, %+v, %v", out, m.last, err)
	}
	for path, body := range map[string]string{"m-2": `{"state":"draining"}`, "m-1": `{"state":"odd"}`, "m-1x": ""} {
		if status, _, text := s.ask(t, "admin", http.MethodPut, "/v1/workers/"+path+"/mark", body); status < 400 || status > 499 {
			t.Errorf("%s %s: %d %s", path, body, status, text)
		}
	}
}
