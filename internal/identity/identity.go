// Package identity says who is asking: users and the bearer tokens that speak
// for them.
//
// Words. A secret is the token itself: "cfd_" and 256 random bits, known to its
// holder only. A token is what we keep: whose it is, which role it has, until
// when, and the SHA-256 of its secret. A principal is the answer to "who asks".
// The roles are user (own tasks and sandboxes), admin (everyone's, tokens and
// audit), worker (a machine's tunnel and nothing else) and gateway (the values
// lent to the sandboxes of the worker with the same user, and nothing else).
//
// A plain hash suffices because a secret has 256 random bits: there is nothing
// to guess, so nothing to slow down. Revoking acts on the next request. Not
// promised: that a request which was let in before a revocation is ended by it.
package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// prefix marks a secret, so that scanners and people recognise a leaked one.
const prefix = "cfd_"

// secretBytes of entropy are in a secret.
const secretBytes = 32

// secretLength is the length of a secret as text.
const secretLength = len(prefix) + 43

// Role says what a token may do. The zero Role may do nothing.
type Role string

// The roles.
const (
	User    Role = "user"
	Admin   Role = "admin"
	Worker  Role = "worker"
	Gateway Role = "gateway"
)

// Valid says whether r is a role.
func (r Role) Valid() bool { return r == User || r == Admin || r == Worker || r == Gateway }

// Secret is a bearer token. No formatting, logging or encoding prints it;
// Reveal does. The text stands behind a pointer because fmt prints the fields
// of unexported fields without asking their methods, but follows no pointer.
type Secret struct{ text *string }

// SecretFrom takes a secret that was read from a file or a header.
func SecretFrom(text string) Secret {
	text = strings.TrimSpace(text)
	return Secret{&text}
}

// Reveal returns the secret's text, for handing it to its holder.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

const sealed = "[sealed]"

// String hides the secret.
func (Secret) String() string { return sealed }

// GoString hides the secret.
func (Secret) GoString() string { return sealed }

// Format hides the secret under every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, sealed) }

// LogValue hides the secret.
func (Secret) LogValue() slog.Value { return slog.StringValue(sealed) }

// MarshalText hides the secret.
func (Secret) MarshalText() ([]byte, error) { return []byte(sealed), nil }

// hash is how a secret is kept: SHA-256 in lowercase hex.
func (s Secret) hash() string {
	sum := sha256.Sum256([]byte(s.Reveal()))
	return hex.EncodeToString(sum[:])
}

// wellFormed says whether the text can be a secret at all.
func (s Secret) wellFormed() bool {
	text := s.Reveal()
	if len(text) != secretLength || !strings.HasPrefix(text, prefix) {
		return false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text[len(prefix):])
	return err == nil && len(raw) == secretBytes
}

// NewSecret returns a new random secret.
func NewSecret() Secret {
	raw := make([]byte, secretBytes)
	_, _ = rand.Read(raw) // never fails (crypto/rand since Go 1.24)
	return SecretFrom(prefix + base64.RawURLEncoding.EncodeToString(raw))
}

// Token is what is kept of a bearer token.
type Token struct {
	ID        string // "tok-" and 16 hex digits
	User      string
	Role      Role
	Note      string // for people: where it is used
	Hash      string // SHA-256 of the secret, lowercase hex
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
}

// Principal is who asks. The zero Principal is nobody.
type Principal struct {
	User  string
	Role  Role
	Token string // the token's id, for the log
}

// May says whether the principal may see or change what owner has.
func (p Principal) May(owner string) bool {
	switch p.Role {
	case Admin:
		return true
	case User:
		return p.User != "" && p.User == owner
	}
	return false
}

// Tokens keeps tokens. TokenByHash and RemoveToken of one that is not there
// give a *task.Failure with task.InputNotFound.
type Tokens interface {
	AddToken(ctx context.Context, t Token) error
	TokenByHash(ctx context.Context, hash string) (Token, error)
	Tokens(ctx context.Context) ([]Token, error)
	RemoveToken(ctx context.Context, id string) error
}

