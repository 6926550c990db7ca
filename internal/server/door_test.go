package server

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestForeignHostAndOrigin(t *testing.T) {
	s := newSite(t)
	own := strings.TrimPrefix(s.http.URL, "http://")
	_, port, _ := net.SplitHostPort(own)
	for _, c := range []struct {
		header []string
		want   int
	}{
		{nil, 200},
		{[]string{"Host", "localhost:" + port}, 200},
		{[]string{"Host", "LOCALHOST"}, 200},
		{[]string{"Host", "[::1]:" + port}, 200},
		{[]string{"Host", "127.0.0.1.evil.example:" + port}, 403},
		{[]string{"Host", "evil.example"}, 403},
		{[]string{"Host", "localhost.evil.example"}, 403},
		{[]string{"Host", "0.0.0.0:" + port}, 403},
		{[]string{"Host", "169.254.169.254"}, 403},
		{[]string{"Origin", "http://" + own}, 200},
		{[]string{"Origin", "http://evil.example"}, 403},
		{[]string{"Origin", "http://127.0.0.1:1"}, 403},
		{[]string{"Origin", "null"}, 403},
		{[]string{"Origin", "file://" + own}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site"}, 403},
		{[]string{"Sec-Fetch-Site", "none"}, 200},
	} {
		status, h, _ := s.ask(t, "admin", http.MethodGet, "/v1/health", "", c.header...)
		if status != c.want {
			t.Errorf("%v: %d, want %d", c.header, status, c.want)
		}
		if h.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%v: CORS is on", c.header)
		}
	}
	// A preflight gets no permission either.
	if status, h, _ := s.ask(t, "", http.MethodOptions, "/v1/tasks", "", "Origin", "http://evil.example", "Access-Control-Request-Method", "POST"); status < 400 || len(h.Values("Access-Control-Allow-Methods")) > 0 {
		t.Errorf("preflight: %d %v", status, h)
	}
}

func TestUnknownOperationIsAProblem(t *testing.T) {
	s := newSite(t)
	for _, c := range [][2]string{{"GET", "/"}, {"GET", "/v1/nothing"}, {"PATCH", "/v1/tasks"}, {"GET", "/docs"}, {"GET", "/schemas/Task.json"}, {"GET", "/v1/tasks/t-aaaaaaaaaaaaaaaa/../../../etc/passwd"}} {
		if p := s.problem(t, "admin", c[0], c[1], ""); p.Status != 404 || p.Code != "input.not_found" {
			t.Errorf("%v: %+v", c, p)
		}
	}
}

func TestPanicTellsNothing(t *testing.T) {
	s := newSite(t)
	rec := httptest.NewRecorder()
	h := s.server.front(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("db password is hunter2") }))
	h.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/x", nil))
	if rec.Code != 500 || strings.Contains(rec.Body.String(), "hunter2") || !strings.Contains(rec.Body.String(), `"code":"infra.internal"`) {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	if !strings.Contains(s.log.String(), "hunter2") {
		t.Error("the log does not have the panic")
	}
}

