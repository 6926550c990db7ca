package identity

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Replacer puts tokens in the place of others. Implemented by store/keys.
type Replacer interface {
	// ReplaceTokens forgets every token of a user (empty: everyone's) and keeps
	// those that were made in their place: all or nothing.
	ReplaceTokens(ctx context.Context, user string, made []Token) error
}

// Own is a token of this machine, whose secret is in a file.
type Own struct {
	Secret Secret
	Write  func(Secret) error // another one in its place
}

// Renewed is a token that was made in the place of another.
type Renewed struct {
	Token
	Instead string // the id of the one that works no more
	Secret  Secret
	File    bool // it is in a file of this machine too
}

// Renew makes a token in the place of each of a user's (empty: of everyone's); those
// of before work no more, nor does one that was made meanwhile. Tokens that are over
// are not made anew. record puts it on record, which comes first. When an
// error is returned the files may have secrets that are no tokens yet.
func (i *Identities) Renew(ctx context.Context, rows Replacer, user string, own []Own, record func([]Renewed) error) ([]Renewed, error) {
	list, err := i.List(ctx)
	if err != nil {
		return nil, err
	}
	files := map[string]func(Secret) error{}
	for _, o := range own {
		files[o.Secret.hash()] = o.Write
	}
	now := i.now().UTC()
	var made []Renewed
	secrets := map[string]Secret{}
	for _, t := range list {
		if user != "" && t.User != user || !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt) {
			continue
		}
		var id [8]byte
		_, _ = rand.Read(id[:])
		secret := NewSecret()
		one := Renewed{Token: t, Instead: t.ID, Secret: secret}
		one.ID, one.Hash, one.CreatedAt = "tok-"+hex.EncodeToString(id[:]), secret.hash(), now.Add(time.Duration(len(made)))
		if files[t.Hash] != nil {
			secrets[t.Hash], one.File = secret, true
		}
		made = append(made, one)
	}
	if len(made) == 0 {
		return nil, task.Fail(task.InputNotFound, fmt.Sprintf("%.128q has no token; see the list of tokens", user), nil)
	}
	if err := record(made); err != nil {
		return nil, err
	}
	for hash, secret := range secrets {
		if err := files[hash](secret); err != nil {
			return nil, task.Fail(task.InfraStorage, "the file of a token of this machine can't be written; the tokens are as they were, start cofferdamd again", err)
		}
	}
	tokens := make([]Token, 0, len(made))
	for _, one := range made {
		tokens = append(tokens, one.Token)
	}
	return made, rows.ReplaceTokens(ctx, user, tokens)
}
