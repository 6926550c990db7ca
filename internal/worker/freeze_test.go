package worker_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox/frozen"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/worker"
	"github.com/cofferdam/cofferdam/internal/worker/workertest"
)

// stopping is a driver that can stop what runs.
type stopping struct {
	*workertest.Local
	stopped []string
	fault   error
}

func (s *stopping) Freeze(_ context.Context, id string) error {
	s.stopped = append(s.stopped, id)
	return s.fault
}

func newFreezing(t *testing.T) (*machine, *stopping, *frozen.Set) {
	t.Helper()
	set, err := frozen.Open(filepath.Join(t.TempDir(), "frozen"))
	if err != nil {
		t.Fatal(err)
	}
	var driver *stopping
	m := newMachine(t, func(o *worker.Options) {
		driver = &stopping{Local: o.Driver.(*workertest.Local)}
		o.Driver, o.Frozen = driver, set
	})
	return m, driver, set
}

// TestFrozenSandboxIsKept: nothing that changes it is let through, whoever asks, and
// neither its time nor the end of the installation ends it.
func TestFrozenSandboxIsKept(t *testing.T) {
	m, driver, set := newFreezing(t)
	m.create(t, `{"id":"`+id+`","network":true}`)
	for range 2 {
		if status, text := m.ask(t.Context(), "POST", "/sandboxes/"+id+"/freeze", ""); status != http.StatusOK || !strings.Contains(text, `"frozen":true`) {
			t.Fatalf("freeze: %d %s", status, text)
		}
	}
	if len(driver.stopped) != 2 || !set.Has(id) {
		t.Errorf("stopped %v", driver.stopped)
	}
	if grants := m.gateway.Set(); len(grants) != 2 || len(grants[0].Rules) != 0 || grants[0].Sandbox != id {
		t.Errorf("grants %+v", grants)
	}
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "", `{"id":"` + id + `"}`},
		{"DELETE", "", ""},
		{"PUT", "/grant", `{"sandbox":"` + id + `","rules":[{"id":"r","host":"a.example"}]}`},
		{"PUT", "/protect", `{}`},
		{"POST", "/put?dir=/workspace", ""},
		{"POST", "/files/do", `{}`},
		{"POST", "/files/read", `{}`},
		{"POST", "/files/write?file=x", ""},
		{"POST", "/run", `{"id":"c","argv":["x"]}`},
		{"PUT", "/commands/c", `{"id":"c","argv":["x"]}`},
		{"POST", "/commands/c/signal", `{"signal":18}`},
		{"POST", "/commands/c/input", ""},
		{"PUT", "/commands/c/size", `{}`},
	} {
		status, text := m.ask(t.Context(), c.method, "/sandboxes/"+id+c.path, c.body)
		if status != http.StatusConflict || !strings.Contains(text, "is kept as evidence") {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, text)
		}
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"GET", "/egress?after=0", ""}, {"PUT", "/grant", `{"sandbox":"` + id + `"}`},
	} {
		if status, text := m.ask(t.Context(), c.method, "/sandboxes/"+id+c.path, c.body); status >= 300 {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, text)
		}
	}
	if grants := m.gateway.Set(); len(grants) != 2 {
		t.Errorf("a grant of nothing was given on: %+v", grants)
	}
	lives := func() bool {
		list, err := driver.List(t.Context())
		return err == nil && len(list) == 1
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.door.Keep(ctx, time.Hour) // once
	if err := m.door.DestroyAll(t.Context()); err != nil || !lives() {
		t.Errorf("it is gone: %v", err)
	}
	if status, _ := m.ask(t.Context(), "POST", "/sandboxes/"+id+"/release", ""); status != http.StatusNoContent || set.Has(id) || !lives() {
		t.Errorf("release: %d", status)
	}
	if status, _ := m.ask(t.Context(), "DELETE", "/sandboxes/"+id, ""); status != http.StatusNoContent || lives() {
		t.Errorf("destroyed after the release: %d", status)
	}
	if status, _ := m.ask(t.Context(), "POST", "/sandboxes/"+id+"/freeze", ""); status != http.StatusNotFound || set.Has(id) {
		t.Errorf("one that is gone: %d", status)
	}
}

// TestExpiredEvidenceIsKept: a sandbox whose time is over stays while it is kept.
func TestExpiredEvidenceIsKept(t *testing.T) {
	m, driver, set := newFreezing(t)
	m.create(t, `{"id":"`+id+`","expires":"2020-01-01T00:00:00Z"}`)
	if err := set.Add(id); err != nil {
		t.Fatal(err)
	}
	once := func() int {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		m.door.Keep(ctx, time.Hour)
		list, _ := driver.List(t.Context())
		return len(list)
	}
	if once() != 1 {
		t.Error("it expired")
	}
	if err := set.Remove(id); err != nil {
		t.Fatal(err)
	}
	if once() != 0 {
		t.Error("it did not expire")
	}
}

// TestHalfFrozenIsKept: what can't be stopped is told, and kept all the same.
func TestHalfFrozenIsKept(t *testing.T) {
	m, driver, set := newFreezing(t)
	m.create(t, `{"id":"`+id+`"}`)
	driver.fault = task.Fail(task.InfraSandboxLost, "3 processes don't stop", errors.New("x"))
	status, text := m.ask(t.Context(), "POST", "/sandboxes/"+id+"/freeze", "")
	if status < 400 || !strings.Contains(text, "don't stop") || !set.Has(id) {
		t.Errorf("%d %s", status, text)
	}
	// A machine that can't is one that says so.
	plain := newMachine(t, nil)
	plain.create(t, `{"id":"`+id+`"}`)
	if status, text := plain.ask(t.Context(), "POST", "/sandboxes/"+id+"/freeze", ""); status < 400 || !strings.Contains(text, "can't keep sandboxes") {
		t.Errorf("%d %s", status, text)
	}
}