func TestFaultsTellNothing(t *testing.T) {
	s := newSite(t)
	s.broken = errors.New("pq: password hunter2 at 10.0.0.7")
	p := s.problem(t, "alice", http.MethodPost, "/v1/tasks", aTask)
	if p.Status != 500 || p.Code != "infra.internal" || strings.Contains(p.Detail, "hunter2") {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(s.log.String(), "hunter2") || !strings.Contains(s.log.String(), p.Request) {
		t.Error("the log does not have the cause under the request's id")
	}
	s.broken = task.Fail(task.InfraStorage, "the disk is full; make room", errors.New("hunter2: ENOSPC"))
	if p := s.problem(t, "alice", http.MethodPost, "/v1/tasks", aTask); p.Status != 507 || p.Code != "infra.storage" || p.Detail != "the disk is full; make room" {
		t.Errorf("%+v", p)
	}
}

func TestLogHoldsNoSecrets(t *testing.T) {
	s := newSite(t)
	tok, err := s.as(t, "admin").CreateToken(t.Context(), tokenRequest("carol"))
	if err != nil {
		t.Fatal(err)
	}
	s.problem(t, "alice", http.MethodPost, "/v1/tasks", `{"password":"hunter2"}`)
	s.ask(t, "", http.MethodGet, "/v1/tasks", "", "Authorization", "Bearer cfd_hunter2")
	s.ask(t, "", http.MethodGet, "/v1/tasks?token=hunter2", "")
	log := s.log.String()
	if !strings.Contains(log, `"user":"alice"`) || !strings.Contains(log, `"path":"/v1/tasks"`) {
		t.Errorf("the access log is missing: %s", log)
	}
	for _, secret := range []string{tok.Secret, s.tokens["admin"], s.tokens["alice"], "hunter2"} {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

func TestHostileJSON(t *testing.T) {
	s := newSite(t)
	for _, c := range []struct{ name, body, field string }{
		{"unknown field", `{"repo":{"url":"https://x/y"},"agent":{"name":"command","argv":["a"]},"sudo":true}`, "body.sudo"},
		{"unknown inner field", `{"repo":{"url":"https://x/y","token":"s"},"agent":{"name":"command","argv":["a"]}}`, "body.repo.token"},
		{"key twice", `{"repo":{"url":"https://x/y"},"agent":{"name":"command","argv":["a"],"argv":["b"]}}`, "body.agent.argv"},
		{"key in another case", `{"repo":{"url":"https://x/y"},"agent":{"name":"command","ARGV":["a"]}}`, "body.agent.ARGV"},
		{"both cases", `{"repo":{"url":"https://x/y"},"agent":{"name":"command","argv":["a"],"Argv":["b"]}}`, "body.agent.Argv"},
		{"missing field", `{"repo":{"url":"https://x/y"}}`, "agent"},
		{"wrong type", `{"repo":{"url":7},"agent":{"name":"command","argv":["a"]}}`, "body.repo.url"},
		{"null list entry", `{"repo":{"url":"https://x/y"},"agent":{"name":"command","argv":[null]}}`, "body.agent.argv[0]"},
		{"array", `[]`, "body"},
		{"trailing", aTask + `{}`, "body"},
		{"not JSON", `{`, "body"},
		{"deep", strings.Repeat("[", 100000), "body"},
		{"unknown agent", `{"repo":{"url":"https://x/y"},"agent":{"name":"emacs"}}`, "body.agent.name"},
		{"no program", `{"repo":{"url":"https://x/y"},"agent":{"name":"command","argv":[]}}`, "body.agent.argv"},
		{"NUL", `{"repo":{"url":"https://x/y"},"agent":{"name":"command","argv":["a\u0000b"]}}`, "body.agent.argv"},
		{"two sources", `{"repo":{"url":"https://x/y","bundle":"sha256:00"},"agent":{"name":"command","argv":["a"]}}`, "body.repo"},
		{"no source", `{"repo":{},"agent":{"name":"command","argv":["a"]}}`, "body.repo"},
		{"ref as option", `{"repo":{"url":"https://x/y","ref":"--upload-pack=x"},"agent":{"name":"command","argv":["a"]}}`, "body.repo.ref"},
		{"digest as path", `{"repo":{"bundle":"sha256:../../../../etc/passwd"},"agent":{"name":"command","argv":["a"]}}`, "body.repo.bundle"},
		{"unknown bundle", `{"repo":{"bundle":"sha256:` + strings.Repeat("0", 64) + `"},"agent":{"name":"command","argv":["a"]}}`, "body.repo.bundle"},
		{"bad policy", `{"repo":{"url":"https://x/y"},"agent":{"name":"command","argv":["a"]},"policy":"allow a\nagent:\n"}`, "body.policy"},
	} {
		p := s.problem(t, "alice", http.MethodPost, "/v1/tasks", c.body)
		raw, _ := json.Marshal(p)
		if p.Status < 400 || p.Status > 422 || !strings.HasPrefix(p.Code, "input.") || !strings.Contains(string(raw), c.field) {
			t.Errorf("%s: %s", c.name, raw)
		}
		if c.name == "bad policy" && (p.Code != "input.policy" || p.Status != 422 || !strings.Contains(p.Detail, "line 2")) {
			t.Errorf("%s: %s", c.name, raw)
		}
	}
	if len(s.engine.started) != 0 || len(s.tasks) != 0 {
		t.Error("a bad request made a task")
	}
	if p := s.problem(t, "alice", http.MethodPost, "/v1/tasks", aTask, "Content-Type", "text/plain"); p.Status != 415 {
		t.Errorf("text/plain: %+v", p)
	}
	if p := s.problem(t, "alice", http.MethodPost, "/v1/tasks", `{"prompt":"`+strings.Repeat("a", 5<<20)+`"}`); p.Status != 413 || p.Code != "limit.size" {
		t.Errorf("large: %+v", p)
	}
	if p := s.problem(t, "alice", http.MethodGet, "/v1/tasks?limt=3", ""); p.Status != 422 || !strings.Contains(p.Detail, "limt") {
		t.Errorf("unknown parameter: %+v", p)
	}
	if p := s.problem(t, "alice", http.MethodPost, "/v1/tasks", aTask, "Idempotency-Key", strings.Repeat("k", 300)); p.Status != 422 {
		t.Errorf("long key: %+v", p)
	}
}

func TestListenOnlyOnLoopback(t *testing.T) {
	for _, bad := range []string{":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:0", "127.0.0.1", ""} {
		l, err := Listen(t.Context(), bad, false)
		if err == nil {
			_ = l.Close()
		}
		var f *task.Failure
		if !errors.As(err, &f) || f.Reason != task.InputInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	l, err := Listen(t.Context(), "127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Listen(t.Context(), l.Addr().String(), false); err == nil || !strings.Contains(err.Error(), "another program") {
		t.Errorf("port in use: %v", err)
	}
}

func TestServeStopsAndBreaksStreamsOff(t *testing.T) {
	s := newSite(t)
	tk := s.newTask(t, "alice")
	l, err := Listen(t.Context(), "127.0.0.1:0", false)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.server.Serve(ctx, l) }()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/v1/tasks/"+tk.ID+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.tokens["alice"])
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 1)
	if _, err := resp.Body.Read(buf); err != nil {
		t.Fatal(err)
	}
	cancel()
	for err == nil {
		_, err = resp.Body.Read(buf)
	}
	if err.Error() == "EOF" {
		t.Error("a stopping server ended a stream as if it were complete")
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the server does not stop")
	}
}

func TestNewNamesWhatIsMissing(t *testing.T) {
	if _, err := New(Options{}); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Error(err)
	}
}
