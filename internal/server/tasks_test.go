package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

func tokenRequest(user string) api.TokenRequest {
	return api.TokenRequest{User: user, Role: api.RoleUser}
}

func code(err error) string {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// eventually polls until ok says so.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func TestIdempotency(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	req := api.TaskRequest{Repo: api.Repo{URL: "https://example.com/r.git"}, Agent: api.Agent{Name: "command", Argv: []string{"true"}}}
	first, created, err := s.as(t, "alice").CreateTask(ctx, req, "k1")
	if err != nil || !created || first.State != api.Queued || first.RequestedBy != "alice" {
		t.Fatalf("%+v %v %v", first, created, err)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			again, created, err := s.as(t, "alice").CreateTask(ctx, req, "k1")
			if err != nil || created || again.ID != first.ID {
				t.Errorf("%+v %v %v", again, created, err)
			}
		})
	}
	wg.Wait()
	other := req
	other.Verify = "false"
	if _, _, err := s.as(t, "alice").CreateTask(ctx, other, "k1"); code(err) != "input.conflict" {
		t.Errorf("another request under the key: %v", err)
	}
	if theirs, created, err := s.as(t, "bob").CreateTask(ctx, other, "k1"); err != nil || !created || theirs.ID == first.ID {
		t.Errorf("another user's key: %+v %v %v", theirs, created, err)
	}
	a, _, _ := s.as(t, "alice").CreateTask(ctx, req, "")
	b, _, _ := s.as(t, "alice").CreateTask(ctx, req, "")
	if a.ID == b.ID {
		t.Error("two requests without a key made one task")
	}
}

func TestTaskIsAcceptedWithoutAnEngine(t *testing.T) {
	s := newSite(t)
	s.engine.err = errors.New("engine away")
	tk := s.newTask(t, "alice")
	if len(s.engine.started) != 1 || s.engine.started[0] != tk.ID {
		t.Errorf("started %v", s.engine.started)
	}
	if err := s.as(t, "alice").CancelTask(t.Context(), tk.ID); err != nil || !s.cancels[tk.ID] || len(s.engine.canceled) != 1 {
		t.Errorf("%v %v %v", err, s.cancels, s.engine.canceled)
	}
	s.emit(tk.ID, 0, true)
	if err := s.as(t, "alice").CancelTask(t.Context(), tk.ID); err != nil || len(s.engine.canceled) != 1 {
		t.Errorf("cancel of an ended task: %v %v", err, s.engine.canceled)
	}
}

