package server

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/server/incident"
	"github.com/cofferdam/cofferdam/internal/server/operation"
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
