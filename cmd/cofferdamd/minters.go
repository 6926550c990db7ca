package main

import (
	"context"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/store/minted"
	"github.com/cofferdam/cofferdam/internal/task"
)

// minting is what short-lived credentials are made with.
func (p *plane) minting() credential.Minting {
	return credential.Minting{Minters: p.minters(), MintRows: minted.New(p.store.Base()), Log: p.log}
}

// minters are the adapters that make short-lived credentials, by kind.
func (p *plane) minters() map[string]credential.Minter {
	return map[string]credential.Minter{
		task.KindOIDC: runTokens{p.issuer},
	}
}

// unmint starts what revokes minted values at who made them; what it returns
// waits for its end, which comes with that of ctx.
func (p *plane) unmint(ctx context.Context) (wait func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.leases.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}
