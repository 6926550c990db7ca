package issuer

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/identity/pace"

	"github.com/go-jose/go-jose/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Runs knows tasks and where their sandboxes are. Implemented by store.
type Runs interface {
	Task(ctx context.Context, id string) (task.Task, error)
	// SandboxWorker is the worker of a sandbox; "" for one that is not known.
	SandboxWorker(ctx context.Context, sandbox string) (string, error)
}

// Recorder appends to the audit, once a key. Implemented by audit.
type Recorder interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// DefaultDelay is how long a new key is published before it signs, if nobody
// says otherwise.
const DefaultDelay = time.Hour

// Options make an Issuer. All but URL and Delay are required.
type Options struct {
	URL   string        // the issuer; empty: nothing is signed
	Dir   string        // folder of the keys
	Delay time.Duration // from a key's publication to its first signature; 0: DefaultDelay; at least CacheTime
	Runs  Runs
	Audit Recorder
	Now   func() time.Time
}

// Issuer signs tokens. It is safe for concurrent use.
type Issuer struct {
	o    Options
	file string
	pace *pace.Pace // how often one lease may have a token: each is a record that is kept for ever

	mu    sync.Mutex
	keys  ring
	fault error // the keys can't be used; only a person can mend it
}

// tokenBurst is how many tokens a lease may have at once.
const tokenBurst = 200

// seenBy is who saw the facts of this package.
const seenBy = "control plane"

// Open returns the issuer of a folder of keys, and makes its first key. Errors
// are *task.Failure with task.InputInvalid for an option that is wrong. A file
// of keys that can't be used is told by Check and by every token, so that what
// needs none goes on.
func Open(o Options) (*Issuer, error) {
	if o.Runs == nil || o.Audit == nil || o.Now == nil || o.Dir == "" {
		return nil, errors.New("issuer: an option is missing")
	}
	o.Delay = cmp.Or(o.Delay, DefaultDelay)
	if o.Delay < CacheTime {
		return nil, task.Fail(task.InputInvalid, fmt.Sprintf("--identity-publish-delay %s: must be at least %s, for which relying parties keep the published keys", o.Delay, CacheTime), nil)
	}
	i := &Issuer{o: o, pace: &pace.Pace{Rate: 10, Burst: tokenBurst, Most: 8192}, file: filepath.Join(o.Dir, "identity.json")}
	if o.URL == "" {
		return i, nil
	}
	if text := urlFault(o.URL); text != "" {
		return nil, task.Fail(task.InputInvalid, fmt.Sprintf("--issuer %q: %s", o.URL, text), nil)
	}
	if i.keys, i.fault = loadRing(i.file, i.moment()); i.fault != nil {
		i.fault = task.Fail(task.InfraVault, "the keys of the run's tokens, "+i.file+": "+i.fault.Error()+"; put the right file back, or remove it and start again with a new key", nil)
	}
	return i, nil
}

// urlFault says why a text can't be the issuer; empty: it can. Relying parties
// compare it byte by byte.
func urlFault(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "https" || u.Hostname() == "":
		return "must be an https URL"
	case u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(text, "?#"):
		return "must have no user, query or fragment"
	case strings.HasSuffix(text, "/"):
		return "must not end with a slash: relying parties compare it byte by byte"
	case len(text) > 255 || task.AudienceFault(text) != "":
		return "must be at most 255 printable characters"
	case u.Host != strings.ToLower(u.Host):
		return "its host must be in lower case"
	}
	return ""
}

func (i *Issuer) moment() time.Time { return i.o.Now().UTC().Truncate(time.Second) }

// URL is the issuer; empty: there is none.
func (i *Issuer) URL() string { return i.o.URL }

// NotConfigured is the failure of an installation without an issuer.
func NotConfigured(reason task.Reason, field string) error {
	return task.Fail(reason, field+"this installation has no issuer, so it can't sign tokens that say who a run is; an administrator starts it with --issuer https://HOST, where relying parties find its keys", nil)
}

