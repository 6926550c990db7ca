package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Where relying parties look, beneath the issuer.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/.well-known/jwks.json"
)

// CacheTime is how long relying parties may keep what is published here.
const CacheTime = 15 * time.Minute

// Discovery is the document of OpenID Connect Discovery 1.0 §3, as far as an
// issuer has one whose tokens nobody asks for in a browser.
type Discovery struct {
	Issuer     string   `json:"issuer"`
	Keys       string   `json:"jwks_uri"`
	Responses  []string `json:"response_types_supported"`
	Subjects   []string `json:"subject_types_supported"`
	Algorithms []string `json:"id_token_signing_alg_values_supported"`
	Scopes     []string `json:"scopes_supported"`
	Claims     []string `json:"claims_supported"`
}

// Discovery tells where the keys are and what tokens look like. Without an
// issuer the error is task.InputNotFound.
func (i *Issuer) Discovery() (Discovery, error) {
	if err := i.Ready(task.InputNotFound, ""); err != nil {
		return Discovery{}, err
	}
	return Discovery{
		Issuer: i.o.URL, Keys: i.o.URL + KeysPath,
		Responses: []string{"id_token"}, Subjects: []string{"public"}, Algorithms: []string{RS256, ES256}, Scopes: []string{"openid"},
		Claims: []string{
			"iss", "sub", "aud", "exp", "nbf", "iat", "jti", "task", "stage", "attempt", "sandbox", "worker",
			"project", "repository", "ref", "commit", "requester", "policy_digest", "agent",
		},
	}, nil
}

// KeySet is the public keys under which tokens may be found to be ours, now.
func (i *Issuer) KeySet() (jose.JSONWebKeySet, error) {
	keys, err := i.at(i.moment())
	if err != nil {
		return jose.JSONWebKeySet{}, err
	}
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range keys.Keys {
		public, err := k.public()
		if err != nil {
			return set, err
		}
		set.Keys = append(set.Keys, public)
	}
	return set, nil
}

// KeyState is what a key is for at a moment.
type KeyState string

// The states of a key.
const (
	Next    KeyState = "next"
	Current KeyState = "current"
	Retired KeyState = "retired"
)

// Key is what is told of a key.
type Key struct {
	ID    string
	Alg   string
	State KeyState
	Made  time.Time
	From  time.Time  // it signs from here on
	Until *time.Time // it is published until then; nil: no end is set
}

// Keys lists the keys in the order in which they sign.
func (i *Issuer) Keys() ([]Key, error) {
	now := i.moment()
	keys, err := i.at(now)
	if err != nil {
		return nil, err
	}
	return keys.list(now), nil
}

func (r ring) list(now time.Time) []Key {
	current, _ := r.current(now)
	next, _ := r.next(now)
	var out []Key
	for _, k := range r.Keys {
		one := Key{ID: k.ID, Alg: k.Alg, State: Retired, Made: k.Made, From: k.From}
		switch k.ID {
		case current.ID:
			one.State = Current
		case next.ID:
			one.State = Next
		}
		if !k.Until.IsZero() {
			until := k.Until
			one.Until = &until
		}
		out = append(out, one)
	}
	return out
}

// Rotate makes a new key. It is published at once and signs after the delay,
// when every relying party has it; the one before is published until its last
// token has ended. With atOnce it signs now, and every other key is forgotten:
// tokens of before are refused as soon as relying parties look again. by is who
// asks, for the record, which comes first. Errors are *task.Failure:
// task.InputConflict while another new key waits.
func (i *Issuer) Rotate(ctx context.Context, alg, by string, atOnce bool) ([]Key, error) {
	if err := i.Ready(task.InputConflict, ""); err != nil {
		return nil, err
	}
	if alg == "" {
		alg = RS256
	}
	if alg != RS256 && alg != ES256 {
		return nil, task.Fail(task.InputInvalid, fmt.Sprintf("algorithm: %.16q is not RS256 or ES256", alg), nil)
	}
	now := i.moment()
	i.mu.Lock()
	defer i.mu.Unlock()
	if next, waits := i.keys.next(now); waits && !atOnce {
		return nil, task.Fail(task.InputConflict, fmt.Sprintf("key %s is new already and signs from %s on; wait for it, or rotate at once (--now)", next.ID, next.From.Format(time.RFC3339)), nil)
	}
	from := now.Add(i.o.Delay)
	if atOnce {
		from = now
	}
	k, err := makeKey(alg, now, from)
	if err != nil {
		return nil, err
	}
	rotated, _ := i.keys.advance(now)
	rotated = rotated.rotate(k, Life+apart)
	if atOnce {
		rotated = ring{Version: ringVersion, Keys: []key{k}}
	}
	err = i.o.Audit.Record(ctx, "", "identity.rotate/"+k.ID, "identity.rotate", seenBy, map[string]any{
		"kid": k.ID, "algorithm": alg, "from": from, "atOnce": atOnce, "by": by,
	})
	if err != nil {
		return nil, err
	}
	if err := rotated.write(i.file); err != nil {
		return nil, task.Fail(task.InfraStorage, "the file of keys can't be written; the keys are as they were", err)
	}
	i.keys = rotated
	return rotated.list(now), nil
}

// maxPublished bounds what is read of a published key set.
const maxPublished = 1 << 20

// Published looks whether the key set that relying parties find holds the keys
// that sign now and next. It says nothing against one that can't be reached from
// here: who asks for it may.
func (i *Issuer) Published(ctx context.Context, client *http.Client) error {
	if i.o.URL == "" {
		return nil
	}
	keys, err := i.Keys()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, i.o.URL+KeysPath, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	stale := func(text string) error {
		return task.Fail(task.InputConflict, i.o.URL+KeysPath+" "+text, nil)
	}
	if resp.StatusCode != http.StatusOK {
		return stale(fmt.Sprintf("answers %d", resp.StatusCode))
	}
	var set jose.JSONWebKeySet
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxPublished)).Decode(&set); err != nil {
		return errors.Join(stale("is no key set"), err)
	}
	for _, k := range keys {
		if k.State != Retired && len(set.Key(k.ID)) == 0 {
			return stale(fmt.Sprintf("does not hold the %s key %s", k.State, k.ID))
		}
	}
	return nil
}
