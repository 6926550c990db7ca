package keys

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

// plane remembers rotations and records.
type plane struct {
	last map[string]task.KeyRotation
	told []string
	full error
}

func (p *plane) Add(_ context.Context, r task.KeyRotation) error {
	p.last[r.Name] = r
	return nil
}

func (p *plane) Last(context.Context) (map[string]task.KeyRotation, error) { return p.last, nil }

func (p *plane) Record(_ context.Context, _, key, kind, _ string, _ any) error {
	p.told = append(p.told, kind+" "+key)
	return p.full
}

// desk has one key of each sort.
func desk(p *plane) *Desk {
	made := func(out api.KeyRotated, err error) func(context.Context, Request) (api.KeyRotated, error) {
		return func(context.Context, Request) (api.KeyRotated, error) { return out, err }
	}
	lost := task.Fail(task.InfraVault, "the key is lost", nil)
	return &Desk{Rows: p, Audit: p, Now: time.Now, Log: slog.New(slog.DiscardHandler), Keys: []Key{
		{
			Name: task.KeyVault, Rotation: Running, State: func(context.Context) (State, error) { return State{ID: "old", Made: time.Unix(1, 0)}, nil },
			Rotate: made(api.KeyRotated{Name: task.KeyVault, ID: "new", Sealed: 3}, nil),
		},
		{Name: "lost", Rotation: Running, State: func(context.Context) (State, error) { return State{}, lost }, Rotate: made(api.KeyRotated{}, lost)},
		{Name: "half", Rotation: Running, Rotate: made(api.KeyRotated{Name: "half", ID: "h"}, task.Fail(task.InfraStorage, "the file waits", nil))},
		{Name: task.KeyTokens, Rotation: Running, Rotate: func(_ context.Context, r Request) (api.KeyRotated, error) {
			return api.KeyRotated{Name: task.KeyTokens, Note: r.By.Token + " " + r.Req.User}, nil
		}},
		{Name: "engine-token", Rotation: Stopped, How: "stop it with cofferdam down"},
		{Name: "authorities", How: "end the sandbox"},
	}}
}

func TestRotate(t *testing.T) {
	for name, c := range map[string]struct {
		key  string
		req  api.KeyRotation
		full error
		want task.Reason // empty: it is made anew
		text string      // in the failure, or in the note
	}{
		"a key":                        {key: task.KeyVault},
		"one that is not there":        {key: "nope", want: task.InputNotFound, text: "cofferdam key ls"},
		"one that needs a stop":        {key: "engine-token", want: task.InputConflict, text: "stop it with cofferdam down"},
		"one that is never":            {key: "authorities", want: task.InputConflict, text: "end the sandbox"},
		"one that is lost":             {key: "lost", want: task.InfraVault, text: "the key is lost"},
		"one whose file waits":         {key: "half", text: "the file waits"},
		"a user's, which has none":     {key: task.KeyVault, req: api.KeyRotation{User: "alice"}, want: task.InputInvalid, text: "user:"},
		"at once, which all others do": {key: task.KeyVault, req: api.KeyRotation{Now: true}, want: task.InputInvalid, text: "now:"},
		"a user's tokens":              {key: task.KeyTokens, req: api.KeyRotation{User: "alice"}, text: "tok-1 alice"},
		"the record fails":             {key: task.KeyVault, full: task.Fail(task.InfraStorage, "the disk is full", nil), text: "the disk is full"},
	} {
		p := &plane{last: map[string]task.KeyRotation{}, full: c.full}
		d := desk(p)
		ctx := operation.As(t.Context(), identity.Principal{User: "admin", Role: identity.Admin, Token: "tok-1"})
		out, err := d.rotate(ctx, &rotation{c.key, c.req})
		if c.want != "" {
			f, ok := errors.AsType[*task.Failure](err)
			if !ok || f.Reason != c.want || !strings.Contains(f.Text, c.text) || len(p.told) > 0 || len(p.last) > 0 {
				t.Errorf("%s: %v, told %v", name, err, p.told)
			}
			continue
		}
		if err != nil || out.Body.Name != c.key || !strings.Contains(out.Body.Note, c.text) {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
		if p.last[c.key].By != "admin" || len(p.told) != 1 || !strings.HasPrefix(p.told[0], "key.rotated key.rotated/"+c.key+"/") {
			t.Errorf("%s: on record: %+v, %v", name, p.last, p.told)
		}
	}
}

func TestList(t *testing.T) {
	at := time.Unix(9, 0).UTC()
	p := &plane{last: map[string]task.KeyRotation{task.KeyVault: {Name: task.KeyVault, By: "admin", At: at}}}
	out, err := desk(p).list(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]api.Key{}
	for _, k := range out.Body.Keys {
		by[k.Name] = k
	}
	v := by[task.KeyVault]
	if v.ID != "old" || v.MadeAt == nil || v.RotatedAt == nil || !v.RotatedAt.Equal(at) || v.RotatedBy != "admin" || v.Rotation != Running {
		t.Errorf("vault: %+v", v)
	}
	if l := by["lost"]; l.Problem != "the key is lost" || l.MadeAt != nil || l.RotatedAt != nil {
		t.Errorf("lost: %+v", l)
	}
	if by["engine-token"].Rotation != Stopped || by["authorities"].Rotation != Never || by["authorities"].How == "" {
		t.Errorf("%+v", by)
	}
}

// TestTokens: secrets of machines stay in their files.
func TestTokens(t *testing.T) {
	made := []identity.Renewed{
		{Token: identity.Token{ID: "tok-2", Role: identity.Admin}, Instead: "tok-1", Secret: identity.SecretFrom("admin's"), File: true},
		{Token: identity.Token{ID: "tok-4", Role: identity.Worker}, Instead: "tok-3", Secret: identity.SecretFrom("worker's"), File: true},
		{Token: identity.Token{ID: "tok-6", Role: identity.Worker}, Instead: "tok-5", Secret: identity.SecretFrom("another's")},
	}
	got := Tokens(made, "tok-1", func(k identity.Token) api.Token { return api.Token{ID: k.ID} })
	if len(got) != 3 || got[0].Secret != "admin's" || !got[0].Yours || got[1].Secret != "" || !got[1].File || got[1].Yours || got[2].Secret != "another's" {
		t.Errorf("%+v", got)
	}
}
