package server

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

const realValue = "sk-real-value-0123456789"

// A user sees the own credentials and the shared ones, ends the own ones only,
// and no answer and no log holds a value.
func TestCredentialsOfOthersDoNotExist(t *testing.T) {
	s := newSite(t)
	add := func(name, owner string, shared string) {
		t.Helper()
		body := `{"name":"` + name + `","owner":"` + owner + `","shared":` + shared + `,"header":"X-Key","hosts":["api.example"],"ports":[443],"value":"` + realValue + `"}`
		if status, _, text := s.ask(t, "admin", http.MethodPost, "/v1/credentials", body); status != http.StatusCreated {
			t.Fatalf("%d %s", status, text)
		}
	}
	add("hers", "alice", "false")
	add("his", "bob", "false")
	add("everyones", "bob", "true")
	var said strings.Builder
	ask := func(caller, method, path string) (int, string) {
		status, _, text := s.ask(t, caller, method, path, "")
		said.WriteString(text)
		return status, text
	}
	for caller, want := range map[string][3]bool{"alice": {true, false, true}, "bob": {false, true, true}, "admin": {true, true, true}} {
		_, text := ask(caller, http.MethodGet, "/v1/credentials")
		for i, name := range []string{"hers", "his", "everyones"} {
			if got := strings.Contains(text, `"name":"`+name+`"`); got != want[i] {
				t.Errorf("%s sees %s: %v", caller, name, got)
			}
		}
	}
	for _, c := range []struct {
		caller, method, path string
		status               int
	}{
		{"alice", "POST", "/v1/credentials/his/revoke", 404},
		{"alice", "DELETE", "/v1/credentials/his", 404},
		{"alice", "DELETE", "/v1/credentials/none", 404},
		{"alice", "POST", "/v1/credentials/everyones/revoke", 403},
		{"alice", "POST", "/v1/credentials/hers/revoke", 200},
		{"bob", "DELETE", "/v1/credentials/everyones", 200},
		{"admin", "DELETE", "/v1/credentials/his", 200},
		{"alice", "POST", "/v1/credentials", 403},
	} {
		if got, text := ask(c.caller, c.method, c.path); got != c.status {
			t.Errorf("%s %s as %s: %d %s", c.method, c.path, c.caller, got, text)
		}
	}
	_, another := ask("alice", "DELETE", "/v1/credentials/his")
	_, unknown := ask("alice", "DELETE", "/v1/credentials/unk")
	if plain(another, "his") != plain(unknown, "unk") {
		t.Errorf("another's and none differ:\n%s\n%s", another, unknown)
	}
	if strings.Contains(said.String()+s.log.String(), realValue) {
		t.Error("a value was told")
	}
}

// plain takes the name and the request's id out of a problem.
func plain(text, name string) string {
	text, _, _ = strings.Cut(text, `,"request"`)
	return strings.ReplaceAll(text, name, "NAME")
}

func TestRefusedCredentialIsNotRepeated(t *testing.T) {
	s := newSite(t)
	for _, body := range []string{
		`{"name":"n","value":"` + realValue + `"}`, `{"name":"n","value":"` + realValue + `","extra":1}`, `{"name":7,"value":"` + realValue + `"}`,
		`{"name":"n","hosts":["h"],"value":"` + strings.Repeat(realValue, 1000) + `"}`, `{"value":"` + realValue + `"`, `{"value":["` + realValue + `"]}`,
	} {
		status, _, text := s.ask(t, "admin", http.MethodPost, "/v1/credentials", body)
		if status < 400 || strings.Contains(text, realValue) {
			t.Errorf("%.60s: %d %s", body, status, text)
		}
	}
	if strings.Contains(s.log.String(), realValue) {
		t.Error("the log has the value")
	}
}

