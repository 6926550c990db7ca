package claude_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/login/claude"
	"github.com/cofferdam/cofferdam/internal/credential/login/tokens"
	"github.com/cofferdam/cofferdam/internal/task"
)

// FuzzLogin: what is read can be written, and is read again as it was written;
// what the tool keeps besides stays.
func FuzzLogin(f *testing.F) {
	for _, text := range []string{
		`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-aaaaaaaa","refreshToken":"sk-ant-ort01-bbbbbbbb","expiresAt":1796060877000,"scopes":["user:inference"],"subscriptionType":"max"},"mcpOAuth":{"x":1}}`,
		`{"claudeAiOauth":{"accessToken":"aaaaaaaa","refreshToken":"bbbbbbbb","expiresAt":null}}`,
		`{"claudeAiOauth":{"accessToken":"aaaaaaaa","refreshToken":"bbbbbbbb","expiresAt":-1,"scopes":[]}}`,
		`{"claudeAiOauth":{"accessToken":"a","accessToken":"aaaaaaaa","refreshToken":"bbbbbbbb","expiresAt":1e400}}`,
		`{"claudeAiOauth":null}`, `{}`, `[]`, ``, `{"claudeAiOauth":{"accessToken":{},"refreshToken":1}}`, `{"claudeAiOauth":{}}{}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := claude.Read(text); err != nil {
			return
		}
		want := tokens.Tokens{Access: task.NewSecret("access-token"), Refresh: task.NewSecret("refresh-token"), Until: time.UnixMilli(1796060877123), Scopes: []string{"a", "b"}}
		written, err := claude.Write(text, want, time.Now())
		if err != nil {
			t.Fatalf("what was read can't be written: %v", err)
		}
		got, err := claude.Read(written)
		if err != nil || got.Access.Reveal() != "access-token" || got.Refresh.Reveal() != "refresh-token" || !got.Until.Equal(want.Until) || len(got.Scopes) != 2 {
			t.Fatalf("%s: %v", written, err)
		}
		if again, err := claude.Write(written, want, time.Now()); err != nil || !bytes.Equal(again, written) {
			t.Fatalf("written twice it is another: %s, %s", written, again)
		}
	})
}
