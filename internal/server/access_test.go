package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/task"
)

// permissions says for every operation who gets past the door: no token, a bad
// one, a user, an admin, a worker, a gateway.
var permissions = map[string][6]bool{
	"health":            {true, true, true, true, true, true},
	"doctor":            {false, false, true, true, false, false},
	"list-workers":      {false, false, true, true, false, false},
	"export-audit":      {false, false, false, true, false, false},
	"audit-key":         {false, false, true, true, false, false},
	"create-token":      {false, false, false, true, false, false},
	"list-tokens":       {false, false, false, true, false, false},
	"remove-token":      {false, false, false, true, false, false},
	"upload-bundle":     {false, false, true, true, false, false},
	"create-task":       {false, false, true, true, false, false},
	"list-tasks":        {false, false, true, true, false, false},
	"get-task":          {false, false, true, true, false, false},
	"cancel-task":       {false, false, true, true, false, false},
	"watch-task":        {false, false, true, true, false, false},
	"read-log":          {false, false, true, true, false, false},
	"list-outputs":      {false, false, true, true, false, false},
	"remove-task":       {false, false, true, true, false, false},
	"get-output":        {false, false, true, true, false, false},
	"get-receipt":       {false, false, true, true, false, false},
	"agent-events":      {false, false, true, true, false, false},
	"list-egress":       {false, false, true, true, false, false},
	"list-file-denials": {false, false, true, true, false, false},
	"create-sandbox":    {false, false, true, true, false, false},
	"list-sandboxes":    {false, false, true, true, false, false},
	"get-sandbox":       {false, false, true, true, false, false},
	"remove-sandbox":    {false, false, true, true, false, false},
	"put-files":         {false, false, true, true, false, false},
	"get-files":         {false, false, true, true, false, false},
	"stat-file":         {false, false, true, true, false, false},
	"remove-file":       {false, false, true, true, false, false},
	"rename-file":       {false, false, true, true, false, false},
	"chmod-file":        {false, false, true, true, false, false},
	"list-folder":       {false, false, true, true, false, false},
	"make-folder":       {false, false, true, true, false, false},
	"read-file":         {false, false, true, true, false, false},
	"write-file":        {false, false, true, true, false, false},
	"exec":              {false, false, true, true, false, false},
	"get-command":       {false, false, true, true, false, false},
	"read-command":      {false, false, true, true, false, false},
	"list-commands":     {false, false, true, true, false, false},
	"write-input":       {false, false, true, true, false, false},
	"resize-terminal":   {false, false, true, true, false, false},
	"signal-command":    {false, false, true, true, false, false},
	"kill-command":      {false, false, true, true, false, false},
	"add-credential":    {false, false, false, true, false, false},
	"list-credentials":  {false, false, true, true, false, false},
	"revoke-credential": {false, false, true, true, false, false},
	"remove-credential": {false, false, true, true, false, false},
	"install-agent":     {false, false, false, true, false, false},
	"list-agents":       {false, false, true, true, false, false},
	"remove-agent":      {false, false, false, true, false, false},
	"explain-policy":    {false, false, true, true, false, false},
	"check-policy":      {false, false, true, true, false, false},
	"list-projects":     {false, false, true, true, false, false},
	"get-project":       {false, false, true, true, false, false},
	"set-project":       {false, false, false, true, false, false},
	"remove-project":    {false, false, false, true, false, false},
	"lend":              {false, false, false, false, false, true},
}

func TestPermissions(t *testing.T) {
	s := newSite(t)
	s.tokens["nobody"] = ""
	s.tokens["bad"] = identity.NewSecret().Reveal()
	callers := [6]string{"nobody", "bad", "alice", "admin", "worker", "gateway"}
	if len(s.server.door.Operations()) != len(permissions) {
		t.Errorf("%d operations, %d rows", len(s.server.door.Operations()), len(permissions))
	}
	for _, op := range s.server.door.Operations() {
		row, ok := permissions[op.ID]
		if !ok {
			t.Errorf("operation %s has no row in the permission table", op.ID)
			continue
		}
		path := strings.NewReplacer("{id}", "sb-aaaaaaaaaaaaaaaa", "{name}", "x", "{command}", "c1").Replace(op.Path)
		for i, caller := range callers {
			body := ""
			if op.Method == http.MethodPost {
				body = "{}"
			}
			status, _, text := s.ask(t, caller, op.Method, path, body)
			let := status != http.StatusUnauthorized && status != http.StatusForbidden
			if let != row[i] {
				t.Errorf("%s as %s: status %d, let in: %v, want %v", op.ID, caller, status, let, row[i])
			}
			if !let {
				want := task.InputUnauthed
				if i >= 2 {
					want = task.PolicyDenied
				}
				if !strings.Contains(text, `"code":"`+string(want)+`"`) {
					t.Errorf("%s as %s: %s", op.ID, caller, text)
				}
			}
		}
	}
	// Every path that is routed is an operation, the description or the tunnel.
	for caller, want := range map[string]int{"nobody": 401, "bad": 401, "alice": 403, "admin": 403, "gateway": 403, "worker": 200} {
		if got, _, _ := s.ask(t, caller, http.MethodPost, "/v1/worker/connect", ""); got != want {
			t.Errorf("tunnel as %s: %d, want %d", caller, got, want)
		}
	}
}

