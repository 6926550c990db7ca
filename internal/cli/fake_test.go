package cli

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// site is a small working server: it speaks the API's protocol over the wire,
// keeps tasks and sandboxes in memory, and runs commands as processes of this
// machine. How a task ends is told by its agent's arguments.
type site struct {
	*httptest.Server
	dir string // bundles, and a folder a sandbox

	mu        sync.Mutex
	tasks     []*fakeTask
	keys      map[string]*fakeTask
	sandboxes map[string]api.Sandbox
	commands  map[string]*fakeCommand // fed with input, by id
	doctor    api.Doctor
	audit     []string
	auditKey  string
	secrets   []api.CredentialRequest
	rotated   *api.IdentityRotation
	mark      *api.WorkerMark // of the only worker
	project   api.Project
}

type fakeTask struct {
	api.Task
	request api.TaskRequest
	cancel  chan struct{}
	once    sync.Once
	output  string
}

const fakeToken = "token-of-the-test"

func newSite(dir string) *site {
	s := &site{dir: dir, keys: map[string]*fakeTask{}, sandboxes: map[string]api.Sandbox{}, doctor: api.Doctor{OK: true, Checks: []api.Check{{ID: "store", Outcome: "ok", Text: "answers"}}}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/health", func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, api.Health{Boot: "b", Version: "v"}) })
	for pattern, handle := range map[string]http.HandlerFunc{
		"POST /v1/bundles": s.upload,
		"POST /v1/tasks":   s.createTask,
		"GET /v1/tasks":    s.listTasks,
		"GET /v1/tasks/{id}": s.withTask(func(w http.ResponseWriter, _ *http.Request, t *fakeTask) {
			s.mu.Lock()
			defer s.mu.Unlock()
			answer(w, 200, t.Task)
		}),
		"POST /v1/tasks/{id}/cancel": s.withTask(s.cancelTask),
		"DELETE /v1/tasks/{id}":      s.removeTask,
		"GET /v1/tasks/{id}/events":  s.withTask(s.events),
		"GET /v1/tasks/{id}/logs":    s.withTask(s.logs),
		"GET /v1/tasks/{id}/agent":   s.withTask(s.agentEvents),
		"GET /v1/tasks/{id}/egress": s.withTask(func(w http.ResponseWriter, _ *http.Request, _ *fakeTask) {
			answer(w, 200, api.EgressList{Records: []api.EgressRecord{
				{Seq: 1, Name: "evil.example\x1b]52;c;x\a", Port: 443, Protocol: "tls", Verdict: "denied", Reason: "policy.denied", Stage: "setup", Count: 3},
				{
					Seq: 2, Name: "api.example", Address: "192.0.2.7", Port: 443, Protocol: "http", Verdict: "allowed", Rule: "agent.network.allow[0]", Stage: "agent", Done: true,
					Method: "POST", Path: "/v1/\u202ex", Status: 201, Lease: "l-aaaaaaaaaaaaaaaa", BytesIn: 70, BytesOut: 8, Commands: []string{"agent", "shell {\"command\":\"\x1b[2J\"}"},
				},
			}})
		}),
		"GET /v1/tasks/{id}/outputs/{name}": s.withTask(s.outputBytes),
		"GET /v1/tasks/{id}/files": s.withTask(func(w http.ResponseWriter, _ *http.Request, _ *fakeTask) {
			answer(w, 200, api.FileDenialList{Denials: []api.FileDenial{{Seq: 1, Operation: "open", Path: "/workspace/.envrc\x1b[2J", Error: "EROFS", Program: "sh", Count: 4}}})
		}),
		"GET /v1/tasks/{id}/receipt":               s.withTask(func(w http.ResponseWriter, _ *http.Request, t *fakeTask) { fmt.Fprintf(w, `{"task":%q}`, t.ID) }),
		"POST /v1/sandboxes":                       s.createSandbox,
		"GET /v1/sandboxes":                        s.listSandboxes,
		"GET /v1/sandboxes/{id}":                   s.withSandbox(func(w http.ResponseWriter, _ *http.Request, b api.Sandbox) { answer(w, 200, b) }),
		"DELETE /v1/sandboxes/{id}":                s.removeSandbox,
		"POST /v1/sandboxes/{id}/exec":             s.withSandbox(s.exec),
		"GET /v1/sandboxes/{id}/exec/{cmd}/output": s.withSandbox(s.execOutput),

		"GET /v1/sandboxes/{id}/exec":                s.withSandbox(s.listCommands),
		"GET /v1/sandboxes/{id}/exec/{cmd}":          s.withSandbox(s.getCommand),
		"PUT /v1/sandboxes/{id}/exec/{cmd}/input":    s.withSandbox(s.writeInput),
		"PUT /v1/sandboxes/{id}/exec/{cmd}/terminal": s.withSandbox(s.resizeTerminal),
		"POST /v1/sandboxes/{id}/exec/{cmd}/signal":  s.withSandbox(s.signalCommand),
		"PUT /v1/sandboxes/{id}/files":               s.withSandbox(s.putFiles),
		"GET /v1/sandboxes/{id}/files":               s.withSandbox(s.getFiles),
		"GET /v1/doctor":                             s.examine,
		"GET /v1/identity":                           s.showIdentity,
		"POST /v1/identity/rotate":                   s.rotateIdentity,
		"POST /v1/incident/revoke":                   s.revokeEverything,
		"GET /v1/workers":                            s.listWorkers,
		"PUT /v1/workers/{name}/mark":                s.markWorker,
		"DELETE /v1/workers/{name}/mark":             s.markWorker,
		"GET /.well-known/jwks.json":                 s.publishes(fakeKeys),
		"GET /.well-known/openid-configuration":      s.publishes("{\"issuer\":\"https://issuer.example\"}\n"),
		"POST /v1/credentials":                       s.addCredential,
		"GET /v1/credentials":                        s.listCredentials,
		"POST /v1/credentials/{name}/revoke":         s.endCredential,
		"DELETE /v1/credentials/{name}":              s.endCredential,
		"POST /v1/policy/explain":                    s.explainPolicy,
		"POST /v1/policy/check":                      s.checkPolicy,
		"PUT /v1/projects/{name}":                    s.setProject,
		"GET /v1/projects/{name}":                    s.getProject,
		"DELETE /v1/projects/{name}":                 s.getProject,
		"GET /v1/projects":                           s.listProjects,
		"GET /v1/audit/key":                          func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, api.AuditKey{Key: s.auditKey}) },
		"GET /v1/audit/export":                       func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Join(s.audit, "")) },
	} {
		mux.HandleFunc(pattern, s.authorized(handle))
	}
	s.fakeFiles(mux)
	s.fakeBudgets(mux)
	s.Server = httptest.NewServer(mux)
	return s
}

