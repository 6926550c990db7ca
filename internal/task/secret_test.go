package task

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestSecretPrintsSealed(t *testing.T) {
	const value = "REALVALUE-0123456789"
	s := NewSecret(value)
	in := struct {
		S Secret
		s Secret
		p *Secret
	}{s, s, &s}
	var b strings.Builder
	for _, h := range []slog.Handler{slog.NewJSONHandler(&b, nil), slog.NewTextHandler(&b, nil)} {
		slog.New(h).Info("x", "s", s, "p", &s, "in", in, "map", map[string]any{"s": s}, "list", []Secret{s})
	}
	for _, v := range []any{s, &s, in, &in, map[string]Secret{"a": s}, map[Secret]int{s: 1}, []Secret{s}, CredentialRequest{Value: s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&b, verb, v)
		}
		j, err := json.Marshal(v)
		if err != nil && !strings.Contains(err.Error(), "unsupported") {
			t.Error(err)
		}
		b.Write(j)
	}
	fmt.Fprint(&b, fmt.Errorf("of %v", s))
	all := strings.ToLower(b.String())
	for _, leak := range []string{value, fmt.Sprintf("%x", value)} {
		if strings.Contains(all, strings.ToLower(leak)) {
			t.Errorf("printed: %s", b.String())
		}
	}
	if !strings.Contains(all, "[sealed]") || s.Reveal() != value || (Secret{}).Reveal() != "" || !(Secret{}).Empty() || !NewSecret("").Empty() || s.Empty() {
		t.Errorf("a secret does not hold its value: %s", b.String())
	}
}

func TestCredentialUsableBy(t *testing.T) {
	now := Credential{}.Created
	for _, c := range []struct {
		c    Credential
		who  string
		want bool
	}{
		{Credential{}, "", false},
		{Credential{}, "alice", false},
		{Credential{Owner: "alice"}, "alice", true},
		{Credential{Owner: "bob"}, "alice", false},
		{Credential{Owner: "bob", Shared: true}, "alice", true},
		{Credential{Owner: "alice", Revoked: &now}, "alice", false},
		{Credential{Shared: true}, "", false},
	} {
		if got := c.c.UsableBy(c.who); got != c.want {
			t.Errorf("%+v by %q: %v", c.c, c.who, got)
		}
	}
	if (Lent{}).Active() {
		t.Error("the zero lease is active")
	}
}
