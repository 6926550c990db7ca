package login_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/task"
)

// What lasts is lent as it is, and nobody is asked.
func TestWhatLastsIsLent(t *testing.T) {
	each(t, time.Hour, func(t *testing.T, r *rig) {
		before := r.now()
		value, err := r.mint()
		if asked, _ := r.count(); err != nil || asked > 0 || !strings.HasSuffix(value, "REALVALUE-old") || r.now() != before {
			t.Errorf("%v, asked %d times", err, asked)
		}
		if err := r.minter.Revoke(t.Context(), r.of, task.Secret{}, task.NewSecret(value)); !errors.Is(err, credential.ErrLasts) {
			t.Error(err)
		}
	})
}

// What is over is renewed: the rest of the text stays, the rotated refresh token is
// written before anything is lent, and the tool's folder has nothing more than before.
func TestWhatIsOverIsRenewed(t *testing.T) {
	each(t, time.Minute, func(t *testing.T, r *rig) {
		for i := range 3 {
			value, err := r.mint()
			if err != nil || !strings.HasPrefix(value, "h.") || !r.holds() {
				t.Fatalf("%d: %v, holds %v", i, err, r.holds())
			}
			if asked, given := r.count(); asked != 1 || given != 1 {
				t.Fatalf("%d: asked %d, given %d", i, asked, given)
			}
		}
		want := []string{`"subscriptionType":"max"`, `"mcpOAuth":{"x":1}`, `"user:profile"`}
		if r.of.Kind == task.KindCodexLogin {
			want = []string{`"auth_mode": "chatgpt"`, `"OPENAI_API_KEY": null`, `"account_id": "acc-1"`, `"id_token": "id.REALVALUE.1"`}
		}
		for _, w := range want {
			if !strings.Contains(r.now(), w) {
				t.Errorf("%s is gone from %s", w, r.now())
			}
		}
		if r.file != "" {
			if is, err := os.Stat(r.file); err != nil || is.Mode().Perm() != 0o600 {
				t.Errorf("%v %v", is.Mode(), err)
			}
			for _, name := range r.left() {
				if !slices.Contains([]string{".credentials.json", "auth.json", "auth.lock", "auth.json.lock", "tool"}, name) {
					t.Errorf("left %s", name)
				}
			}
		}
		if len(r.wrong) > 0 {
			t.Error(r.wrong)
		}
	})
}

// A vendor whose refresh tokens stay the same is no trouble.
func TestARefreshTokenThatStays(t *testing.T) {
	each(t, time.Minute, func(t *testing.T, r *rig) {
		r.do(func(s *site) { s.keeps, s.life = true, time.Minute })
		for range 2 {
			if _, err := r.mint(); err != nil || !r.holds() {
				t.Error(err)
			}
		}
		if asked, _ := r.count(); asked != 2 {
			t.Errorf("asked %d times", asked)
		}
	})
}