func (s *site) examine(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer(w, 200, s.doctor)
}

func (s *site) authorized(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+fakeToken {
			refuse(w, 401, "input.unauthorized", "not a valid token")
			return
		}
		h(w, r)
	}
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", api.ProblemType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: code, Detail: detail})
}

func (s *site) upload(w http.ResponseWriter, r *http.Request) {
	data, err := io.ReadAll(r.Body)
	if err != nil || !bytes.HasPrefix(data, []byte("# v")) {
		refuse(w, 400, "input.invalid", "not a git bundle")
		return
	}
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	if err := os.WriteFile(filepath.Join(s.dir, digest), data, 0o600); err != nil {
		refuse(w, 500, "infra.storage", err.Error())
		return
	}
	_ = os.WriteFile(filepath.Join(s.dir, "last.bundle"), data, 0o600)
	answer(w, 201, api.Blob{Digest: "sha256:" + digest, Size: int64(len(data))})
}

// The agent's arguments: how it ends, what its log says, and its patch.
func (s *site) createTask(w http.ResponseWriter, r *http.Request) {
	var req api.TaskRequest
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		refuse(w, 400, "input.invalid", err.Error())
		return
	}
	if strings.Contains(req.Policy, "nonsense") {
		refuse(w, 422, "input.policy", "policy: line 1: unknown field \"nonsense\"")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := r.Header.Get("Idempotency-Key")
	if t, ok := s.keys[key]; ok {
		if fmt.Sprint(t.request) != fmt.Sprint(req) {
			refuse(w, 409, "input.conflict", "this key was used for another request")
			return
		}
		answer(w, 200, t.Task)
		return
	}
	t := &fakeTask{request: req, cancel: make(chan struct{})}
	t.Task = api.Task{
		ID: "t-" + strings.Repeat("a", 15) + string(rune('a'+len(s.tasks))), State: api.Running, RequestedBy: "tester", Repo: req.Repo.Name, Ref: req.Repo.Ref,
		CreatedAt: time.Now(), Stages: []api.Stage{}, Outputs: []api.Output{}, Actions: []api.Action{},
	}
	if req.Agent.Argv[0] == "log" {
		t.output = strings.Join(req.Agent.Argv[1:], " ")
	}
	_ = os.WriteFile(filepath.Join(s.dir, "request.json"), must(json.MarshalIndent(req, "", " ")), 0o600)
	s.tasks, s.keys[key] = append(s.tasks, t), t
	answer(w, 201, t.Task)
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func (s *site) withTask(h func(http.ResponseWriter, *http.Request, *fakeTask)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		var found *fakeTask
		for _, t := range s.tasks {
			if t.ID == r.PathValue("id") {
				found = t
			}
		}
		s.mu.Unlock()
		if found == nil {
			refuse(w, 404, "input.not_found", "no task "+r.PathValue("id"))
			return
		}
		h(w, r, found)
	}
}

