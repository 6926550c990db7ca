package main

import (
	"crypto/x509"
	"net/netip"

	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/task"
)

// outside is how this program reaches what a task's grant allows.
type outside struct {
	resolver outbound.Resolver
	roots    *x509.CertPool
}

func newOutside(f flags) (outside, error) {
	resolver, err := outbound.NewResolver(f.dns)
	if err != nil {
		return outside{}, task.Fail(task.InputInvalid, err.Error(), nil)
	}
	roots, _, err := outbound.ReadRoots(f.roots)
	if err != nil {
		return outside{}, task.Fail(task.InputInvalid, err.Error(), nil)
	}
	return outside{resolver: resolver, roots: roots}, nil
}

// transport makes a transport for one grant, which must be closed when the
// grant ends. protected are our own listeners, never reached whatever a rule
// says; record keeps what it did.
func (o outside) transport(grant task.Grant, protected []netip.AddrPort, lender outbound.Lender, record func(task.EgressRecord) error) (*outbound.Transport, error) {
	return outbound.New(outbound.Options{
		Grant: grant, Guard: guard.New(protected, nil),
		Resolver: o.resolver, Roots: o.roots, Lender: lender, Record: record,
	})
}
