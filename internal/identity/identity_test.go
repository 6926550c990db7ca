package identity

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// memory keeps tokens in a slice.
type memory struct {
	rows   []Token
	broken error
}

func (m *memory) AddToken(_ context.Context, t Token) error { m.rows = append(m.rows, t); return nil }

func (m *memory) TokenByHash(_ context.Context, hash string) (Token, error) {
	if m.broken != nil {
		return Token{}, m.broken
	}
	for _, t := range m.rows {
		if t.Hash == hash {
			return t, nil
		}
	}
	return Token{}, task.Fail(task.InputNotFound, "no such token", nil)
}

func (m *memory) Tokens(context.Context) ([]Token, error) { return m.rows, nil }

func (m *memory) RemoveToken(_ context.Context, id string) error {
	for i, t := range m.rows {
		if t.ID == id {
			m.rows = append(m.rows[:i], m.rows[i+1:]...)
			return nil
		}
	}
	return task.Fail(task.InputNotFound, "no such token", nil)
}

func reason(err error) task.Reason {
	if f, ok := errors.AsType[*task.Failure](err); ok {
		return f.Reason
	}
	if err != nil {
		return "other"
	}
	return ""
}

func TestVerify(t *testing.T) {
	ctx := t.Context()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &memory{}
	ids := New(m, func() time.Time { return now })
	_, alice, err := ids.Issue(ctx, Request{User: "alice", Role: User})
	if err != nil {
		t.Fatal(err)
	}
	brief, soon, err := ids.Issue(ctx, Request{User: "bob", Role: Admin, TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ids.Verify(ctx, alice)
	if err != nil || p.User != "alice" || p.Role != User {
		t.Fatalf("got %+v, %v", p, err)
	}
	if _, err := ids.Verify(ctx, alice, Admin, Worker); reason(err) != task.PolicyDenied {
		t.Errorf("other role: %v", err)
	}
	text := alice.Reveal()
	flipped := text[:10] + string(text[10]^1) + text[11:]
	for _, bad := range []string{"", "cfd_", text[:len(text)-1], text + "A", flipped, strings.ToUpper(text), alice.hash(), "Bearer " + text, text + "\x00"} {
		if _, err := ids.Verify(ctx, SecretFrom(bad)); reason(err) != task.InputUnauthed {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ids.Verify(ctx, soon, Admin); err != nil {
		t.Error(err)
	}
	now = now.Add(time.Hour)
	if _, err := ids.Verify(ctx, soon); reason(err) != task.InputUnauthed {
		t.Errorf("expired: %v", err)
	}
	if err := ids.Remove(ctx, brief.ID); err != nil {
		t.Error(err)
	}
	if err := ids.Remove(ctx, brief.ID); reason(err) != task.InputNotFound {
		t.Errorf("removed twice: %v", err)
	}
	m.rows[0].Role = ""
	if _, err := ids.Verify(ctx, alice); reason(err) != task.InputUnauthed {
		t.Errorf("zero role: %v", err)
	}
	m.rows[0].Role = User
	m.broken = errors.New("disk")
	if _, err := ids.Verify(ctx, alice); err == nil {
		t.Error("a broken store let someone in")
	}
}

// A store that answers with another row than the one asked for lets nobody in.
type confused struct{ memory }

func (c *confused) TokenByHash(context.Context, string) (Token, error) { return c.rows[0], nil }

func TestVerifyComparesTheHash(t *testing.T) {
	c := &confused{}
	ids := New(c, time.Now)
	if _, _, err := ids.Issue(t.Context(), Request{User: "root", Role: Admin}); err != nil {
		t.Fatal(err)
	}
	if _, err := ids.Verify(t.Context(), NewSecret()); reason(err) != task.InputUnauthed {
		t.Errorf("got %v", err)
	}
}

func TestIssueRefuses(t *testing.T) {
	ids := New(&memory{}, time.Now)
	for _, r := range []Request{{}, {User: "a"}, {Role: User}, {User: "a", Role: "root"}, {User: strings.Repeat("a", 129), Role: User}, {User: "a", Role: User, TTL: -1}} {
		if _, _, err := ids.Issue(t.Context(), r); reason(err) != task.InputInvalid {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if _, err := ids.Enrol(t.Context(), Request{User: "a", Role: User}, SecretFrom("cfd_short")); reason(err) != task.InputInvalid {
		t.Errorf("weak secret: %v", err)
	}
}

func TestSecretPrintsSealed(t *testing.T) {
	s := NewSecret()
	var b strings.Builder
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "s", s, "in", struct{ S Secret }{s})
	slog.New(slog.NewTextHandler(&b, nil)).Info("x", "s", s, "in", struct{ S Secret }{s})
	j, err := json.Marshal(map[string]any{"s": s, "p": &s})
	if err != nil {
		t.Fatal(err)
	}
	b.Write(j)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&b, verb+verb+verb+verb, s, &s, struct{ S Secret }{s}, struct{ s Secret }{s})
	}
	if strings.Contains(b.String(), s.Reveal()) || strings.Contains(b.String(), s.Reveal()[4:]) {
		t.Errorf("the secret is in %s", b.String())
	}
}

func TestPrincipalMay(t *testing.T) {
	for _, c := range []struct {
		p     Principal
		owner string
		want  bool
	}{
		{Principal{}, "", false},
		{Principal{User: "a", Role: User}, "a", true},
		{Principal{User: "a", Role: User}, "b", false},
		{Principal{User: "", Role: User}, "", false},
		{Principal{User: "a", Role: Worker}, "a", false},
		{Principal{User: "a", Role: Admin}, "b", true},
	} {
		if got := c.p.May(c.owner); got != c.want {
			t.Errorf("%+v may %q: %v", c.p, c.owner, got)
		}
	}
}
