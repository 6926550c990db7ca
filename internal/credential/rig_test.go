package credential

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/task"
)

const realValue = "sk-ant-api03-REALVALUE0123456789abcdef"

// rig is a vault over a real database and a real audit.
type rig struct {
	t      *testing.T
	dir    string
	store  *store.Store
	audit  *audit.Log
	vault  *Vault
	leases *Leases
	log    *bytes.Buffer

	mu  sync.Mutex
	now time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir(), log: &bytes.Buffer{}, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	r.open()
	return r
}

// open opens everything, as a restarted control plane does.
func (r *rig) open() {
	r.t.Helper()
	var err error
	if r.store, err = store.Open(r.t.Context(), store.Options{Dir: r.dir, Logger: slog.New(slog.NewTextHandler(r.log, nil))}); err != nil {
		r.t.Fatal(err)
	}
	s := r.store
	r.t.Cleanup(func() { _ = s.Close() })
	key, err := audit.NewKey(r.keys())
	if err != nil {
		r.t.Fatal(err)
	}
	if r.audit, err = audit.Open(r.t.Context(), audit.Options{Store: r.store.Audit(), Key: key}); err != nil {
		r.t.Fatal(err)
	}
	if r.vault, err = Open(r.t.Context(), r.keys(), r.store, r.tick); err != nil {
		r.t.Fatal(err)
	}
	r.leases = NewLeases(r.vault, r.store, r.audit, r.tick, Minting{})
}

func (r *rig) keys() string {
	dir := filepath.Join(r.dir, "keys")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		r.t.Fatal(err)
	}
	return dir
}

func (r *rig) keyFile() string { return filepath.Join(r.keys(), "vault.key") }

// tick is a clock that never stands still.
func (r *rig) tick() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now = r.now.Add(time.Second)
	return r.now
}

// reopen is a restart with something changed meanwhile.
func (r *rig) reopen(change func()) {
	r.t.Helper()
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
	change()
	r.open()
}

// ask asks for a plain credential of alice.
func ask(name string) task.CredentialRequest {
	return task.CredentialRequest{
		Name: name, Owner: "alice", Header: "x-api-key", Hosts: []string{"api.example.com"}, Env: "API_KEY", Value: task.NewSecret(realValue),
	}
}

func (r *rig) add(change func(*task.CredentialRequest)) task.Credential {
	r.t.Helper()
	req := ask("key")
	if change != nil {
		change(&req)
	}
	c, err := r.leases.Add(r.t.Context(), req, "admin")
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) task(who string) task.Task {
	r.t.Helper()
	made, _, err := r.store.CreateTask(r.t.Context(), task.Task{RequestedBy: who}, "")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.store.SetTask(r.t.Context(), made.ID, stage.TaskUpdate{State: task.Running, Attempt: 1}); err != nil {
		r.t.Fatal(err)
	}
	return made
}

func use(tk task.Task, name task.StageName) task.LeaseUse {
	return task.LeaseUse{Task: tk.ID, Attempt: 1, Stage: name, Sandbox: "sb-" + tk.ID[2:], Who: tk.RequestedBy}
}

func rules(names ...string) []task.Rule {
	out := []task.Rule{{ID: "plain", Host: "plain.example", Ports: []uint16{443}}}
	for i, n := range names {
		out = append(out, task.Rule{ID: fmt.Sprintf("agent.network.allow[%d]", i), Host: "api.example.com", Ports: []uint16{443}, Credential: n})
	}
	return out
}

func (r *rig) lend(u task.LeaseUse, names ...string) []task.Lent {
	r.t.Helper()
	list, err := r.leases.Lend(r.t.Context(), u, rules(names...))
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

// export is the whole account.
func (r *rig) export() string {
	r.t.Helper()
	var b bytes.Buffer
	if err := r.audit.Export(context.WithoutCancel(r.t.Context()), &b); err != nil {
		r.t.Fatal(err)
	}
	return b.String()
}

// records counts the records of a kind.
func (r *rig) records(kind string) int {
	return strings.Count(r.export(), `"kind":"`+kind+`"`)
}

func wants(t *testing.T, err error, reason task.Reason, text string) {
	t.Helper()
	if task.ReasonOf(err) != reason || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("got %v, want %s and %q", err, reason, text)
	}
	if err != nil && strings.Contains(err.Error(), "REALVALUE") {
		t.Errorf("the error holds the value: %v", err)
	}
}
