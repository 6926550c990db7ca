package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	"github.com/cofferdam/cofferdam/internal/server"
	"github.com/cofferdam/cofferdam/internal/task"
)

// openIssuer opens the issuer of the runs' tokens. Without an issuer URL it signs
// nothing, and says so.
func (p *plane) openIssuer(keys string) error {
	var err error
	p.issuer, err = issuer.Open(issuer.Options{
		URL: p.flags.issuer, Dir: keys, Delay: p.flags.publishDelay, Runs: p.store, Audit: p.audit, Now: time.Now,
	})
	p.policies.issuer = p.issuer
	return err
}

// issuerHost is the name by which relying parties ask this server, if they do;
// empty: there is none.
func (p *plane) issuerHost() string {
	u, err := url.Parse(p.issuer.URL())
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// issuerProbes look at the issuer's keys, and at what relying parties find.
func (p *plane) issuerProbes() []server.Probe {
	if p.issuer.URL() == "" {
		return nil
	}
	client := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.outside.roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // many relying parties follow none
		},
	}
	return []server.Probe{
		{
			ID: "identity", Ask: func(context.Context) error { return p.issuer.Ready(task.InfraInternal, "") },
			OK: "the keys of the runs' tokens can sign", Fix: "tasks that need none go on",
		},
		{
			ID: "identity.published", Warn: true, Ask: func(ctx context.Context) error { return p.issuer.Published(ctx, client) },
			OK:  "relying parties find our keys, or the issuer can't be reached from here",
			Fix: "export the documents again to where the issuer is served: cofferdam identity export DIR",
		},
	}
}

// runTokens mints the run's own token, one a request.
type runTokens struct{ issuer *issuer.Issuer }

// Mint signs a token for the audience of the credential.
func (r runTokens) Mint(ctx context.Context, c task.Credential, _ task.Secret, l task.Lent) (credential.Minted, error) {
	token, err := r.issuer.Token(ctx, l, c.Settings[task.SettingAudience])
	return credential.Minted{Value: token}, err
}

// Revoke can do nothing: a token lasts until its time.
func (runTokens) Revoke(context.Context, task.Credential, task.Secret, task.Secret) error {
	return credential.ErrLasts
}