// Whatever a vendor does, the reason is the right one, no token is told, and the
// login stays as usable as it was.
func TestFaultsOfVendors(t *testing.T) {
	const json, refused, faulty = "application/json", task.PolicyCredential, task.InfraCredential
	says := func(status int, kind, text string, header ...string) func(http.ResponseWriter, int) bool {
		return func(w http.ResponseWriter, _ int) bool {
			w.Header().Set("Content-Type", kind)
			if len(header) == 2 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, text)
			return true
		}
	}
	const access = `{"access_token":"h.e30.REALVALUE-new",`
	for _, c := range []struct {
		name  string
		fault func(http.ResponseWriter, int) bool
		want  task.Reason
		text  string
		tries int
		after string // the refresh token that the login has then; empty: the old one
	}{
		{"invalid_grant", says(401, json, `{"error":"invalid_grant","error_description":"expired rt-REALVALUE-0"}`), refused, "invalid_grant: expired [sealed]; the login of", 1, ""},
		{"invalid_grant, 400", says(400, json, `{"error":"invalid_grant"}`), refused, "sign in again", 1, ""},
		{"an error in an object", says(401, json, `{"error":{"code":"refresh_token_reused","message":"used"}}`), refused, "refresh_token_reused used; the login of", 1, ""},
		{"a page", says(403, "text/html", `<html>blocked</html>`), refused, "sign in again", 1, ""},
		{"404", says(404, json, `{}`), refused, "refuses (404)", 1, ""},
		{"429", says(429, json, `{}`), faulty, "too often", 3, ""},
		{"429, an hour", says(429, json, `{}`, "Retry-After", "3600"), faulty, "too often", 1, ""},
		{"500", says(500, "text/plain", `down`), faulty, "answered 500", 3, ""},
		{"silence", func(http.ResponseWriter, int) bool { panic(http.ErrAbortHandler) }, faulty, "did not answer", 3, ""},
		{"a redirect", says(302, json, ``, "Location", "https://elsewhere.example/"), faulty, "answered 302", 1, ""},
		{"garbage", says(200, json, "\x00\xff{{"), faulty, "no use", 1, ""},
		{"a page of 200", says(200, "text/html", `<html>sign in</html>`), faulty, "no use", 1, ""},
		{"a flood", says(200, json, `{"x":"`+strings.Repeat("a", 1<<20)+`"}`), faulty, "256 KiB", 1, ""},
		{"no token", says(200, json, `{"token_type":"bearer","expires_in":3600}`), faulty, "an access token that is missing", 1, ""},
		{"a line break", says(200, json, `{"access_token":"REALVALUE\r\nHost: evil","expires_in":3600}`), faulty, "a character that none has", 1, ""},
		{"a bad refresh token", says(200, json, access+`"refresh_token":"a b c d e f g h","expires_in":3600}`), faulty, "a refresh token that", 1, ""},
		{"no time", says(200, json, access+`"token_type":"bearer"}`), faulty, "how long it lasts", 1, ""},
		{"no time, rotated", says(200, json, access+`"refresh_token":"rt-REALVALUE-odd"}`), faulty, "how long it lasts", 1, "rt-REALVALUE-odd"},
		{"an absurd time", says(200, json, access+`"expires_in":-5,"refresh_token":"rt-REALVALUE-odd"}`), faulty, "absurd", 1, "rt-REALVALUE-odd"},
		{"no Bearer token", says(200, json, access+`"expires_in":3600,"token_type":"mac"}`), faulty, "no Bearer", 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			each(t, time.Minute, func(t *testing.T, r *rig) {
				r.do(func(s *site) { s.fault = c.fault })
				_, err := r.mint()
				if task.ReasonOf(err) != c.want || err == nil || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "REALVALUE") {
					t.Errorf("%v, want %s with %q", err, c.want, c.text)
				}
				if asked, _ := r.count(); asked != c.tries {
					t.Errorf("asked %d times", asked)
				}
				want := c.after
				if want == "" {
					want = "rt-REALVALUE-0"
				}
				if !strings.Contains(r.now(), `"`+want+`"`) {
					t.Errorf("the login is %s", r.now())
				}
				r.do(func(s *site) { s.fault, s.refresh = nil, want })
				if _, err := r.mint(); err != nil || !r.holds() {
					t.Errorf("then: %v", err)
				}
			})
		})
	}
}

// Many ask at once, and the vendor is asked once.
func TestManyAskAtOnce(t *testing.T) {
	each(t, time.Minute, func(t *testing.T, r *rig) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if value, err := r.mint(); err != nil || !strings.HasPrefix(value, "h.") {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if asked, given := r.count(); asked != 1 || given != 1 || !r.holds() {
			t.Errorf("asked %d, given %d", asked, given)
		}
	})
}

// A vendor that is slow is waited for behind who asked: its answer is not lost.
func TestASlowVendor(t *testing.T) {
	each(t, time.Minute, func(t *testing.T, r *rig) {
		asked, answer := make(chan struct{}), make(chan struct{})
		r.do(func(s *site) {
			s.fault = func(http.ResponseWriter, int) bool { close(asked); <-answer; return false }
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		if _, err := r.minter.Mint(ctx, r.of, task.Secret{}, task.Lent{}); task.ReasonOf(err) != task.InfraCredential {
			t.Errorf("gone: %v", err)
		}
		close(answer)
		if value, err := r.mint(); err != nil || !strings.HasPrefix(value, "h.") || !r.holds() {
			t.Errorf("then: %v", err)
		}
		if asked, given := r.count(); asked != 1 || given != 1 {
			t.Errorf("asked %d, given %d", asked, given)
		}
	})
}

// What can't be written back is not lent. It is kept, and written without another
// question as soon as that goes.
func TestWhatCantBeWritten(t *testing.T) {
	r := newRig(t, task.KindClaudeLogin, false, time.Minute)
	r.vault.fails = 2
	for range 2 {
		if value, err := r.mint(); task.ReasonOf(err) != task.InfraCredential || value != "" || !strings.Contains(err.Error(), "can't be written back") {
			t.Errorf("%v", err)
		}
	}
	if value, err := r.mint(); err != nil || !strings.HasPrefix(value, "h.") || !r.holds() {
		t.Errorf("then: %v", err)
	}
	if asked, _ := r.count(); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// Somebody who signs in while something waits to be written is not overwritten.
func TestSomebodySignsInMeanwhile(t *testing.T) {
	r := newRig(t, task.KindClaudeLogin, false, time.Minute)
	r.vault.fails = 1
	if _, err := r.mint(); task.ReasonOf(err) != task.InfraCredential {
		t.Fatal(err)
	}
	r.vault.text = text(r.of.Kind, "rt-another", time.Hour)
	if value, err := r.mint(); err != nil || !strings.HasSuffix(value, "REALVALUE-old") || !strings.Contains(r.now(), "rt-another") {
		t.Errorf("%v: %s", err, r.now())
	}
}
