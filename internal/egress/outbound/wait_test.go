package outbound

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// silent is a control plane that does not answer.
type silent struct{}

func (silent) Value(ctx context.Context, _ string, _ task.Lease) (Secret, error) {
	<-ctx.Done()
	return Secret{}, ctx.Err()
}

// A value that nobody lends is waited for, for half a minute, and the request
// does not go without it.
func TestLendingIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		grant := task.Grant{
			Sandbox: "sb-a",
			Rules:   []task.Rule{{ID: "r", Host: "api.example", Ports: []uint16{443}, Credential: "k"}},
			Leases:  []task.Lease{{ID: "l-a", Credential: "k", Header: "X-Api-Key", Placeholder: "placeholder-a", Hosts: []string{"api.example"}, Ports: []uint16{443}}},
		}
		g := Gate{Grant: grant, Use: decide.Use{Name: "api.example", Port: 443}, Rules: decide.NewIndex(grant), Inspect: true, Secure: true}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.example/v1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Api-Key", "placeholder-a")
		pass := g.Judge(r)
		if !pass.Allowed() || pass.Lease() != "l-a" {
			t.Fatalf("%+v", pass.Decision)
		}
		begun := time.Now()
		loan, reason := g.Lend(t.Context(), silent{}, pass)
		if reason != task.InfraControlAway || time.Since(begun) != 30*time.Second {
			t.Errorf("%s after %s", reason, time.Since(begun))
		}
		if err := loan.Apply(r); err != nil || r.Header.Get("X-Api-Key") != "placeholder-a" {
			t.Error("something was put in its place")
		}
	})
}
