package issuer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	issuerURL = "https://issuer.example"
	audience  = "sts.amazonaws.com"
	taskID    = "t-aaaaaaaaaaaaaaaa"
	box       = "sb-aaaaaaaaaaaaaaaa"
)

// rig is an issuer with a clock, one task and a record of what was recorded.
type rig struct {
	t     *testing.T
	dir   string
	o     Options
	i     *Issuer
	mu    sync.Mutex
	now   time.Time
	task  task.Task
	facts []minted
	kinds []string
	fails error
}

func (r *rig) Task(_ context.Context, id string) (task.Task, error) {
	if id != r.task.ID {
		return task.Task{}, task.Fail(task.InputNotFound, "no task", nil)
	}
	return r.task, nil
}

func (r *rig) SandboxWorker(context.Context, string) (string, error) { return "w-1", nil }

func (r *rig) Record(_ context.Context, taskID, key, kind, seenBy string, facts any) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fails != nil {
		return r.fails
	}
	r.kinds = append(r.kinds, kind)
	if m, ok := facts.(minted); ok {
		if taskID != m.Task || key != "identity.minted/"+m.ID || seenBy != "control plane" {
			r.t.Errorf("recorded as %s %s %s", taskID, key, seenBy)
		}
		r.facts = append(r.facts, m)
	}
	return nil
}

func (r *rig) tick() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.now
}

func (r *rig) sleep(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(d)
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), task: task.Task{
		ID: taskID, State: task.Running, RequestedBy: "alice", Commit: "c0ffee", PolicyDigest: "sha256:00", Worker: "w-1",
		Spec: task.Spec{
			Project: "shop", Repo: task.Repo{URL: "https://Forge.example/team/app.git", Ref: "main"}, Agent: task.AgentSpec{Name: "claude"},
		},
	}}
	r.o = Options{URL: issuerURL, Dir: r.dir, Runs: r, Audit: r, Now: r.tick}
	r.open()
	return r
}

// open opens the issuer, as a restarted control plane does.
func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.i, err = Open(r.o); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) file() string { return filepath.Join(r.dir, "identity.json") }

func lease(visible bool) task.Lent {
	id := task.Identity{Audience: audience, Visible: visible}
	settings := map[string]string{task.SettingAudience: audience, task.SettingVisible: "false"}
	if visible {
		settings[task.SettingVisible] = "true"
	}
	return task.Lent{
		Lease: task.Lease{ID: "l-aaaaaaaaaaaaaaaa", Credential: id.Name(), Kind: task.KindOIDC, Settings: settings},
		Task:  taskID, Attempt: 2, Stage: task.Agent, Sandbox: box, Count: 1,
	}
}

func (r *rig) token() string {
	r.t.Helper()
	s, err := r.i.Token(r.t.Context(), lease(true), audience)
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Reveal()
}

// party is a relying party that knows the issuer by an https host of its own,
// whose clock is off by skew.
type party struct {
	client *http.Client
	r      *rig
	skew   time.Duration
	fresh  oidc.KeySet // nil: as it looks the keys up itself
}

// serve publishes what h has under the issuer's name.
func serve(t *testing.T, r *rig, h http.Handler) party {
	t.Helper()
	far := httptest.NewTLSServer(h)
	t.Cleanup(far.Close)
	pool := x509.NewCertPool()
	pool.AddCert(far.Certificate())
	return party{r: r, client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, far.Listener.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com"},
	}}}
}

// live serves the documents as the issuer has them at the moment.
func live(r *rig) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, v any, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(v)
	}
	mux.HandleFunc(DiscoveryPath, func(w http.ResponseWriter, _ *http.Request) { d, err := r.i.Discovery(); answer(w, d, err) })
	mux.HandleFunc(KeysPath, func(w http.ResponseWriter, _ *http.Request) { k, err := r.i.KeySet(); answer(w, k, err) })
	return mux
}

// accepts has go-oidc judge a token.
func (p party) accepts(token, audience string) error {
	ctx := oidc.ClientContext(context.Background(), p.client)
	provider, err := oidc.NewProvider(ctx, issuerURL)
	if err != nil {
		return err
	}
	v := provider.Verifier(&oidc.Config{ClientID: audience, Now: func() time.Time { return p.r.tick().Add(p.skew) }})
	_, err = v.Verify(ctx, token)
	return err
}

func wants(t *testing.T, err error, reason task.Reason, text string) {
	t.Helper()
	if task.ReasonOf(err) != reason || err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s and %q", err, reason, text)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
