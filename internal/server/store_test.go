package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/store"
	"github.com/cofferdam/cofferdam/internal/task"
)

var (
	_ Tasks           = (*store.Store)(nil)
	_ Events          = (*store.Store)(nil)
	_ Owners          = (*store.Store)(nil)
	_ identity.Tokens = (*store.Store)(nil)
	_ Audit           = (*audit.Log)(nil)
)

// withStore is a site whose rows and account are the real ones.
func withStore(t *testing.T) (*site, *store.Store) {
	t.Helper()
	ctx := t.Context()
	db, err := store.Open(ctx, store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	key, err := audit.NewKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log, err := audit.Open(ctx, audit.Options{Store: db.Audit(), Key: key})
	if err != nil {
		t.Fatal(err)
	}
	ids := identity.New(db, time.Now)
	secrets := map[string]string{}
	for user, role := range map[string]identity.Role{"alice": identity.User, "bob": identity.User, "admin": identity.Admin} {
		_, secret, err := ids.Issue(ctx, identity.Request{User: user, Role: role})
		if err != nil {
			t.Fatal(err)
		}
		secrets[user] = secret.Reveal()
	}
	s := newSiteWith(t, func(o *Options) {
		o.Identities, o.AuditKeys = ids, func() (string, []string) { return key.Public(), nil }
		o.Needs.Tasks, o.Needs.Events, o.Needs.Owners, o.Needs.Audit = db, db, db, log
	})
	s.tokens = secrets
	return s, db
}

func TestOverTheRealStore(t *testing.T) {
	s, db := withStore(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	alice := s.as(t, "alice")
	req := api.TaskRequest{Repo: api.Repo{URL: "https://example.com/r.git", Ref: "main"}, Agent: api.Agent{Name: "command", Argv: []string{"true"}}, Policy: "allow example.com"}
	tk, created, err := alice.CreateTask(ctx, req, "k")
	if err != nil || !created || tk.State != api.Queued || len(tk.Stages) != 9 || tk.Ref != "main" || tk.PolicyDigest == "" {
		t.Fatalf("%+v %v %v", tk, created, err)
	}
	if again, created, err := alice.CreateTask(ctx, req, "k"); err != nil || created || again.ID != tk.ID {
		t.Errorf("%+v %v %v", again, created, err)
	}
	req.Verify = "x"
	if _, _, err := alice.CreateTask(ctx, req, "k"); code(err) != "input.conflict" {
		t.Error(err)
	}
	if _, err := s.as(t, "bob").Task(ctx, tk.ID); code(err) != "input.not_found" {
		t.Error(err)
	}

	var types []string
	var last int64
	watched := make(chan error, 1)
	go func() {
		watched <- alice.WatchTask(ctx, tk.ID, 0, func(e api.Event) error {
			types, last = append(types, e.Type), last+1
			if e.Seq != last || len(e.Data) < 3 {
				return errors.New("a gap or an empty event")
			}
			return nil
		})
	}()
	followed := make(chan error, 1)
	var text safeBuffer
	go func() {
		_, err := alice.FollowLogs(ctx, tk.ID, client.Log{Stage: "setup", Attempt: 1, Follow: true}, &text)
		followed <- err
	}()
	move := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	now := time.Now()
	move(db.SetTask(ctx, tk.ID, stage.TaskUpdate{State: task.Running, Attempt: 1}))
	move(db.SetStage(ctx, tk.ID, 1, task.Stage{Name: task.Setup, State: task.StageRunning, StartedAt: &now}))
	box := "sb-ssssssssssssssss"
	move(db.AddSandbox(ctx, tk.ID, sandbox.Spec{ID: box, Task: tk.ID, Role: "agent"}))
	w, err := db.Log(ctx, tk.ID, 1, task.Setup)
	move(err)
	_, err = w.Write([]byte("setting up\n"))
	move(err)
	move(db.AddEgress(ctx, tk.ID, []task.EgressRecord{{Seq: 1, Conn: 1, Sandbox: box, Name: "evil.example", Port: 443, Verdict: "denied", Reason: task.PolicyDenied, Time: now}}))
	move(db.AddAgentEvent(ctx, tk.ID, "1/1/usage", task.AgentEvent{Type: "usage", Usage: &task.ModelUsage{Requests: 1, Input: 7}}))
	move(db.AddAgentEvent(ctx, tk.ID, "1/1/call", task.AgentEvent{Type: "call", Call: "1/1", Tool: "shell", Input: "{}"}))
	move(w.Close())
	eventually(t, "the log", func() bool { return text.String() == "setting up\n" })
	move(db.SetStage(ctx, tk.ID, 1, task.Stage{Name: task.Setup, State: task.StageFailed, Reason: task.SetupFailed, StartedAt: &now, EndedAt: &now}))
	if err := <-followed; err != nil {
		t.Error(err)
	}
	if _, err := alice.Receipt(ctx, tk.ID); code(err) != "input.conflict" {
		t.Errorf("receipt of a running task: %v", err)
	}
	if _, _, err := s.fleet.Create(ctx, sandbox.Spec{ID: box, Task: tk.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.Exec(ctx, box, api.ExecRequest{Argv: []string{"id"}}); code(err) != "policy.denied" {
		t.Errorf("exec in a task's sandbox: %v", err)
	}
	if _, err := alice.CreateSandbox(ctx, api.SandboxRequest{ID: box}); code(err) != "input.conflict" {
		t.Errorf("claim of a task's sandbox: %v", err)
	}
	move(alice.CancelTask(ctx, tk.ID))
	move(db.SetTask(ctx, tk.ID, stage.TaskUpdate{State: task.Failed, Reason: task.SetupFailed, Text: "npm failed"}))
	if err := <-watched; err != nil {
		t.Error(err)
	}
	if all := strings.Join(types, " "); !strings.Contains(all, "stage") || !strings.Contains(all, "egress") || types[len(types)-1] != "task" {
		t.Errorf("events %s", all)
	}
	if got, err := alice.Task(ctx, tk.ID); err != nil || got.State != api.Failed || got.Reason != "setup.failed" || got.Usage.EgressDenied != 1 || got.EndedAt == nil {
		t.Errorf("%+v %v", got, err)
	}
	if e, err := alice.Egress(ctx, tk.ID); err != nil || len(e) != 1 {
		t.Errorf("%+v %v", e, err)
	}
	if e, err := alice.AgentEvents(ctx, tk.ID, 0); err != nil || len(e.Events) != 2 || e.Events[1].Tool != "shell" || e.More {
		t.Errorf("%+v %v", e, err)
	} else if rest, err := alice.AgentEvents(ctx, tk.ID, e.Next); err != nil || len(rest.Events) != 0 {
		t.Errorf("%+v %v", rest, err)
	}
	if got, err := alice.Task(ctx, tk.ID); err != nil || got.Usage.Model.Input != 7 {
		t.Errorf("%+v %v", got.Usage, err)
	}
	checkAccount(ctx, t, s, tk.ID)
}

// checkAccount verifies what the API hands out with the key it hands out.
func checkAccount(ctx context.Context, t *testing.T, s *site, id string) {
	t.Helper()
	key, err := s.as(t, "alice").AuditKey(ctx)
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := s.as(t, "alice").Receipt(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := audit.VerifyReceipt(key.Key, receipt); err != nil || !r.OK() {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := s.as(t, "alice").CreateSandbox(ctx, api.SandboxRequest{}); err != nil {
		t.Fatal(err)
	}
	tok, err := s.as(t, "admin").CreateToken(ctx, api.TokenRequest{User: "carol", Role: api.RoleWorker})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.as(t, "admin").RemoveToken(ctx, tok.ID); err != nil {
		t.Fatal(err)
	}
	var export safeBuffer
	if err := s.as(t, "admin").AuditExport(ctx, &export); err != nil {
		t.Fatal(err)
	}
	text := export.String()
	if r, err := audit.VerifyLog(key.Key, strings.NewReader(text), audit.VerifyOptions{}); err != nil || !r.OK() {
		t.Errorf("%+v %v", r, err)
	}
	for _, kind := range []string{"sandbox.create", "token.create", "token.remove"} {
		if !strings.Contains(text, `"kind":"`+kind+`"`) {
			t.Errorf("the account has no %s", kind)
		}
	}
	if strings.Contains(text, tok.Secret) {
		t.Error("the account holds a secret")
	}
}
