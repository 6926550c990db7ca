package login_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/credential/login"
	"github.com/cofferdam/cofferdam/internal/credential/provider"
	"github.com/cofferdam/cofferdam/internal/task"
)

// site is a vendor's authorization server: it takes each refresh token once, and
// misbehaves on demand.
type site struct {
	*httptest.Server

	mu      sync.Mutex
	refresh string // the one that is good
	asked   int
	given   int
	life    time.Duration
	jwt     bool // access tokens say when they are over, and the answer does not
	keeps   bool // the refresh token stays
	fault   func(w http.ResponseWriter, n int) bool
	wrong   []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{refresh: "rt-REALVALUE-0", life: 8 * time.Hour}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	var q map[string]string
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "no", http.StatusTeapot)
		return
	}
	s.mu.Lock()
	s.asked++
	n, fault := s.asked, s.fault
	if q["grant_type"] != "refresh_token" || q["client_id"] != "client-1" || r.Header.Get("Authorization") != "" {
		s.wrong = append(s.wrong, fmt.Sprint(q["grant_type"], q["client_id"]))
	}
	s.mu.Unlock()
	if fault != nil && fault(w, n) {
		return
	}
	status, body := s.grant(q["refresh_token"])
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

// grant uses a refresh token up.
func (s *site) grant(refresh string) (int, map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if refresh != s.refresh {
		return http.StatusUnauthorized, map[string]any{"error": "invalid_grant", "error_description": "Refresh token not found or invalid: " + refresh}
	}
	s.given++
	if !s.keeps {
		s.refresh = fmt.Sprintf("rt-REALVALUE-%d", s.given)
	}
	out := map[string]any{"access_token": s.access(time.Now().Add(s.life)), "token_type": "Bearer"}
	if !s.keeps {
		out["refresh_token"] = s.refresh
	}
	if s.jwt {
		out["id_token"] = "id.REALVALUE." + fmt.Sprint(s.given)
	} else {
		out["expires_in"] = int(s.life / time.Second)
		out["scope"] = "user:inference user:profile"
	}
	return http.StatusOK, out
}

func (s *site) access(until time.Time) string {
	payload := fmt.Sprintf(`{"exp":%d,"n":%d}`, until.Unix(), s.given)
	return "h." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".REALVALUE"
}

// do changes the site.
func (s *site) do(change func(*site)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// count is how often it was asked, and gave.
func (s *site) count() (asked, given int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked, s.given
}

// kept is a vault of one value.
type kept struct {
	mu    sync.Mutex
	text  string
	fails int
}

func (k *kept) Newest(context.Context, task.Credential) (task.Secret, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return task.NewSecret(k.text), nil
}

func (k *kept) Renew(_ context.Context, _ task.Credential, value task.Secret) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails > 0 {
		k.fails--
		return task.Fail(task.InfraVault, "the disk is full", nil)
	}
	k.text = value.Reveal()
	return nil
}

// rig is a login in one place, and a minter.
type rig struct {
	*site
	t      *testing.T
	minter *login.Minter
	of     task.Credential
	vault  *kept
	file   string // empty: in the vault
}

// text is a login as the tool writes it, whose access token is over in a time.
func text(kind, refresh string, left time.Duration) string {
	until := time.Now().Add(left)
	if kind == task.KindClaudeLogin {
		return fmt.Sprintf(`{"claudeAiOauth":{"accessToken":"sk-ant-oat01-REALVALUE-old","refreshToken":%q,"expiresAt":%d,"scopes":["user:inference"],"subscriptionType":"max"},"mcpOAuth":{"x":1}}`,
			refresh, until.UnixMilli())
	}
	access := "h." + base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, until.Unix())) + ".REALVALUE-old"
	return fmt.Sprintf(`{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":"id.REALVALUE.0","access_token":%q,"refresh_token":%q,"account_id":"acc-1"},"last_refresh":"2026-01-01T00:00:00Z"}`,
		access, refresh)
}

// newRig makes a login whose access token is over in a time.
func newRig(t *testing.T, kind string, folder bool, left time.Duration) *rig {
	t.Helper()
	r := &rig{site: newSite(t), t: t, vault: &kept{}}
	r.of = task.Credential{ID: "c-1", Name: "mine", Kind: kind, Settings: map[string]string{"token_url": r.URL + "/token", "client_id": "client-1"}}
	r.jwt = kind == task.KindCodexLogin
	first := text(kind, r.refresh, left)
	if folder {
		r.file = filepath.Join(newFolder(t), fileOf(kind))
		r.of.Settings["dir"] = filepath.Dir(r.file)
		if err := os.WriteFile(r.file, []byte(first), 0o600); err != nil {
			t.Fatal(err)
		}
	} else {
		r.vault.text = first
	}
	r.minter = login.New(r.options())
	t.Cleanup(r.minter.Wait)
	return r
}

func (r *rig) options() login.Options {
	return login.Options{Vault: r.vault, Now: time.Now, Ask: provider.Provider{
		Via: r.Client().Transport, Now: time.Now, Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
	}}
}

// newFolder is a folder without links in its path, whose parent is its own.
func newFolder(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(dir, "tool")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func fileOf(kind string) string {
	if kind == task.KindCodexLogin {
		return "auth.json"
	}
	return ".credentials.json"
}

// now is the text as it is.
func (r *rig) now() string {
	r.t.Helper()
	if r.file == "" {
		v, _ := r.vault.Newest(r.t.Context(), r.of)
		return v.Reveal()
	}
	b, err := os.ReadFile(r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

func (r *rig) mint() (string, error) {
	made, err := r.minter.Mint(r.t.Context(), r.of, task.Secret{}, task.Lent{})
	if err == nil && made.Until.Before(time.Now()) {
		r.t.Errorf("lent until %s", made.Until)
	}
	return made.Value.Reveal(), err
}

// holds says whether the login has the vendor's refresh token.
func (r *rig) holds() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.now(), `"`+r.refresh+`"`)
}

// left lists what stands in the folder and beside it.
func (r *rig) left() []string {
	r.t.Helper()
	var names []string
	for _, dir := range []string{filepath.Dir(r.file), filepath.Dir(filepath.Dir(r.file))} {
		list, err := os.ReadDir(dir)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range list {
			names = append(names, e.Name())
		}
	}
	return names
}

func each(t *testing.T, left time.Duration, f func(t *testing.T, r *rig)) {
	t.Helper()
	for _, kind := range []string{task.KindClaudeLogin, task.KindCodexLogin} {
		for where, folder := range map[string]bool{"folder": true, "vault": false} {
			t.Run(kind+" in the "+where, func(t *testing.T) {
				t.Parallel()
				f(t, newRig(t, kind, folder, left))
			})
		}
	}
}
