package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/credential"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	value = "sk-ant-api03-REALVALUE0123456789"
	box   = "sb-aaaaaaaaaaaaaaaa"
)

// rig is a desk over the real vault, the real database and the real audit. Where
// sandboxes are is told by a map, and what is withdrawn is noted.
type rig struct {
	dir   string
	store *store.Store
	audit *audit.Log
	desk  *Desk
	log   *safeBuffer
	lent  *credential.Leases

	mu        sync.Mutex
	holder    map[string]string
	lost      error
	withdrawn []string
	stuck     error
	now       time.Time
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (r *rig) Holds(_ context.Context, sandbox, subject string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost != nil {
		return false, r.lost
	}
	if r.holder[sandbox] == "" {
		return false, task.Fail(task.InputNotFound, "no sandbox", nil)
	}
	return r.holder[sandbox] == subject, nil
}

func (r *rig) Withdraw(_ context.Context, ended []task.Lent) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range ended {
		r.withdrawn = append(r.withdrawn, l.ID)
	}
	return r.stuck
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), log: &safeBuffer{}, holder: map[string]string{box: "worker"}, now: time.Now()}
	var err error
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if r.store, err = store.Open(t.Context(), store.Options{Dir: r.dir, Logger: log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.store.Close() })
	keys := filepath.Join(r.dir, "keys")
	key, err := audit.NewKey(keys)
	if err != nil {
		t.Fatal(err)
	}
	if r.audit, err = audit.Open(t.Context(), audit.Options{Store: r.store.Audit(), Key: key}); err != nil {
		t.Fatal(err)
	}
	v, err := credential.Open(t.Context(), keys, r.store, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r.lent = credential.NewLeases(v, r.store, r.audit, time.Now, credential.Minting{})
	r.desk, err = New(Options{Vault: r.lent, Leases: r.lent, Machines: r, Grants: r, Life: credential.Life, Now: func() time.Time { return r.now }, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func who(name string, role identity.Role) identity.Principal {
	return identity.Principal{User: name, Role: role, Token: "tok-" + name}
}

// lend makes a credential, a task of alice's and a lease of it.
func (r *rig) lend(t *testing.T) (task.Task, task.Lent) {
	t.Helper()
	_, err := r.desk.Add(t.Context(), who("root", identity.Admin), api.CredentialRequest{Name: "key", Owner: "alice", Provider: "anthropic", Value: value})
	if err != nil {
		t.Fatal(err)
	}
	tk, _, err := r.store.CreateTask(t.Context(), task.Task{RequestedBy: "alice"}, "")
	if err != nil {
		t.Fatal(err)
	}
	lent, err := r.lent.Lend(t.Context(), task.LeaseUse{Task: tk.ID, Attempt: 1, Stage: task.Agent, Sandbox: box, Who: "alice"},
		[]task.Rule{{ID: "agent.model", Host: "api.anthropic.com", Ports: []uint16{443}, Credential: "key"}})
	if err != nil {
		t.Fatal(err)
	}
	return tk, lent[0]
}

func wants(t *testing.T, err error, want task.Reason) {
	t.Helper()
	if task.ReasonOf(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err != nil && strings.Contains(err.Error(), "REALVALUE") {
		t.Errorf("the error holds the value: %v", err)
	}
}

func TestOnlyTheMachinesGatewayIsLent(t *testing.T) {
	r := newRig(t)
	_, lease := r.lend(t)
	ask := api.LendRequest{Sandbox: box, Lease: lease.ID}
	for _, p := range []identity.Principal{{}, who("worker", identity.Worker), who("worker", identity.Admin), who("worker", identity.User), who("", identity.Gateway)} {
		_, err := r.desk.Lend(t.Context(), p, ask)
		wants(t, err, task.PolicyDenied)
	}
	gateway := who("worker", identity.Gateway)
	for _, c := range []struct {
		p identity.Principal
		r api.LendRequest
	}{
		{who("another", identity.Gateway), ask},
		{gateway, api.LendRequest{Sandbox: box}},
		{gateway, api.LendRequest{Lease: lease.ID}},
		{gateway, api.LendRequest{}},
		{gateway, api.LendRequest{Sandbox: "sb-bbbbbbbbbbbbbbbb", Lease: lease.ID}},
		{gateway, api.LendRequest{Sandbox: box, Lease: "l-bbbbbbbbbbbbbbbb"}},
	} {
		_, err := r.desk.Lend(t.Context(), c.p, c.r)
		wants(t, err, task.PolicyCredential)
	}
	a, err := r.desk.Lend(t.Context(), gateway, ask)
	if err != nil || a.Value != value || a.Seconds != 60 || !a.ExpiresAt.Equal(r.now.Add(time.Minute)) {
		t.Errorf("lent %+v, %v", a, err)
	}
	r.lost = task.Fail(task.InfraWorkerLost, "away", nil)
	_, err = r.desk.Lend(t.Context(), gateway, ask)
	wants(t, err, task.InfraControlAway)
	r.lost = context.DeadlineExceeded
	_, err = r.desk.Lend(t.Context(), gateway, ask)
	wants(t, err, task.InfraControlAway)
}

func TestEndingWithdrawsAndTells(t *testing.T) {
	r := newRig(t)
	tk, lease := r.lend(t)
	r.stuck = errors.New("a machine is away")
	end, err := r.desk.End(t.Context(), who("alice", identity.User), "key", false)
	if err != nil || end.Leases != 1 || end.Cut || len(r.withdrawn) != 1 || r.withdrawn[0] != lease.ID {
		t.Errorf("ended %+v, withdrawn %v, %v", end, r.withdrawn, err)
	}
	// Nobody is asked again for what had ended.
	if err := r.desk.EndTask(t.Context(), tk.ID); err != nil || len(r.withdrawn) != 1 {
		t.Errorf("withdrawn %v, %v", r.withdrawn, err)
	}
	list, err := r.desk.Of(t.Context(), tk.ID)
	if err != nil || len(list) != 1 || list[0].Ended != task.EndedRevoked || list[0].Until == nil {
		t.Errorf("leases %+v, %v", list, err)
	}
	_, err = r.desk.Lend(t.Context(), who("worker", identity.Gateway), api.LendRequest{Sandbox: box, Lease: lease.ID})
	wants(t, err, task.PolicyCredential)
}

func TestCancelEndsWhatIsLent(t *testing.T) {
	r := newRig(t)
	tk, lease := r.lend(t)
	if err := r.desk.EndTask(t.Context(), tk.ID); err != nil || len(r.withdrawn) != 1 {
		t.Fatalf("withdrawn %v, %v", r.withdrawn, err)
	}
	_, err := r.desk.Lend(t.Context(), who("worker", identity.Gateway), api.LendRequest{Sandbox: box, Lease: lease.ID})
	wants(t, err, task.PolicyCredential)
}

// Whatever is done with a credential, its value is in no file of the control
// plane, in no answer but the gateway's, in no log, no error and no account.
func TestValueIsNowhere(t *testing.T) {
	r := newRig(t)
	admin, gateway := who("root", identity.Admin), who("worker", identity.Gateway)
	tk, lease := r.lend(t)
	var said strings.Builder
	note := func(v any, err error) {
		j, merr := json.Marshal(v)
		if merr != nil {
			t.Fatal(merr)
		}
		fmt.Fprintf(&said, "%s %v %+v %#v\n", j, err, v, v)
	}
	note(r.desk.Add(t.Context(), admin, api.CredentialRequest{Name: "key", Hosts: []string{"a.example"}, Value: value}))
	note(r.desk.Add(t.Context(), admin, api.CredentialRequest{Name: "other", Value: value}))
	note(r.desk.Add(t.Context(), admin, api.CredentialRequest{Name: "other", Hosts: []string{"a.example"}, Header: "Host", Value: value}))
	note(r.desk.Add(t.Context(), admin, api.CredentialRequest{Name: "other", Hosts: []string{"a.example"}, Value: value + "\r\nX: y"}))
	for range 2 {
		if a, err := r.desk.Lend(t.Context(), gateway, api.LendRequest{Sandbox: box, Lease: lease.ID}); err != nil || a.Value != value {
			t.Fatalf("not lent: %v", err)
		}
	}
	note(r.desk.List(t.Context(), admin))
	note(r.desk.Of(t.Context(), tk.ID))
	note(r.lent.Of(t.Context(), tk.ID))
	valueNowhere(t, r.dir) // while it is there
	note(r.desk.End(t.Context(), admin, "key", false))
	note(r.desk.Lend(t.Context(), gateway, api.LendRequest{Sandbox: box, Lease: lease.ID}))
	note(r.desk.End(t.Context(), admin, "key", true))
	var export bytes.Buffer
	if err := r.audit.Export(t.Context(), &export); err != nil {
		t.Fatal(err)
	}
	for kind, n := range map[string]int{"add": 1, "lent": 1, "given": 1, "ended": 1, "revoke": 1, "remove": 1} {
		if got := strings.Count(export.String(), `"kind":"credential.`+kind+`"`); got != n {
			t.Errorf("%d records of credential.%s", got, kind)
		}
	}
	for what, text := range map[string]string{"an answer": said.String(), "the account": export.String(), "the log": r.log.String()} {
		if strings.Contains(text, "REALVALUE") {
			t.Errorf("%s has the value:\n%s", what, text)
		}
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	valueNowhere(t, r.dir)
}

func valueNowhere(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte("REALVALUE")) {
			t.Errorf("%s has the value", path)
		}
		files++
		return err
	})
	if err != nil || files < 3 {
		t.Errorf("looked into %d files, %v", files, err)
	}
}

// gives answers with one value, whatever is asked for.
type gives struct {
	Leases
	given task.Given
	err   error
}

func (g gives) Value(context.Context, string, string) (task.Given, error) { return g.given, g.err }

// What is minted is kept for what is left of it, and what is for one request not
// at all; a provider that fails is told as that.
func TestLendTellsHowLongItMayBeKept(t *testing.T) {
	r := newRig(t)
	gateway := who("worker", identity.Gateway)
	for _, c := range []struct {
		given   task.Given
		err     error
		seconds int
		once    bool
		want    task.Reason
	}{
		{given: task.Given{Value: task.NewSecret(value), Keep: time.Hour}, seconds: 60},
		{given: task.Given{Value: task.NewSecret(value), Keep: 17 * time.Second}, seconds: 17},
		{given: task.Given{Value: task.NewSecret(value), Once: true}, once: true},
		{err: task.Fail(task.InfraCredential, "down", nil), want: task.InfraCredential},
	} {
		r.desk.Leases = gives{r.lent, c.given, c.err}
		a, err := r.desk.Lend(t.Context(), gateway, api.LendRequest{Sandbox: box, Lease: "l-aaaaaaaaaaaaaaaa"})
		if task.ReasonOf(err) != c.want || a.Seconds != c.seconds || a.Once != c.once || err == nil && a.Value != value {
			t.Errorf("%+v: %+v, %v", c.given, a, err)
		}
	}
}
