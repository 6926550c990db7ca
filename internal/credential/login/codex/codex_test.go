package codex_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/login/codex"
	"github.com/cofferdam/cofferdam/internal/credential/login/tokens"
	"github.com/cofferdam/cofferdam/internal/task"
)

// FuzzLogin: what is read can be written, and is read again as it was written;
// what the tool keeps besides stays.
func FuzzLogin(f *testing.F) {
	for _, text := range []string{
		`{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":"a.b.c","access_token":"h.eyJleHAiOjE3OTYwNjA4Nzd9.s","refresh_token":"rt-aaaaaaaa","account_id":"acc-1"},"last_refresh":"2026-01-01T00:00:00Z"}`,
		`{"tokens":{"access_token":"h.!!!.s-aaaaaa","refresh_token":"rt-aaaaaaaa"}}`, `{"tokens":{"access_token":"opaque-token","refresh_token":"rt-aaaaaaaa"}}`,
		`{"tokens":{"access_token":"h.eyJleHAiOi0xfQ.s-aaaa","refresh_token":"rt-aaaaaaaa"}}`, `{"tokens":{"access_token":"h.eyJleHAiOiJ4In0.s-aaaa","refresh_token":"rt-aaaaaaaa"}}`,
		`{"OPENAI_API_KEY":"sk-x","tokens":null}`, `{"tokens":[]}`, `{}`, `[]`, ``, `{"tokens":{}}`,
	} {
		f.Add([]byte(text))
	}
	const access = "h.eyJleHAiOjE3OTYwNjA4Nzd9.s"
	f.Fuzz(func(t *testing.T, text []byte) {
		_ = codex.Account(text)
		if _, err := codex.Read(text); err != nil {
			return
		}
		now := time.Unix(1796060000, 0)
		want := tokens.Tokens{Access: task.NewSecret(access), Refresh: task.NewSecret("refresh-token"), ID: task.NewSecret("an-id-token")}
		written, err := codex.Write(text, want, now)
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		got, err := codex.Read(written)
		if err != nil || got.Access.Reveal() != access || got.Refresh.Reveal() != "refresh-token" || got.ID.Reveal() != "an-id-token" || got.Until.Unix() != 1796060877 {
			t.Fatalf("%s: %v", written, err)
		}
		if again, err := codex.Write(written, want, now); err != nil || !bytes.Equal(again, written) {
			t.Fatalf("written twice it is another: %s, %s", written, again)
		}
	})
}
