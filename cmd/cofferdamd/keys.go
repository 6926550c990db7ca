package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cofferdam/cofferdam/api"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/boot"
	"github.com/cofferdam/cofferdam/internal/credential/seal"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/identity/issuer"
	serverkeys "github.com/cofferdam/cofferdam/internal/server/keys"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	storekeys "github.com/cofferdam/cofferdam/internal/store/keys"
	"github.com/cofferdam/cofferdam/internal/store/vault"
	"github.com/cofferdam/cofferdam/internal/task"
)

// settleVault ends a rotation of the vault's key that was broken off.
func (p *plane) settleVault(ctx context.Context, keys string) error {
	return seal.Settle(ctx, filepath.Join(keys, "vault.key"), func(ctx context.Context, id string) (bool, error) {
		return storekeys.New(p.store.Base()).Rotated(ctx, task.KeyVault, id)
	})
}

// openAudit opens the account under its key, and ends a rotation of that key that
// was broken off.
func (p *plane) openAudit(ctx context.Context, keys string) error {
	if err := audit.SettleKey(ctx, keys, p.store.Audit()); err != nil {
		return err
	}
	key, err := audit.NewKey(keys)
	if err != nil {
		return err
	}
	p.audit, err = audit.Open(ctx, audit.Options{Store: p.store.Audit(), Key: key})
	return err
}

// keyDesk tells the installation's keys and makes them anew.
func (p *plane) keyDesk() *serverkeys.Desk {
	dir := filepath.Join(p.dir, "keys")
	rows := storekeys.New(p.store.Base())
	down := "stop it with cofferdam down, make it anew with cofferdam key rotate --data FOLDER %s, and start it again"
	return &serverkeys.Desk{
		Rows: rows, Audit: p.audit, Now: time.Now, Log: p.log,
		Keys: []serverkeys.Key{
			{
				Name: task.KeyVault, For: "seals credentials and what was minted", Where: "cofferdamd/keys/vault.key", Rotation: serverkeys.Running,
				State: func(ctx context.Context) (serverkeys.State, error) {
					id, err := p.vault.KeyID(ctx)
					return serverkeys.State{ID: id, Made: written(dir, "vault.key")}, err
				},
				Rotate: func(ctx context.Context, r serverkeys.Request) (api.KeyRotated, error) {
					id, n, err := p.vault.Rotate(ctx, vault.New(p.store.Base()), r.By.User)
					if id == "" {
						return api.KeyRotated{}, err
					}
					return api.KeyRotated{
						Name: task.KeyVault, ID: id, Sealed: n,
						Note: "back cofferdamd/keys/vault.key up again, apart from the database; backups of the database from before need the old key",
					}, err
				},
			},
			{
				Name: task.KeyAudit, For: "signs receipts and checkpoints", Where: "cofferdamd/keys/audit.key", Rotation: serverkeys.Running,
				State: func(context.Context) (serverkeys.State, error) {
					return serverkeys.State{ID: audit.NameOf(p.audit.Key()), Made: written(dir, "audit.key"), Former: len(p.audit.Former())}, nil
				},
				Rotate: func(ctx context.Context, r serverkeys.Request) (api.KeyRotated, error) {
					public, err := p.audit.RotateKey(ctx, dir, r.By.User)
					if public == "" {
						return api.KeyRotated{}, err
					}
					return api.KeyRotated{
						Name: task.KeyAudit, ID: audit.NameOf(public), Public: public,
						Note: "keep the new public key elsewhere, beside the old one, which still verifies what was signed before",
					}, err
				},
			},
			{
				Name: task.KeyEngine, For: "seals what the engine is handed", Where: "cofferdamd/keys/engine.key", Rotation: serverkeys.Running,
				State: func(context.Context) (serverkeys.State, error) {
					return serverkeys.State{ID: p.engine.KeyName(), Made: written(dir, "engine.key"), Former: p.engine.FormerKeys()}, nil
				},
				Rotate: func(context.Context, serverkeys.Request) (api.KeyRotated, error) {
					name, err := p.engine.RotateKey()
					if err != nil {
						return api.KeyRotated{}, err
					}
					return api.KeyRotated{Name: task.KeyEngine, ID: name, Note: "keys before it are kept to open what the engine still has, for 30 days after a task's end"}, nil
				},
			},
			p.identityKey(),
			p.tokenKey(),
			{Name: "engine-token", For: "lets cofferdamd speak to the engine", Where: "engine/token", Rotation: serverkeys.Stopped, How: fmt.Sprintf(down, "engine-token")},
			{Name: "gateway-seal", For: "seals the authorities of sandboxes, which a worker keeps for a gateway that starts again", Where: "gateway/seal.key, on each worker's machine", Rotation: serverkeys.Stopped, How: fmt.Sprintf(down, "gateway-seal")},
			{Name: "authorities", For: "let the gateway decide a sandbox's requests", Where: "one a sandbox, in its gateway's memory", How: "each sandbox has its own, which ends with it: end the sandbox (task cancel, sandbox rm)"},
		},
	}
}

