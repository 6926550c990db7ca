package incident

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

// plane is everything that the desk asks: sandbox "sb-N" is on the machine that
// where tells, and the machine "away" does not answer.
type plane struct {
	end   task.EndOfAll
	fault error
	where map[string]string
	url   string
	sign  error

	mu   sync.Mutex
	told []string
}

func (p *plane) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, text)
}

func (p *plane) RevokeAll(_ context.Context, by string) (task.EndOfAll, error) {
	p.note("revoked by " + by)
	return p.end, p.fault
}

func (p *plane) Unrevoked(context.Context) (int, error) { return 3, nil }

func (p *plane) Where(_ context.Context, sandbox string) (string, error) {
	if p.where[sandbox] == "" {
		return "", task.Fail(task.InputNotFound, "no sandbox", nil)
	}
	return p.where[sandbox], nil
}

func (p *plane) Withdraw(_ context.Context, ended []task.Lent) error {
	p.note("withdrawn")
	if p.where[ended[0].Sandbox] == "away" {
		return errors.New("it does not answer")
	}
	return nil
}

func (p *plane) URL() string { return p.url }

func (p *plane) Rotate(_ context.Context, _, by string, now bool) ([]issuer.Key, error) {
	if !now {
		return nil, errors.New("not at once")
	}
	p.note("rotated by " + by)
	return nil, p.sign
}

func TestRevoke(t *testing.T) {
	lost := task.Fail(task.InfraStorage, "the disk is full", nil)
	leases := []task.Lent{{Sandbox: "sb-1"}, {Sandbox: "sb-2"}, {Sandbox: "sb-1"}, {Sandbox: "sb-gone"}}
	machines := []api.MachineCut{{Worker: "away", Leases: 1}, {Worker: "m1", Leases: 2, Cut: true}}
	for name, c := range map[string]struct {
		keys  bool
		fault error
		url   string
		sign  error
		want  string
		told  string
	}{
		"without keys":          {want: "", url: "https://i.example", told: "revoked by admin, withdrawn, withdrawn"},
		"with keys":             {keys: true, url: "https://i.example", want: "rotated", told: "revoked by admin, withdrawn, withdrawn, rotated by admin"},
		"there are none":        {keys: true, want: "this installation has none", told: "revoked by admin, withdrawn, withdrawn"},
		"they can't be rotated": {keys: true, url: "https://i.example", sign: lost, want: "not rotated: the disk is full", told: "revoked by admin, withdrawn, withdrawn, rotated by admin"},
		"the facts fail":        {keys: true, fault: lost, told: "revoked by admin"},
	} {
		p := &plane{
			end:   task.EndOfAll{Credentials: 4, Leases: 3, Cut: leases},
			fault: c.fault, url: c.url, sign: c.sign, where: map[string]string{"sb-1": "m1", "sb-2": "away"},
		}
		d := &Desk{Vault: p, Machines: p, Grants: p, Keys: p, Log: slog.New(slog.DiscardHandler)}
		out, err := d.revoke(operation.As(t.Context(), identity.Principal{User: "admin", Role: identity.Admin}), &revocation{api.RevokeEverything{Keys: c.keys}})
		if got := strings.Join(p.told, ", "); got != c.told {
			t.Errorf("%s: %s", name, got)
		}
		if c.fault != nil {
			if !errors.Is(err, c.fault) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		want := api.EverythingRevoked{Credentials: 4, Leases: 3, Minted: 3, Machines: machines, Keys: c.want}
		if err != nil || !reflect.DeepEqual(out.Body, want) {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
}
