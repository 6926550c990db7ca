package main

import (
	"context"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/credential/githubapp"
	"github.com/cofferdam/cofferdam/internal/credential/login"
	"github.com/cofferdam/cofferdam/internal/credential/oauth"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/credential/sts"
	"github.com/cofferdam/cofferdam/internal/egress/guard"
	"github.com/cofferdam/cofferdam/internal/egress/outbound"
	"github.com/cofferdam/cofferdam/internal/policy"
	"github.com/cofferdam/cofferdam/internal/store/minted"
	"github.com/cofferdam/cofferdam/internal/store/vault"
	"github.com/cofferdam/cofferdam/internal/task"
)

// minting is what short-lived credentials are made with.
func (p *plane) minting() credential.Minting {
	return credential.Minting{Minters: p.minters(), MintRows: minted.New(p.store.Base()), Log: p.log}
}

// minters are the adapters that make short-lived credentials, by kind. Who mints
// is asked over TLS that is verified, at addresses that are judged as a sandbox's
// would be: private ones only where the operator's policy opens them.
func (p *plane) minters() map[string]credential.Minter {
	ask := provider.Provider{Now: time.Now, Via: outbound.NewDirect(outbound.DirectOptions{
		Resolver: p.outside.resolver, Roots: p.outside.roots,
		Guard:   func() *guard.Guard { return guard.New(p.protected(p.listening), nil) },
		Private: func(host string, port uint16) bool { return policy.Private(p.policies.operator, host, port) },
	})}
	p.logins = login.New(login.Options{Ask: ask, Vault: credential.NewRenewals(p.vault, vault.New(p.store.Base())), Now: time.Now, Log: p.log})
	return map[string]credential.Minter{
		task.KindGitHubApp: githubapp.New(ask),
		task.KindOAuth:     oauth.NewClient(ask),
		task.KindExchange:  oauth.NewExchange(ask, p.issuer),
		task.KindAWSWeb:    sts.New(ask, p.issuer),
		task.KindOIDC:      runTokens{p.issuer},

		task.KindClaudeLogin: p.logins,
		task.KindCodexLogin:  p.logins,
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
		p.logins.Wait() // what a vendor answers yet must be written back
	}
}