// written is when a file was made; zero: that can't be told.
func written(dir, name string) time.Time {
	info, err := os.Stat(filepath.Join(dir, name))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime().UTC().Truncate(time.Second)
}

// identityKey signs the runs' tokens.
func (p *plane) identityKey() serverkeys.Key {
	k := serverkeys.Key{Name: task.KeyIdentity, For: "signs the tokens that say who a run is", Where: "cofferdamd/keys/identity.json"}
	if p.issuer.URL() == "" {
		k.How = "this installation has none; it signs no tokens without --issuer"
		return k
	}
	current := func(keys []issuer.Key) (s serverkeys.State) {
		for _, one := range keys {
			switch one.State {
			case issuer.Current:
				s.ID, s.Made = one.ID, one.Made
			case issuer.Retired:
				s.Former++
			}
		}
		return s
	}
	k.Rotation = serverkeys.Running
	k.State = func(context.Context) (serverkeys.State, error) {
		keys, err := p.issuer.Keys()
		return current(keys), err
	}
	k.Rotate = func(ctx context.Context, r serverkeys.Request) (api.KeyRotated, error) {
		keys, err := p.issuer.Rotate(ctx, "", r.By.User, r.Req.Now)
		if err != nil {
			return api.KeyRotated{}, err
		}
		out := api.KeyRotated{Name: task.KeyIdentity, ID: keys[len(keys)-1].ID, Note: "it is published now and signs when relying parties have it; the key before it is published until its last token has ended"}
		if r.Req.Now {
			out.Note = "it signs now; relying parties that have not looked again refuse runs until they do"
		}
		return out, nil
	}
	return k
}

// tokenKey is every token of the API.
func (p *plane) tokenKey() serverkeys.Key {
	return serverkeys.Key{
		Name: task.KeyTokens, For: "what clients, workers and gateways show", Where: "their hashes in the database; this machine's own in cofferdamd/keys/*.token", Rotation: serverkeys.Running,
		State: func(ctx context.Context) (serverkeys.State, error) {
			all, err := p.identities.List(ctx)
			s := serverkeys.State{}
			for _, t := range all {
				if t.CreatedAt.After(s.Made) {
					s.Made = t.CreatedAt
				}
			}
			return s, err
		},
		Rotate: func(ctx context.Context, r serverkeys.Request) (api.KeyRotated, error) {
			made, err := p.identities.Renew(ctx, storekeys.New(p.store.Base()), r.Req.User, p.ownTokens(), func(made []identity.Renewed) error {
				facts := []map[string]string{}
				for _, one := range made {
					facts = append(facts, map[string]string{"made": one.ID, "instead": one.Instead, "user": one.User, "role": string(one.Role)})
				}
				return p.audit.Record(ctx, "", "token.renew/"+made[0].ID, "token.renew", "control plane", map[string]any{"by": r.By.User, "renewed": facts})
			})
			if err != nil {
				// The files may be ahead of the rows.
				return api.KeyRotated{}, errors.Join(err, p.enrolOwn(ctx))
			}
			// Workers come back with the token that is handed to them now.
			p.registry.Reconnect()
			return api.KeyRotated{
				Name: task.KeyTokens, Tokens: serverkeys.Tokens(made, r.By.Token, translate.Token),
				Note: "hand the new ones to their users, and to workers and gateways of other machines; those of this machine are handed on by cofferdam up",
			}, nil
		},
	}
}

// ownTokens are the tokens of this machine, whose secrets are files.
func (p *plane) ownTokens() []identity.Own {
	var own []identity.Own
	for name := range ownTokens() {
		file := filepath.Join(p.dir, "keys", name)
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is made at the next start
		}
		own = append(own, identity.Own{Secret: identity.SecretFrom(string(text)), Write: func(s identity.Secret) error {
			return boot.WriteFile(file, []byte(s.Reveal()+"\n"))
		}})
	}
	return own
}

// ownTokens says what the tokens of this machine are, by their files.
func ownTokens() map[string]identity.Request {
	return map[string]identity.Request{
		"admin.token":  {User: "admin", Role: identity.Admin, Note: "made at the first start"},
		"worker.token": {User: "worker", Role: identity.Worker, Note: "of this machine's worker, made at the first start"},
		// The same user as the worker's: what is lent goes to that machine only.
		"gateway.token": {User: "worker", Role: identity.Gateway, Note: "of this machine's gateway, made at the first start"},
	}
}

// enrolOwn makes this machine's tokens as far as they are absent.
func (p *plane) enrolOwn(ctx context.Context) error {
	for file, who := range ownTokens() {
		if err := p.enrol(ctx, filepath.Join(p.dir, "keys", file), who); err != nil {
			return err
		}
	}
	return nil
}