func TestZeroAccessRefusesEveryone(t *testing.T) {
	s := newSite(t)
	for _, tok := range s.tokens {
		if _, err := s.server.door.Verify(t.Context(), "Bearer "+tok, nil); err == nil {
			t.Error("the zero access let someone in")
		}
	}
}

func TestAnothersDoesNotExist(t *testing.T) {
	s := newSite(t)
	tk := s.newTask(t, "alice")
	sb, err := s.as(t, "alice").CreateSandbox(t.Context(), api.SandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	unknownTask, unknownBox := "t-zzzzzzzzzzzzzzzz", "sb-zzzzzzzzzzzzzzzz"
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/tasks/ID", ""},
		{"POST", "/v1/tasks/ID/cancel", ""},
		{"GET", "/v1/tasks/ID/events", ""},
		{"GET", "/v1/tasks/ID/logs", ""},
		{"GET", "/v1/tasks/ID/outputs/patch", ""},
		{"GET", "/v1/tasks/ID/receipt", ""},
		{"GET", "/v1/tasks/ID/egress", ""},
		{"GET", "/v1/tasks/ID/files", ""},
		{"GET", "/v1/sandboxes/ID", ""},
		{"DELETE", "/v1/sandboxes/ID", ""},
		{"POST", "/v1/sandboxes/ID/exec", `{"argv":["id"]}`},
		{"GET", "/v1/sandboxes/ID/exec/c1", ""},
		{"GET", "/v1/sandboxes/ID/exec/c1/output", ""},
		{"DELETE", "/v1/sandboxes/ID/exec/c1", ""},
		{"GET", "/v1/sandboxes/ID/files?path=/etc/passwd", ""},
		{"PUT", "/v1/sandboxes/ID/files?dir=/x", "x"},
	} {
		theirs, unknown := tk.ID, unknownTask
		if strings.Contains(c.path, "sandboxes") {
			theirs, unknown = sb.ID, unknownBox
		}
		a := s.problem(t, "bob", c.method, strings.Replace(c.path, "ID", theirs, 1), c.body)
		b := s.problem(t, "bob", c.method, strings.Replace(c.path, "ID", unknown, 1), c.body)
		if a.Status != 404 || a.Code != "input.not_found" || strings.Replace(a.Detail, theirs, unknown, 1) != b.Detail || a.Code != b.Code {
			t.Errorf("%s %s: another's %+v, unknown %+v", c.method, c.path, a, b)
		}
	}
	if list, err := s.as(t, "bob").Sandboxes(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("bob sees %v, %v", list, err)
	}
	if list, err := s.as(t, "bob").Tasks(t.Context(), 0, ""); err != nil || len(list.Tasks) != 0 {
		t.Errorf("bob sees %v, %v", list, err)
	}
	if list, err := s.as(t, "admin").Sandboxes(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("admin sees %v, %v", list, err)
	}
	if _, err := s.as(t, "admin").Task(t.Context(), tk.ID); err != nil {
		t.Error(err)
	}
	if s.fleet.starts != 0 {
		t.Error("a stranger started a command")
	}
}

func TestOpenAPI(t *testing.T) {
	s := newSite(t)
	status, _, text := s.ask(t, "nobody", http.MethodGet, "/openapi.json", "")
	if status != 200 {
		t.Fatal(status)
	}
	var doc struct {
		OpenAPI    string
		Paths      map[string]map[string]map[string]any
		Components struct {
			Schemas         map[string]map[string]any
			SecuritySchemes map[string]any
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("version %q", doc.OpenAPI)
	}
	described := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			described++
			id, _ := op["operationId"].(string)
			if _, ok := permissions[id]; !ok {
				t.Errorf("%s %s: operation %q is unknown", method, path, id)
			}
			if _, ok := op["security"]; ok == (id == "health") {
				t.Errorf("%s: security %v", id, op["security"])
			}
			if raw, _ := json.Marshal(op["responses"]); !strings.Contains(string(raw), api.ProblemType) {
				t.Errorf("%s tells no problems: %s", id, raw)
			}
		}
	}
	if described != len(permissions) {
		t.Errorf("%d operations described, %d exist", described, len(permissions))
	}
	for _, dead := range []string{"ErrorModel", "ErrorDetail"} {
		if _, ok := doc.Components.Schemas[dead]; ok {
			t.Errorf("%s is described but never sent", dead)
		}
	}
	refs := 0
	for rest := text; ; refs++ {
		_, after, ok := strings.Cut(rest, `"$ref":"#/components/schemas/`)
		if !ok {
			break
		}
		name, tail, _ := strings.Cut(after, `"`)
		if _, ok := doc.Components.Schemas[name]; !ok {
			t.Errorf("reference to %q leads nowhere", name)
		}
		rest = tail
	}
	if refs == 0 {
		t.Error("no references found")
	}
}