// Ready says whether tokens can be signed. The failure has the reason where
// there is no issuer, and begins with field.
func (i *Issuer) Ready(reason task.Reason, field string) error {
	if i.o.URL == "" {
		return NotConfigured(reason, field)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.fault
}

// minted is the fact that a token was signed. Fields are added, never changed;
// none is the token.
type minted struct {
	Task       string         `json:"task"`
	Attempt    int            `json:"attempt"`
	Stage      task.StageName `json:"stage"`
	Sandbox    string         `json:"sandbox"`
	Lease      string         `json:"lease"`
	Credential string         `json:"credential"`
	ID         string         `json:"jti"`
	Key        string         `json:"kid"`
	Issuer     string         `json:"issuer"`
	Subject    string         `json:"subject"`
	Audience   string         `json:"audience"`
	From       time.Time      `json:"from"`
	Until      time.Time      `json:"until"`
	HandedOver bool           `json:"handedOver,omitempty"` // the stage sees it
}

// Token signs a token for one use of an active lease: it says who the lease's
// stage is, to the audience. It is on record before it is returned. Errors are
// *task.Failure: task.PolicyCredential where there is no issuer, the lease has
// ended or the audience can't be one; task.LimitRequests where the lease asks
// too often.
func (i *Issuer) Token(ctx context.Context, l task.Lent, audience string) (task.Secret, error) {
	if err := i.Ready(task.PolicyCredential, ""); err != nil {
		return task.Secret{}, err
	}
	if !l.Active() || l.Task == "" || l.Sandbox == "" || l.Stage == "" {
		return task.Secret{}, task.Fail(task.PolicyCredential, "this lease has ended", nil)
	}
	if text := task.AudienceFault(audience); text != "" {
		return task.Secret{}, task.Fail(task.PolicyCredential, "the audience "+text, nil)
	}
	if !i.pace.May(l.ID, i.o.Now()) {
		return task.Secret{}, task.Fail(task.LimitRequests, "this lease asks for tokens too often; ask again in a second", nil)
	}
	t, err := i.o.Runs.Task(ctx, l.Task)
	if err != nil {
		return task.Secret{}, err
	}
	if t.State.Ended() || t.RequestedBy == "" {
		return task.Secret{}, task.Fail(task.PolicyCredential, "the task of this lease has ended", nil)
	}
	worker, err := i.o.Runs.SandboxWorker(ctx, l.Sandbox)
	if err != nil {
		return task.Secret{}, err
	}
	now := i.moment()
	c := claimsOf(t, l, worker)
	c.Issuer, c.Audience, c.ID = i.o.URL, audience, newID()
	c.Issued, c.From, c.Expires = now.Unix(), now.Add(-early).Unix(), now.Add(Life).Unix()
	token, kid, err := i.sign(c, now)
	if err != nil {
		return task.Secret{}, err
	}
	_, seen := l.HandsOver()
	err = i.o.Audit.Record(ctx, l.Task, "identity.minted/"+c.ID, "identity.minted", seenBy, minted{
		Task: l.Task, Attempt: l.Attempt, Stage: l.Stage, Sandbox: l.Sandbox, Lease: l.ID, Credential: l.Credential,
		ID: c.ID, Key: kid, Issuer: c.Issuer, Subject: c.Subject, Audience: audience, From: now, Until: now.Add(Life), HandedOver: seen,
	})
	return token, err
}

func newID() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails (crypto/rand since Go 1.24)
	return hex.EncodeToString(b)
}

// sign signs under the key of the moment.
func (i *Issuer) sign(c Claims, now time.Time) (task.Secret, string, error) {
	keys, err := i.at(now)
	if err != nil {
		return task.Secret{}, "", err
	}
	k, ok := keys.current(now)
	if !ok {
		return task.Secret{}, "", task.Fail(task.InfraVault, "no key can sign", nil)
	}
	private, err := k.private()
	if err != nil {
		return task.Secret{}, "", fmt.Errorf("key %q: %w", k.ID, err)
	}
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", k.ID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(k.Alg), Key: private}, options)
	if err != nil {
		return task.Secret{}, "", fmt.Errorf("key %q: %w", k.ID, err)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return task.Secret{}, "", err
	}
	signed, err := signer.Sign(text)
	if err != nil {
		return task.Secret{}, "", fmt.Errorf("key %q: %w", k.ID, err)
	}
	token, err := signed.CompactSerialize()
	return task.NewSecret(token), k.ID, err
}

// at is the ring as it is at a moment. What time takes out of it goes out of the
// file too; if that can't be written it is tried again the next time.
func (i *Issuer) at(now time.Time) (ring, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.o.URL == "" {
		return ring{}, NotConfigured(task.InputNotFound, "")
	}
	if i.fault != nil {
		return ring{}, i.fault
	}
	next, changed := i.keys.advance(now)
	if changed && next.write(i.file) == nil {
		i.keys = next
	}
	return next, nil
}