func (s *site) listTasks(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := api.TaskList{Tasks: []api.Task{}}
	for _, v := range slices.Backward(s.tasks) {
		list.Tasks = append(list.Tasks, v.Task)
	}
	answer(w, 200, list)
}

func (s *site) cancelTask(w http.ResponseWriter, _ *http.Request, t *fakeTask) {
	t.once.Do(func() { close(t.cancel) })
	w.WriteHeader(202)
}

// events runs the task: it ends while somebody watches.
func (s *site) events(w http.ResponseWriter, r *http.Request, t *fakeTask) {
	w.Header().Set("Content-Type", "text/event-stream")
	seq := int64(0)
	emit := func(kind string, v any) {
		seq++
		ev := api.Event{Seq: seq, Task: t.ID, Time: time.Now(), Type: kind, Data: must(json.Marshal(v))}
		fmt.Fprintf(w, "id: %d\ndata: %s\n\n", seq, must(json.Marshal(ev)))
		_ = http.NewResponseController(w).Flush()
	}
	start := time.Now()
	emit("stage", api.Stage{Name: "checkout", State: "running", StartedAt: &start})
	emit("stage", api.Stage{Name: "checkout", State: "succeeded", StartedAt: &start, EndedAt: &start})
	emit("egress", api.EgressRecord{Name: "evil.example\x1b]52;c;x\a", Port: 443, Verdict: "denied", Reason: "policy.denied"})
	emit("stage", api.Stage{Name: "agent", State: "running", StartedAt: &start})
	argv := t.request.Agent.Argv
	end := api.Task{State: api.Succeeded}
	switch argv[0] {
	case "fail":
		end = api.Task{State: api.Failed, Reason: argv[1], Text: "because \x1b[2J of that"}
	case "hang":
		_ = os.WriteFile(filepath.Join(s.dir, "hanging"), nil, 0o600)
		select {
		case <-t.cancel:
			end = api.Task{State: api.Cancelled, Reason: "cancelled"}
		case <-r.Context().Done():
			return
		}
	}
	s.mu.Lock()
	now := time.Now()
	t.State, t.Reason, t.Text, t.EndedAt = end.State, end.Reason, end.Text, &now
	t.Stages = []api.Stage{{Name: "checkout", State: "succeeded"}, {Name: "agent", State: end.State, Reason: end.Reason}, {Name: "verify", State: "succeeded"}}
	if end.State == api.Succeeded {
		t.Outputs = []api.Output{{Name: "patch", Kind: "patch", Digest: digestOf("diff --git\n"), Size: 11, Flags: []string{"executes-on-open"}}}
	}
	s.mu.Unlock()
	emit("task", t.Task)
	fmt.Fprint(w, "event: end\ndata: {}\n\n")
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (s *site) logs(w http.ResponseWriter, r *http.Request, t *fakeTask) {
	offset, _ := strconv.Atoi(r.URL.Query().Get("offset"))
	text := t.output + "\x1b[31m from inside\n"
	fmt.Fprint(w, text[min(offset, len(text)):])
}

// agentEvents are those of a task whose agent's arguments begin with "model".
func (s *site) agentEvents(w http.ResponseWriter, r *http.Request, t *fakeTask) {
	l := api.AgentEventList{Events: []api.AgentEvent{}}
	if t.request.Agent.Argv[0] == "model" {
		switch r.URL.Query().Get("after") {
		case "0":
			l.Events, l.Next, l.More = []api.AgentEvent{{Type: "call", Call: "1/1", Tool: "shell", Input: `{"command":"ls"}`}}, 7, true
		case "7":
			l.Events = []api.AgentEvent{{Type: "result", Call: "1/1", Text: "file\x1b[2J\n"}, {Type: "end"}}
		}
	}
	answer(w, 200, l)
}

func (s *site) outputBytes(w http.ResponseWriter, r *http.Request, t *fakeTask) {
	for _, o := range t.Outputs {
		if o.Name == r.PathValue("name") {
			w.Header().Set("Cofferdam-Digest", o.Digest)
			fmt.Fprint(w, "diff --git\n")
			return
		}
	}
	refuse(w, 404, "input.not_found", "no output "+r.PathValue("name"))
}

// hostile is what a sandbox could send instead of an honest folder.
func hostile(w io.Writer) {
	out := tar.NewWriter(w)
	write := func(h tar.Header, body string) {
		h.Size = int64(len(body))
		h.Mode = 0o6777
		_ = out.WriteHeader(&h)
		_, _ = out.Write([]byte(body))
	}
	write(tar.Header{Name: "hostile/", Typeflag: tar.TypeDir}, "")
	write(tar.Header{Name: "hostile/fine.txt", Typeflag: tar.TypeReg}, "fine\n")
	write(tar.Header{Name: "../outside.txt", Typeflag: tar.TypeReg}, "x")
	write(tar.Header{Name: "/abs.txt", Typeflag: tar.TypeReg}, "x")
	write(tar.Header{Name: "other/x.txt", Typeflag: tar.TypeReg}, "x")
	write(tar.Header{Name: "hostile/up", Typeflag: tar.TypeSymlink, Linkname: ".."}, "")
	write(tar.Header{Name: "hostile/up/through.txt", Typeflag: tar.TypeReg}, "x")
	write(tar.Header{Name: "hostile/etc", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, "")
	write(tar.Header{Name: "hostile/in", Typeflag: tar.TypeSymlink, Linkname: "fine.txt"}, "")
	write(tar.Header{Name: "hostile/in/x", Typeflag: tar.TypeReg}, "x")
	write(tar.Header{Name: "hostile/hard", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}, "")
	write(tar.Header{Name: "hostile/pipe", Typeflag: tar.TypeFifo}, "")
	write(tar.Header{Name: "hostile/dev", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, "")
	write(tar.Header{Name: "hostile/there.txt", Typeflag: tar.TypeReg}, "replaced\n")
	_ = out.Close()
}

func leftoverForTest() api.Check {
	return api.Check{ID: "worker.w.leftovers", Outcome: "failed", Text: "1 object that no record explains", Leftovers: []api.Leftover{{Kind: "cgroup", Name: "/cofferdam/sb-x"}}}
}
