package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

// vault is a small vault with its leases: a sandbox is on the machine of the
// token's user when holder says so.
type vault struct {
	mu        sync.Mutex
	all       []task.Credential
	values    map[string]string
	leases    []task.Lent
	holder    map[string]string // sandbox: subject
	withdrawn []string
}

func (v *vault) Add(_ context.Context, r task.CredentialRequest, _ string) (task.Credential, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if r.Name == "" || len(r.Hosts) == 0 {
		return task.Credential{}, task.Fail(task.InputInvalid, "hosts: none", nil)
	}
	c := task.Credential{ID: "c-" + r.Name, Name: r.Name, Owner: r.Owner, Shared: r.Shared, Kind: task.KindHeader, Header: r.Header, Hosts: r.Hosts, Ports: r.Ports, Created: time.Now()}
	if v.values == nil {
		v.values = map[string]string{}
	}
	v.all, v.values[c.ID] = append(v.all, c), r.Value.Reveal()
	return c, nil
}

func (v *vault) Get(_ context.Context, name string) (task.Credential, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.all {
		if c.Name == name {
			return c, nil
		}
	}
	return task.Credential{}, missing("credential")
}

func (v *vault) List(context.Context) ([]task.Credential, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.all), nil
}

func (v *vault) Revoke(ctx context.Context, name, _ string, remove bool) (task.Credential, []task.Lent, error) {
	c, err := v.Get(ctx, name)
	if err != nil {
		return c, nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	c.Revoked = &now
	i := slices.IndexFunc(v.all, func(have task.Credential) bool { return have.ID == c.ID })
	if remove {
		v.all = slices.Delete(v.all, i, i+1)
	} else {
		v.all[i] = c
	}
	return c, v.end(func(l task.Lent) bool { return l.CredentialID == c.ID }, task.EndedRevoked), nil
}

// end ends what is active and chosen. The lock is held.
func (v *vault) end(chosen func(task.Lent) bool, why string) (ended []task.Lent) {
	now := time.Now()
	for i, l := range v.leases {
		if l.Active() && chosen(l) {
			v.leases[i].Until, v.leases[i].Ended = &now, why
			ended = append(ended, v.leases[i])
		}
	}
	return ended
}

func (v *vault) Check(ctx context.Context, who string, rules map[task.StageName][]task.Rule) error {
	for _, list := range rules {
		for _, r := range list {
			if c, err := v.Get(ctx, r.Credential); r.Credential != "" && (err != nil || !c.UsableBy(who)) {
				return task.Fail(task.PolicyCredential, r.ID+".credential: no credential "+r.Credential, nil)
			}
		}
	}
	return nil
}

func (v *vault) Of(_ context.Context, id string) ([]task.Lent, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(v.leases), func(l task.Lent) bool { return l.Task != id }), nil
}

func (v *vault) End(_ context.Context, id, sandbox, why string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.end(func(l task.Lent) bool { return l.Task == id && (sandbox == "" || l.Sandbox == sandbox) }, why)
	return nil
}

func (v *vault) Value(_ context.Context, sandbox, lease string) (task.Given, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range v.leases {
		if l.ID == lease && l.Sandbox == sandbox && l.Active() {
			return task.Given{Value: task.NewSecret(v.values[l.CredentialID]), Keep: time.Minute}, nil
		}
	}
	return task.Given{}, task.Fail(task.PolicyCredential, "not lent", nil)
}

func (v *vault) Holds(_ context.Context, sandbox, subject string) (bool, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holder[sandbox] == "" {
		return false, missing("sandbox")
	}
	return v.holder[sandbox] == subject, nil
}

func (v *vault) Withdraw(_ context.Context, ended []task.Lent) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, l := range ended {
		v.withdrawn = append(v.withdrawn, l.ID)
	}
	return nil
}

// lendingPolicy lends the credential "k" to the agent of every task.
type lendingPolicy struct{ linePolicies }

func (p lendingPolicy) Compile(spec task.Spec, layers task.Layers) (stage.Plan, error) {
	plan, err := p.linePolicies.Compile(spec, layers)
	plan.Rules[task.Agent] = append(plan.Rules[task.Agent], task.Rule{ID: "agent.network.allow[0]", Host: "api.example", Ports: []uint16{443}, Credential: "k"})
	return plan, err
}