func TestTaskPages(t *testing.T) {
	s := newSite(t)
	var want []string
	for range 7 {
		want = append(want, s.newTask(t, "alice").ID)
		s.newTask(t, "bob")
	}
	slices.Reverse(want)
	var got []string
	before := ""
	for {
		l, err := s.as(t, "alice").Tasks(t.Context(), 3, before)
		if err != nil {
			t.Fatal(err)
		}
		for _, tk := range l.Tasks {
			got = append(got, tk.ID)
		}
		if before = l.Next; before == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBundles(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	for _, head := range []string{"# v2 git bundle\n", "# v3 git bundle\n"} {
		data := head + "0000 refs/heads/main\n\nPACK"
		blob, err := s.as(t, "alice").UploadBundle(ctx, strings.NewReader(data), int64(len(data)))
		if err != nil || blob.Size != int64(len(data)) || !strings.HasPrefix(blob.Digest, "sha256:") {
			t.Fatalf("%+v %v", blob, err)
		}
		if _, _, err := s.as(t, "alice").CreateTask(ctx, api.TaskRequest{Repo: api.Repo{Bundle: blob.Digest, Name: "/home/a/r"}, Agent: api.Agent{Name: "command", Argv: []string{"x"}}}, ""); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "#", "# v2 git bundl", "# v4 git bundle\n", "PK\x03\x04", "<html>"} {
		if _, err := s.as(t, "alice").UploadBundle(ctx, strings.NewReader(bad), int64(len(bad))); code(err) != "input.invalid" {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// What announces too much is refused before it is read.
	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.http.URL+"/v1/bundles", io.LimitReader(endless{}, maxBundle+1))
	req.ContentLength = maxBundle + 1
	req.Header.Set("Authorization", "Bearer "+s.tokens["alice"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestEventsResume(t *testing.T) {
	s := newSite(t)
	tk := s.newTask(t, "alice")
	s.emit(tk.ID, 600, false) // more than a batch
	var mu sync.Mutex
	var got []int64
	done := make(chan error, 1)
	go func() {
		done <- s.as(t, "alice").WatchTask(t.Context(), tk.ID, 0, func(e api.Event) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, e.Seq)
			if e.Type != "stage" || e.Task != tk.ID || !strings.Contains(string(e.Data), `"attempts":`+fmt.Sprint(e.Seq)) {
				t.Errorf("event %+v %s", e, e.Data)
			}
			return nil
		})
	}()
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	eventually(t, "600 events", func() bool { return count() == 600 })
	s.emit(tk.ID, 2, false)
	eventually(t, "602 events", func() bool { return count() == 602 })
	s.emit(tk.ID, 1, true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i, seq := range got {
		if seq != int64(i+1) {
			t.Fatalf("event %d has number %d", i, seq)
		}
	}
	if len(got) != 603 {
		t.Errorf("%d events", len(got))
	}
	// Resume by header and by parameter; the header wins.
	for _, c := range []struct{ path, last string }{{"?after=601", ""}, {"", "601"}, {"?after=5", "601"}} {
		_, _, text := s.ask(t, "alice", http.MethodGet, "/v1/tasks/"+tk.ID+"/events"+c.path, "", "Last-Event-ID", c.last)
		if strings.Contains(text, "id: 601\n") || !strings.Contains(text, "id: 602\n") || !strings.Contains(text, "id: 603\n") || !strings.HasSuffix(text, "event: end\ndata: {}\n\n") {
			t.Errorf("%+v: %q", c, text)
		}
	}
	if p := s.problem(t, "alice", http.MethodGet, "/v1/tasks/"+tk.ID+"/events", "", "Last-Event-ID", "x"); p.Code != "input.invalid" {
		t.Errorf("%+v", p)
	}
	stop := errors.New("enough")
	if err := s.as(t, "alice").WatchTask(t.Context(), tk.ID, 0, func(api.Event) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestLogs(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	tk := s.newTask(t, "alice")
	row, _ := s.Task(ctx, tk.ID)
	row.State, row.Attempt = task.Running, 2
	row.Stages = []task.Stage{{Name: task.Agent, State: task.StageRunning}}
	s.setTask(row)
	s.appendLog(tk.ID, 1, task.Agent, "first attempt")
	s.appendLog(tk.ID, 2, task.Agent, "hello ")
	var b bytes.Buffer
	n, err := s.as(t, "alice").FollowLogs(ctx, tk.ID, client.Log{}, &b)
	if err != nil || b.String() != "hello " || n != 6 {
		t.Fatalf("%q %d %v", b.String(), n, err)
	}
	b.Reset()
	if _, err := s.as(t, "alice").FollowLogs(ctx, tk.ID, client.Log{Attempt: 1, Offset: 6}, &b); err != nil || b.String() != "attempt" {
		t.Errorf("%q %v", b.String(), err)
	}
	var live safeBuffer
	done := make(chan error, 1)
	go func() {
		_, err := s.as(t, "alice").FollowLogs(ctx, tk.ID, client.Log{Stage: "agent", Follow: true, Offset: 1}, &live)
		done <- err
	}()
	eventually(t, "the log so far", func() bool { return live.String() == "ello " })
	s.appendLog(tk.ID, 2, task.Agent, "world")
	eventually(t, "what came later", func() bool { return live.String() == "ello world" })
	s.appendLog(tk.ID, 2, task.Agent, "!")
	row.Stages[0].State = task.StageFailed
	s.setTask(row)
	if err := <-done; err != nil || live.String() != "ello world!" {
		t.Errorf("%q %v", live.String(), err)
	}
	if _, err := s.as(t, "alice").FollowLogs(ctx, tk.ID, client.Log{Offset: 999}, io.Discard); code(err) != "input.invalid" {
		t.Errorf("beyond the end: %v", err)
	}
	if _, err := s.as(t, "alice").FollowLogs(ctx, tk.ID, client.Log{Stage: "../agent"}, io.Discard); code(err) != "input.invalid" {
		t.Errorf("unknown stage: %v", err)
	}
}

func TestOutputsAreHostile(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	tk := s.newTask(t, "alice")
	page := "<script>alert(1)</script>"
	d, n, err := blobs{s.memory}.Put(ctx, strings.NewReader(page), 1000)
	if err != nil {
		t.Fatal(err)
	}
	row, _ := s.Task(ctx, tk.ID)
	row.Outputs = []task.Output{
		{Name: "patch", Kind: "patch", Digest: d, Size: n},
		{Name: "x\r\nSet-Cookie: a=b\".html", Kind: "file", Digest: d, Size: n},
		{Name: "lying", Kind: "file", Digest: d, Size: n + 1},
	}
	s.setTask(row)
	body, blob, err := s.as(t, "alice").Output(ctx, tk.ID, "patch")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(body)
	body.Close()
	if err != nil || string(got) != page || blob.Digest != string(d) || blob.Size != n {
		t.Errorf("%q %+v %v", got, blob, err)
	}
	status, h, _ := s.ask(t, "alice", http.MethodGet, "/v1/tasks/"+tk.ID+"/outputs/x%0D%0ASet-Cookie%3A%20a=b%22.html", "")
	if status != 200 || h.Get("Content-Type") != "application/octet-stream" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Set-Cookie") != "" ||
		!strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || !strings.HasPrefix(h.Get("Digest"), "sha-256=") {
		t.Errorf("%d %v", status, h)
	}
	if body, _, err := s.as(t, "alice").Output(ctx, tk.ID, "lying"); err == nil {
		if _, err := io.ReadAll(body); err == nil {
			t.Error("a short output was handed out as if complete")
		}
		body.Close()
	}
	if _, _, err := s.as(t, "alice").Output(ctx, tk.ID, "../../etc/passwd"); code(err) != "input.not_found" {
		t.Error(err)
	}
}

func TestReceiptEgressAndAudit(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	tk := s.newTask(t, "alice")
	if _, err := s.as(t, "alice").Receipt(ctx, tk.ID); code(err) != "input.conflict" {
		t.Errorf("receipt of a running task: %v", err)
	}
	s.emit(tk.ID, 1, true)
	if r, err := s.as(t, "alice").Receipt(ctx, tk.ID); err != nil || !strings.Contains(string(r), tk.ID) {
		t.Errorf("%s %v", r, err)
	}
	from := time.Now()
	for range 300 { // more than a page
		s.tell(tk.ID, "agent", task.AgentEvent{Type: "text", Time: from})
	}
	s.tell(tk.ID, "stage", task.Stage{Name: task.Agent, Sandbox: "sb-a", StartedAt: &from})
	s.tell(tk.ID, "agent", task.AgentEvent{Type: "call", Call: "1", Tool: "shell", Input: "npm ci", Time: from})
	s.tell(tk.ID, "egress", task.EgressRecord{
		Seq: 1, Sandbox: "sb-a", Stage: task.Agent, Name: "example.com", Port: 443, Verdict: "denied", Reason: task.PolicyDenied, Time: from,
		Method: "PUT", Path: "/x", Lease: "l-a", Status: 0, Request: 1,
	})
	listed, err := s.as(t, "alice").Egress(ctx, tk.ID)
	if err != nil || len(listed) != 1 || listed[0].Reason != "policy.denied" || listed[0].Method != "PUT" || listed[0].Lease != "l-a" ||
		!slices.Equal(listed[0].Commands, []string{"agent", "shell npm ci"}) {
		t.Errorf("%+v %v", listed, err)
	}
	var streamed []api.EgressRecord
	err = s.as(t, "alice").WatchTask(ctx, tk.ID, 303, func(e api.Event) error {
		var r api.EgressRecord
		if e.Type == "egress" {
			if err := json.Unmarshal(e.Data, &r); err != nil {
				return err
			}
			streamed = append(streamed, r)
		}
		return nil
	})
	if err != nil || len(streamed) != 1 || !slices.Equal(streamed[0].Commands, listed[0].Commands) {
		t.Errorf("streamed: %+v %v", streamed, err)
	}
	var b bytes.Buffer
	if err := s.as(t, "admin").AuditExport(ctx, &b); err != nil || strings.Count(b.String(), "\n") != 2 {
		t.Errorf("%q %v", b.String(), err)
	}
	if k, err := s.as(t, "alice").AuditKey(ctx); err != nil || k.Key == "" || k.Note == "" {
		t.Errorf("%+v %v", k, err)
	}
}

func TestTokens(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	admin := s.as(t, "admin")
	tok, err := admin.CreateToken(ctx, api.TokenRequest{User: "carol", Role: api.RoleUser, ExpireDays: 3, Note: "laptop"})
	if err != nil || !strings.HasPrefix(tok.Secret, "cfd_") || tok.ExpiresAt == nil {
		t.Fatalf("%v", err)
	}
	s.tokens["carol"] = tok.Secret
	if _, err := s.as(t, "carol").Tasks(ctx, 0, ""); err != nil {
		t.Error(err)
	}
	list, err := admin.Tokens(ctx)
	if err != nil || len(list) != 6 {
		t.Errorf("%v %v", list, err)
	}
	for _, l := range list {
		if l.Secret != "" {
			t.Error("a list holds a secret")
		}
	}
	if err := admin.RemoveToken(ctx, tok.ID); err != nil {
		t.Error(err)
	}
	if _, err := s.as(t, "carol").Tasks(ctx, 0, ""); code(err) != "input.unauthorized" {
		t.Errorf("after revocation: %v", err)
	}
	if err := admin.RemoveToken(ctx, tok.ID); code(err) != "input.not_found" {
		t.Error(err)
	}
	for _, bad := range []api.TokenRequest{{User: "x", Role: "root"}, {Role: "user"}, {User: "a b", Role: "user"}} {
		if _, err := admin.CreateToken(ctx, bad); code(err) != "input.invalid" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if !slices.Contains(s.records, "token.create/"+tok.ID) || !slices.Contains(s.records, "token.remove/"+tok.ID) {
		t.Errorf("the account has %v", s.records)
	}
}

func TestDoctorAndWorkers(t *testing.T) {
	s := newSite(t)
	ctx := t.Context()
	s.server.dataDir = t.TempDir()
	s.server.need.Probes = []Probe{{ID: "store", Ask: func(context.Context) error { return nil }, OK: "fine", Fix: "restore it"}}
	d, err := s.as(t, "alice").Doctor(ctx)
	if err != nil || !d.OK || len(d.Checks) != 5 {
		t.Errorf("%+v %v", d, err)
	}
	s.server.need.Probes = append(s.server.need.Probes, Probe{ID: "engine", Ask: func(context.Context) error { return errors.New("dial hunter2") }, OK: "fine", Fix: "start it"})
	report := fleet.Report{Worker: s.fleet.Workers()[0]}
	report.Worker.Gateway = ""
	report.Doctor.Leftovers = []sandbox.Leftover{{Kind: "namespace", Name: "cfd-x"}}
	s.fleet.reports = []fleet.Report{report, {Worker: fleet.Worker{ID: "w2"}, Err: task.Fail(task.InfraWorkerLost, "worker w2 is not connected", nil)}}
	d, err = s.as(t, "alice").Doctor(ctx)
	if err != nil || d.OK {
		t.Fatalf("%+v %v", d, err)
	}
	outcome := map[string]string{}
	for _, c := range d.Checks {
		outcome[c.ID] = c.Outcome
		if strings.Contains(c.Text, "hunter2") {
			t.Errorf("%+v", c)
		}
	}
	for id, want := range map[string]string{"store": "ok", "engine": "failed", "gateway.w1": "failed", "worker.w1": "ok", "worker.w1.leftovers": "failed", "worker.w2": "failed"} {
		if outcome[id] != want {
			t.Errorf("%s is %q, want %q", id, outcome[id], want)
		}
	}
	if w, err := s.as(t, "alice").Workers(ctx); err != nil || len(w) != 1 || w[0].Gateway != "g1" {
		t.Errorf("%+v %v", w, err)
	}
	if h, err := s.as(t, "").Health(ctx); err != nil || h.Boot != "boot1" {
		t.Errorf("%+v %v", h, err)
	}
}
