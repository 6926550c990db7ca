package worker_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/worker"
)

const orderSpec = `{"id":"` + id + `","root":"host"}`

// A request to make a sandbox that arrives after the one that destroys it makes
// nothing; one that was sent later does.
func TestLateCreateMakesNothing(t *testing.T) {
	m := newMachine(t, nil)
	ask := func(method, order, body string, want int) {
		t.Helper()
		if status, answer := m.ask(t.Context(), method, "/sandboxes/"+id+"?order="+order, body); status != want {
			t.Fatalf("%s order %s: %d %s", method, order, status, answer)
		}
	}
	ask(http.MethodPut, "1", orderSpec, http.StatusOK)
	ask(http.MethodDelete, "5", "", http.StatusNoContent)
	ask(http.MethodPut, "4", orderSpec, http.StatusInternalServerError)
	ask(http.MethodDelete, "3", "", http.StatusNoContent) // itself late: what counts is the last
	ask(http.MethodPut, "4", orderSpec, http.StatusInternalServerError)
	if infos, err := m.driver.List(t.Context()); err != nil || len(infos) != 0 {
		t.Fatalf("%+v, %v", infos, err)
	}
	ask(http.MethodPut, "6", orderSpec, http.StatusOK)
	for _, order := range []string{"x", "-1", "99999999999999999999"} {
		ask(http.MethodPut, order, orderSpec, http.StatusUnprocessableEntity)
	}
}

// overtaken is a driver whose sandbox is destroyed at the door when it has just
// been made.
type overtaken struct {
	sandbox.Driver
	destroy func()
}

func (o *overtaken) Create(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	if o.destroy != nil {
		o.destroy() // The driver knows of nothing yet.
	}
	return o.Driver.Create(ctx, spec)
}

// The end may come when the making has begun: what was made goes again.
func TestCreateThatIsOvertakenLeavesNothing(t *testing.T) {
	driver := &overtaken{}
	m := newMachine(t, func(o *worker.Options) { driver.Driver, o.Driver = o.Driver, driver })
	driver.destroy = func() {
		if status, answer := m.ask(t.Context(), http.MethodDelete, "/sandboxes/"+id+"?order=2", ""); status != http.StatusNoContent {
			t.Errorf("destroy: %d %s", status, answer)
		}
	}
	status, answer := m.ask(t.Context(), http.MethodPut, "/sandboxes/"+id+"?order=1", orderSpec)
	if status != http.StatusInternalServerError || !strings.Contains(answer, "destroyed") {
		t.Errorf("%d %s", status, answer)
	}
	if infos, err := m.driver.List(t.Context()); err != nil || len(infos) != 0 {
		t.Errorf("%+v, %v", infos, err)
	}
}