func TestLend(t *testing.T) {
	s := newSite(t)
	const box, lease = "sb-aaaaaaaaaaaaaaaa", "l-aaaaaaaaaaaaaaaa"
	if _, _, text := s.ask(t, "admin", http.MethodPost, "/v1/credentials", `{"name":"k","hosts":["api.example"],"value":"`+realValue+`"}`); !strings.Contains(text, `"name":"k"`) {
		t.Fatal(text)
	}
	tk := s.newTask(t, "alice")
	s.vault.leases = []task.Lent{{Lease: task.Lease{ID: lease, Credential: "k"}, CredentialID: "c-k", Task: tk.ID, Sandbox: box, Stage: task.Agent}}
	lend := func(sandbox, lease string) (int, http.Header, string) {
		return s.ask(t, "gateway", http.MethodPost, "/v1/gateway/lend", `{"sandbox":"`+sandbox+`","lease":"`+lease+`"}`)
	}
	if status, _, text := lend(box, lease); status != http.StatusForbidden || !strings.Contains(text, "policy.credential") {
		t.Errorf("a sandbox that no machine has: %d %s", status, text)
	}
	s.vault.holder = map[string]string{box: "another-machine"}
	if status, _, text := lend(box, lease); status != http.StatusForbidden || strings.Contains(text, realValue) {
		t.Errorf("another machine's sandbox: %d %s", status, text)
	}
	s.vault.holder[box] = "gateway"
	status, header, text := lend(box, lease)
	if status != http.StatusOK || !strings.Contains(text, realValue) || !strings.Contains(text, `"seconds":60`) || header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v %s", status, header, text)
	}
	if status, _, _ := lend(box, "l-bbbbbbbbbbbbbbbb"); status != http.StatusForbidden {
		t.Errorf("another lease: %d", status)
	}
	shown, err := s.as(t, "alice").Task(t.Context(), tk.ID)
	if err != nil || len(shown.Leases) != 1 || shown.Leases[0].Credential != "k" || shown.Leases[0].Until != nil {
		t.Errorf("the task shows %+v, %v", shown.Leases, err)
	}
	// Cancelling ends it, and so does revoking; both withdraw it.
	if err := s.as(t, "alice").CancelTask(t.Context(), tk.ID); err != nil {
		t.Fatal(err)
	}
	if status, _, text := lend(box, lease); status != http.StatusForbidden || strings.Contains(text, realValue) {
		t.Errorf("after cancel: %d %s", status, text)
	}
	s.vault.leases[0].Until = nil
	_, _, text = s.ask(t, "admin", http.MethodPost, "/v1/credentials/k/revoke", "")
	if !strings.Contains(text, `"leases":1,"cut":true`) || len(s.vault.withdrawn) != 2 {
		t.Errorf("%s, withdrawn %v", text, s.vault.withdrawn)
	}
	if strings.Contains(s.log.String(), realValue) {
		t.Error("the log has the value")
	}
}

func TestLendingHasAPace(t *testing.T) {
	s := newSite(t)
	for range 1000 {
		status, _, text := s.ask(t, "gateway", http.MethodPost, "/v1/gateway/lend", `{"sandbox":"sb-x","lease":"l-x"}`)
		if status == http.StatusTooManyRequests {
			if !strings.Contains(text, string(task.LimitRequests)) {
				t.Error(text)
			}
			return
		}
		if status != http.StatusForbidden {
			t.Fatalf("%d %s", status, text)
		}
	}
	t.Error("a gateway may ask a thousand times at once")
}

func TestTaskThatNamesAForeignCredentialIsRefused(t *testing.T) {
	s := newSiteWith(t, func(o *Options) { o.Needs.Policies = lendingPolicy{} })
	if _, _, text := s.ask(t, "admin", http.MethodPost, "/v1/credentials", `{"name":"k","owner":"bob","hosts":["api.example"],"value":"`+realValue+`"}`); !strings.Contains(text, `"name":"k"`) {
		t.Fatal(text)
	}
	request := api.TaskRequest{Repo: api.Repo{URL: "https://example.com/r.git"}, Agent: api.Agent{Name: "command", Argv: []string{"true"}}}
	if _, err := s.as(t, "bob").CreateSandbox(t.Context(), api.SandboxRequest{}); err == nil || !strings.Contains(err.Error(), "agent.network.allow[0].credential") {
		t.Errorf("a sandbox without a task: %v", err)
	}
	for caller, ok := range map[string]bool{"alice": false, "bob": true} {
		_, _, err := s.as(t, caller).CreateTask(t.Context(), request, "")
		if ok != (err == nil) || !ok && !strings.Contains(err.Error(), "agent.network.allow[0].credential") {
			t.Errorf("%s: %v", caller, err)
		}
	}
}
