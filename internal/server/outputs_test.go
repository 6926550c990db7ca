package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// removing removes tasks of a memory.
type removing struct{ *memory }

func (r removing) Remove(_ context.Context, id, by string) (task.Removal, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.removed[id]
	if !ok {
		was = task.Removed{Task: id, Owner: r.tasks[id].RequestedBy, By: by, At: time.Now()}
		delete(r.tasks, id)
		if r.removed == nil {
			r.removed = map[string]task.Removed{}
		}
		r.removed[id] = was
	}
	return task.Removal{Removed: was, Freed: 2, FreedBytes: 10}, nil
}

func (r removing) Removed(_ context.Context, id string) (task.Removed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.removed[id]
	if !ok {
		return was, missing("removed task")
	}
	return was, nil
}

// left gives a task an output with the bytes and ends it.
func (s *site) left(t *testing.T, tk api.Task, name, text string) {
	t.Helper()
	d, size, err := blobs{s.memory}.Put(t.Context(), strings.NewReader(text), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.memory.Task(t.Context(), tk.ID)
	if err != nil {
		t.Fatal(err)
	}
	got.State = task.Succeeded
	got.Outputs = append(got.Outputs, task.Output{Name: name, Kind: "file", Digest: d, Size: size, Path: []byte("a/\xff")})
	s.memory.setTask(got)
}

func TestOutputsAreFetched(t *testing.T) {
	s := newSite(t)
	tk := s.newTask(t, "alice")
	text := "<html><script>alert(1)</script></html>"
	s.left(t, tk, "file/a/x.html", text)
	path := "/v1/tasks/" + tk.ID + "/outputs"
	status, _, body := s.ask(t, "alice", http.MethodGet, path, "")
	var list api.OutputList
	if err := json.Unmarshal([]byte(body), &list); err != nil || status != http.StatusOK || list.Task != tk.ID || len(list.Outputs) != 1 || list.Outputs[0].PathBase64 != "YS//" || list.Outputs[0].Path != "" {
		t.Errorf("list: %d, %s, %v", status, body, err)
	}
	file := path + "/file%2Fa%2Fx.html"
	status, h, body := s.ask(t, "alice", http.MethodGet, file, "")
	if status != http.StatusOK || body != text || h.Get("Content-Type") != "application/octet-stream" || h.Get("X-Content-Type-Options") != "nosniff" ||
		!strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || !strings.HasPrefix(h.Get("Cofferdam-Digest"), "sha256:") || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
		t.Errorf("%d, %v, %q", status, h, body)
	}
	for _, at := range []string{path, file} {
		for caller, want := range map[string]int{"bob": 404, "admin": 200, "nobody": 401} {
			if got, _, _ := s.ask(t, caller, http.MethodGet, at, ""); got != want {
				t.Errorf("%s as %s: %d, want %d", at, caller, got, want)
			}
		}
	}
}

func TestRangesOfOutputs(t *testing.T) {
	s := newSite(t)
	tk := s.newTask(t, "alice")
	s.left(t, tk, "patch", "0123456789")
	for _, c := range []struct {
		ask    string
		status int
		body   string
	}{
		{"bytes=0-3", 206, "0123"},
		{"bytes=7-", 206, "789"},
		{"bytes=-2", 206, "89"},
		{"bytes=5-100", 206, "56789"},
		{"bytes=-100", 206, "0123456789"},
		{"bytes=10-", 422, ""},
		{"bytes=5-4", 422, ""},
		{"bytes=-0", 422, ""},
		{"bytes=", 422, ""},
		{"bytes=a-b", 422, ""},
		{"bytes=0-1,3-4", 422, ""},
		{"lines=1-2", 422, ""},
		{"bytes=99999999999999999999-", 422, ""},
		{"bytes=0-99999999999999999999", 206, "0123456789"},
		{"bytes=+1-2", 422, ""},
	} {
		status, h, body := s.ask(t, "alice", http.MethodGet, "/v1/tasks/"+tk.ID+"/outputs/patch", "", "Range", c.ask)
		if status != c.status || c.body != "" && (body != c.body || !strings.HasSuffix(h.Get("Content-Range"), "/10")) {
			t.Errorf("%s: %d, %q, %s", c.ask, status, body, h.Get("Content-Range"))
		}
	}
}

func TestRemovingTasks(t *testing.T) {
	s := newSite(t)
	tk := s.newTask(t, "alice")
	path := "/v1/tasks/" + tk.ID
	if status, _, body := s.ask(t, "alice", http.MethodDelete, path, ""); status != http.StatusConflict || !strings.Contains(body, "has not ended") {
		t.Errorf("a task that runs: %d, %s", status, body)
	}
	s.left(t, tk, "patch", "text")
	if status, _, _ := s.ask(t, "bob", http.MethodDelete, path, ""); status != http.StatusNotFound {
		t.Errorf("another's task: %d", status)
	}
	for range 2 {
		status, _, body := s.ask(t, "alice", http.MethodDelete, path, "")
		if status != http.StatusOK || !strings.Contains(body, `"removedBy":"alice"`) || !strings.Contains(body, "receipt") || !strings.Contains(body, "audit") {
			t.Errorf("removed: %d, %s", status, body)
		}
	}
	if status, _, body := s.ask(t, "alice", http.MethodGet, path, ""); status != http.StatusNotFound || !strings.Contains(body, "was removed by") {
		t.Errorf("a removed task: %d, %s", status, body)
	}
	if status, _, body := s.ask(t, "bob", http.MethodGet, path, ""); status != http.StatusNotFound || strings.Contains(body, "removed") {
		t.Errorf("another's removed task: %d, %s", status, body)
	}
	if status, _, _ := s.ask(t, "alice", http.MethodGet, path+"/receipt", ""); status != http.StatusOK {
		t.Errorf("its receipt: %d", status)
	}
	if status, _, _ := s.ask(t, "bob", http.MethodGet, path+"/receipt", ""); status != http.StatusNotFound {
		t.Errorf("its receipt for another: %d", status)
	}
	if status, _, _ := s.ask(t, "bob", http.MethodDelete, path, ""); status != http.StatusNotFound {
		t.Errorf("removed again by another: %d", status)
	}
}

func TestWhatIsToBeKeptIsChecked(t *testing.T) {
	s := newSite(t)
	for field, change := range map[string]func(*api.TaskRequest){
		"body.report": func(r *api.TaskRequest) { r.Report, r.Verify = "../out.xml", "true" },
		"give one":    func(r *api.TaskRequest) { r.Report = "out.xml" },
		"body.files":  func(r *api.TaskRequest) { r.Files = []string{"/etc/passwd"} },
	} {
		req := api.TaskRequest{Repo: api.Repo{URL: "https://example.com/r.git"}, Agent: api.Agent{Name: "command", Argv: []string{"true"}}}
		change(&req)
		if _, _, err := s.as(t, "alice").CreateTask(t.Context(), req, ""); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}