// Identities issues and verifies tokens. It is safe for concurrent use.
type Identities struct {
	tokens Tokens
	now    func() time.Time
}

// New returns Identities over tokens; now tells the time.
func New(tokens Tokens, now func() time.Time) *Identities {
	return &Identities{tokens: tokens, now: now}
}

// Request says what token to issue.
type Request struct {
	User string
	Role Role
	Note string
	TTL  time.Duration // zero: never expires
}

// Issue makes a token and returns its secret, which nothing can show again.
func (i *Identities) Issue(ctx context.Context, r Request) (Token, Secret, error) {
	secret := NewSecret()
	t, err := i.Enrol(ctx, r, secret)
	return t, secret, err
}

// Enrol makes a token for a secret that exists already, such as one that was
// written to a file before the first start.
func (i *Identities) Enrol(ctx context.Context, r Request, secret Secret) (Token, error) {
	switch {
	case r.User == "" || len(r.User) > 128:
		return Token{}, task.Fail(task.InputInvalid, "token: user must have 1 to 128 characters", nil)
	case !r.Role.Valid():
		return Token{}, task.Fail(task.InputInvalid, "token: role must be user, admin, worker or gateway", nil)
	case !secret.wellFormed():
		return Token{}, task.Fail(task.InputInvalid, "token: the secret is not one of ours (cfd_ and 43 characters)", nil)
	case r.TTL < 0:
		return Token{}, task.Fail(task.InputInvalid, "token: it would have expired already", nil)
	}
	var id [8]byte
	_, _ = rand.Read(id[:])
	now := i.now().UTC()
	t := Token{
		ID: "tok-" + hex.EncodeToString(id[:]), User: r.User, Role: r.Role, Note: r.Note,
		Hash: secret.hash(), CreatedAt: now,
	}
	if r.TTL > 0 {
		t.ExpiresAt = now.Add(r.TTL)
	}
	if err := i.tokens.AddToken(ctx, t); err != nil {
		return Token{}, fmt.Errorf("token for %s: %w", r.User, err)
	}
	return t, nil
}

// Verify says who holds the secret. When roles are given, the token must have
// one of them. Whatever is wrong with the secret, the failure is the same:
// task.InputUnauthed. A valid token of another role gives task.PolicyDenied. A
// store that can't answer lets nobody in.
func (i *Identities) Verify(ctx context.Context, secret Secret, roles ...Role) (Principal, error) {
	refuse := task.Fail(task.InputUnauthed, "no valid token: give one as Authorization: Bearer cfd_…", nil)
	if !secret.wellFormed() {
		return Principal{}, refuse
	}
	hash := secret.hash()
	t, err := i.tokens.TokenByHash(ctx, hash)
	if err != nil {
		var f *task.Failure
		if errors.As(err, &f) && f.Reason == task.InputNotFound {
			return Principal{}, refuse
		}
		return Principal{}, fmt.Errorf("token: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(t.Hash), []byte(hash)) != 1 || !t.Role.Valid() || t.User == "" {
		return Principal{}, refuse
	}
	if !t.ExpiresAt.IsZero() && !i.now().Before(t.ExpiresAt) {
		return Principal{}, refuse
	}
	if len(roles) > 0 && !slices.Contains(roles, t.Role) {
		return Principal{}, task.Fail(task.PolicyDenied, fmt.Sprintf("a token of role %s may not do this", t.Role), nil)
	}
	return Principal{User: t.User, Role: t.Role, Token: t.ID}, nil
}

// List returns all tokens, oldest first.
func (i *Identities) List(ctx context.Context) ([]Token, error) {
	list, err := i.tokens.Tokens(ctx)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	slices.SortStableFunc(list, func(a, b Token) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, nil
}

// Remove revokes a token.
func (i *Identities) Remove(ctx context.Context, id string) error {
	if err := i.tokens.RemoveToken(ctx, id); err != nil {
		return fmt.Errorf("token %s: %w", id, err)
	}
	return nil
}
