// Package keys is the part of the server that tells which keys the installation has
// and has them made anew. Only administrators come here, and no key does.
package keys

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/task"
)

// How a key is rotated.
const (
	Running = "running" // while the platform runs
	Stopped = "stopped" // while it does not
	Never   = "none"
)

// State is what is known of a key.
type State struct {
	ID     string
	Made   time.Time // zero: not known
	Former int
}

// Request is who asks for another key, and how.
type Request struct {
	By  identity.Principal
	Req api.KeyRotation
}

// Key is one key.
type Key struct {
	Name, For, Where string
	Rotation         string // zero: Never
	How              string // what to do where it is not Running

	// State looks at it; nil: nothing is known.
	State func(ctx context.Context) (State, error)
	// Rotate makes it anew; required where it is Running. An answer beside an error
	// says that it was made anew all the same.
	Rotate func(ctx context.Context, r Request) (api.KeyRotated, error)
}

// Rows remember rotations. Implemented by store/keys.
type Rows interface {
	Add(ctx context.Context, r task.KeyRotation) error
	// Last is the newest rotation of each key, by its name.
	Last(ctx context.Context) (map[string]task.KeyRotation, error)
}

// Recorder appends to the account, once a key. Implemented by audit.
type Recorder interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// seenBy is who saw the facts of this package.
const seenBy = "control plane"

// Desk answers. All fields are required.
type Desk struct {
	Keys  []Key
	Rows  Rows
	Audit Recorder
	Now   func() time.Time
	Log   *slog.Logger

	turn sync.Mutex // one rotation at a time
}

// Describe registers its operations.
func (d *Desk) Describe(door *operation.Door) {
	operation.Register(door, operation.Operation{
		ID: "list-keys", Method: http.MethodGet, Path: "/v1/keys", Access: operation.Admins,
		Summary: "Which keys the installation has, where, for what, and when they were made anew; never a key",
	}, d.list)
	operation.Register(door, operation.Operation{
		ID: "rotate-key", Method: http.MethodPost, Path: "/v1/keys/{name}/rotate", Access: operation.Admins, Status: http.StatusOK,
		Summary: "Make a key anew", Max: 4 << 10,
	}, d.rotate)
}

type list struct{ Body api.KeyList }

func (d *Desk) list(ctx context.Context, _ *struct{}) (*list, error) {
	last, err := d.Rows.Last(ctx)
	if err != nil {
		return nil, err
	}
	out := &list{api.KeyList{Keys: []api.Key{}}}
	for _, k := range d.Keys {
		one := api.Key{Name: k.Name, For: k.For, Where: k.Where, Rotation: k.Rotation, How: k.How}
		if one.Rotation == "" {
			one.Rotation = Never
		}
		if k.State != nil {
			s, err := k.State(ctx)
			if err != nil {
				one.Problem = problem.Of(err).Detail
			}
			one.ID, one.Former = s.ID, s.Former
			if !s.Made.IsZero() {
				made := s.Made.UTC()
				one.MadeAt = &made
			}
		}
		if r, ok := last[k.Name]; ok {
			one.RotatedAt, one.RotatedBy = &r.At, r.By
		}
		out.Body.Keys = append(out.Body.Keys, one)
	}
	return out, nil
}

type rotation struct {
	Name string `path:"name" maxLength:"64"`
	Body api.KeyRotation
}

type rotated struct{ Body api.KeyRotated }

// rotate makes a key anew and puts that on record. What has happened is told even
// when the record fails.
func (d *Desk) rotate(ctx context.Context, in *rotation) (*rotated, error) {
	k, err := d.find(in.Name)
	if err != nil {
		return nil, err
	}
	switch {
	case k.Rotation != Running:
		return nil, task.Fail(task.InputConflict, fmt.Sprintf("key %s is not made anew while the platform runs: %s", k.Name, k.How), nil)
	case in.Body.User != "" && k.Name != task.KeyTokens:
		return nil, task.Fail(task.InputInvalid, "user: only tokens belong to somebody", nil)
	case in.Body.Now && k.Name != task.KeyIdentity:
		return nil, task.Fail(task.InputInvalid, "now: only the runs' tokens have keys that overlap; every other key changes at once", nil)
	}
	d.turn.Lock()
	defer d.turn.Unlock()
	who := operation.Who(ctx)
	// A client that goes away does not stop it.
	ctx = context.WithoutCancel(ctx)
	out, err := k.Rotate(ctx, Request{who, in.Body})
	if err != nil && out.Name == "" {
		return nil, err
	}
	at := d.Now().UTC().Truncate(time.Microsecond)
	id := out.ID
	if id == "" {
		id = fmt.Sprintf("at %d", at.UnixNano())
	}
	err = errors.Join(err,
		d.Rows.Add(ctx, task.KeyRotation{Name: k.Name, Key: id, By: who.User, At: at}),
		d.Audit.Record(ctx, "", "key.rotated/"+k.Name+"/"+id, "key.rotated", seenBy, map[string]any{"name": k.Name, "key": out.ID, "by": who.User, "user": in.Body.User}))
	if err != nil {
		d.Log.ErrorContext(ctx, "a key was made anew, and something after it failed", "key", k.Name, "error", err.Error())
		out.Note = joined(out.Note, problem.Of(err).Detail)
	}
	return &rotated{out}, nil
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

func (d *Desk) find(name string) (Key, error) {
	for _, k := range d.Keys {
		if k.Name == name {
			return k, nil
		}
	}
	return Key{}, task.Fail(task.InputNotFound, fmt.Sprintf("no key %.64q; see cofferdam key ls", name), nil)
}

// Tokens is what was made, as the API tells it. asked is the id of the token that
// asked.
func Tokens(made []identity.Renewed, asked string, token func(identity.Token) api.Token) []api.NewToken {
	out := make([]api.NewToken, 0, len(made))
	for _, one := range made {
		t := api.NewToken{Token: token(one.Token), Instead: one.Instead, Yours: one.Instead == asked, File: one.File}
		if !one.File || one.Role == identity.Admin || one.Role == identity.User { // machines read theirs from the file
			t.Secret = one.Secret.Reveal()
		}
		out = append(out, t)
	}
	return out
}
