package main

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/cofferdam/cofferdam/internal/agent/loop"
	"github.com/cofferdam/cofferdam/internal/agent/loop/anthropic"
	"github.com/cofferdam/cofferdam/internal/agent/loop/openai"
	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/task"
)

// lender lends to what reaches out from this process, by the same check as a
// gateway's question.
type lender struct{ leases *credential.Leases }

// Value gives the value of a lease to one use of it.
func (l lender) Value(ctx context.Context, sandbox string, lease task.Lease) (outbound.Secret, error) {
	given, err := l.leases.Value(ctx, sandbox, lease.ID)
	return given.Value, err
}

// protected are the control plane's own listeners: ours, and the engine's where
// it is now. Addresses that are not literal are of another machine.
func (p *plane) protected(listening netip.AddrPort) []netip.AddrPort {
	all := []netip.AddrPort{listening}
	addresses := []string{p.flags.temporal}
	if b, err := os.ReadFile(filepath.Join(p.flags.data, "engine", "boot.json")); err == nil && p.flags.temporal == "" {
		var engine struct {
			Address string   `json:"address"`
			Inner   []string `json:"inner"`
		}
		if json.Unmarshal(b, &engine) == nil {
			addresses = append(engine.Inner, engine.Address)
		}
	}
	for _, address := range addresses {
		if at, err := netip.ParseAddrPort(address); err == nil {
			all = append(all, at)
		}
	}
	return all
}

// loop is the agent of our own. Its way out is built from egress: it reaches what
// the task's grant says, and never this program's own listeners.
func (p *plane) loop(listening netip.AddrPort) *loop.Loop {
	return loop.New(loop.Options{
		Turns: p.store, Facts: p.store, Audit: p.audit, Purse: p.budgets,
		Models: map[string]func(loop.Endpoint) loop.Model{"anthropic": anthropic.New, "openai": openai.New},
		Transport: func(grant task.Grant, record func(task.EgressRecord) error) (loop.Transport, error) {
			return p.outside.transport(grant, p.protected(listening), lender{p.leases}, record)
		},
	})
}
