package egress

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
	"github.com/cofferdam/cofferdam/internal/task"
)

// operations are rules about query, headers and bodies, one a path.
func operations(port uint16) []task.Rule {
	rule := task.Rule{Host: "ok.test", Ports: []uint16{port}, Private: true, Credential: "key"}
	git, mode, ask, graph, raw := rule, rule, rule, rule, rule
	git.ID, git.Paths, git.Query = "git", []string{"/git/info/refs"}, []task.Match{{Name: "service", Kind: task.MatchExact, Value: "git-upload-pack"}}
	mode.ID, mode.Paths, mode.Headers = "mode", []string{"/mode"}, []task.Match{{Name: "X-Mode", Kind: task.MatchExact, Value: "read"}, {Name: "X-Admin", Kind: task.MatchAbsent}}
	ask.ID, ask.Paths, ask.Body = "ask", []string{"/llm/**"}, &task.Body{Models: []string{"good-*"}}
	graph.ID, graph.Paths, graph.Body = "graph", []string{"/graphql"}, &task.Body{GraphQL: &task.GraphQL{Repository: "octo/hello"}}
	// Two rules for one path: what one about bodies does not allow, the other does.
	raw.ID, raw.Paths, raw.Body = "both", []string{"/both"}, &task.Body{Models: []string{"good-*"}}
	open := rule
	open.ID, open.Paths, open.Credential = "any", []string{"/both"}, ""
	return []task.Rule{git, mode, ask, graph, raw, open}
}

// What a rule about query, headers or the body does not allow never reaches the
// far side; what it allows arrives as it was sent.
func TestOperations(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			w := newWithin(t, h2, func(rw http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				fmt.Fprintf(rw, "%s %v %v %s", r.URL.RequestURI(), err, r.Trailer, body)
			})
			w.grant(operations(w.port)...)
			client := w.inside(h2)
			json := func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }
			for _, c := range []struct {
				name, method, path, body string
				edit                     func(*http.Request)
				reason                   task.Reason // empty: it arrives
			}{
				{"a fetch", "GET", "/git/info/refs?service=git-upload-pack", "", nil, ""},
				{"a push", "GET", "/git/info/refs?service=git-receive-pack", "", nil, task.PolicyDenied},
				{"both", "GET", "/git/info/refs?service=git-upload-pack&service=git-receive-pack", "", nil, task.PolicyDenied},
				{"neither", "GET", "/git/info/refs", "", nil, task.PolicyDenied},
				{"the header", "POST", "/mode", "x", func(r *http.Request) { r.Header.Set("X-Mode", "read") }, ""},
				{"another header", "POST", "/mode", "x", func(r *http.Request) { r.Header.Set("X-Mode", "write") }, task.PolicyDenied},
				{"two headers", "POST", "/mode", "x", func(r *http.Request) { r.Header["X-Mode"] = []string{"read", "write"} }, task.PolicyDenied},
				{"a header too many", "POST", "/mode", "x", func(r *http.Request) { r.Header.Set("X-Mode", "read"); r.Header.Set("X-Admin", "1") }, task.PolicyDenied},
				{"a header in another spelling", "POST", "/mode", "x", func(r *http.Request) { r.Header.Set("X-Mode", "read"); r.Header["X_mode"] = []string{"write"} }, task.PolicyDenied},
				{"a model", "POST", "/llm/v1/messages", `{"model":"good-1"}`, json, ""},
				{"another model", "POST", "/llm/v1/messages", `{"model":"bad-1"}`, json, task.PolicyModel},
				{"two models", "POST", "/llm/v1/messages", `{"model":"good-1","model":"bad-1"}`, json, task.PolicyModel},
				{"compressed", "POST", "/llm/v1/messages", `{"model":"good-1"}`, func(r *http.Request) { json(r); r.Header.Set("Content-Encoding", "gzip") }, task.PolicyModel},
				{"a model, in chunks", "POST", "/llm/v1/messages", `{"model":"good-1"}`, func(r *http.Request) { json(r); r.ContentLength = -1 }, ""},
				{"another model, in chunks", "POST", "/llm/v1/messages", `{"model":"bad-1"}`, func(r *http.Request) { json(r); r.ContentLength = -1 }, task.PolicyModel},
				{"a model, after a question", "POST", "/llm/v1/messages", `{"model":"good-1"}`, func(r *http.Request) { json(r); r.Header.Set("Expect", "100-continue") }, ""},
				{"one repository", "POST", "/graphql", `{"query":"{ repository(owner: \"octo\", name: \"hello\") { id } }"}`, json, ""},
				{"another repository", "POST", "/graphql", `{"query":"{ repository(owner: \"octo\", name: \"other\") { id } }"}`, json, task.PolicyDenied},
				{"another rule's", "POST", "/both", `{"model":"bad-1"}`, json, ""},
			} {
				w.far.take()
				r := w.request(c.method, w.url(c.path), c.edit)
				if c.body != "" {
					r.Body = io.NopCloser(strings.NewReader(c.body))
					if r.ContentLength >= 0 {
						r.ContentLength = int64(len(c.body))
					}
				}
				res, body := w.do(client, r)
				seen := w.far.take()
				if c.reason != "" {
					if res.StatusCode != http.StatusForbidden || code(t, body) != c.reason || len(seen) != 0 {
						t.Errorf("%s: %d %s, and the far side saw %v; want %s", c.name, res.StatusCode, body, seen, c.reason)
					}
					continue
				}
				if res.StatusCode != http.StatusOK || len(seen) != 1 || body != c.path+" <nil> map[] "+c.body {
					t.Errorf("%s: %d %q, and the far side saw %v", c.name, res.StatusCode, body, seen)
				} else if key := seen[0].header.Get("X-Api-Key"); (key == realKey) != (c.name != "another rule's") {
					t.Errorf("%s: the far side saw the key %q", c.name, key)
				}
			}
		})
	}
}

// A trailer, which some servers take for a header, stays here where a rule looked
// at headers.
func TestTrailersBesideMatchedHeaders(t *testing.T) {
	w := newWithin(t, false, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(rw, r.Trailer)
	})
	w.grant(task.Rule{
		ID: "mode", Host: "ok.test", Ports: []uint16{w.port}, Private: true, Paths: []string{"/mode"},
		Headers: []task.Match{{Name: "X-Admin", Kind: task.MatchAbsent}},
	})
	r := w.request("POST", w.url("/mode"), nil)
	r.Body, r.ContentLength, r.Trailer = io.NopCloser(strings.NewReader("x")), -1, http.Header{"X-Admin": {"1"}}
	if res, body := w.do(w.inside(false), r); res.StatusCode != http.StatusOK || body != "map[]" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

// What is longer than a rule about bodies looks at is refused by that rule, and
// passes whole where another rule allows it.
func TestLongBodies(t *testing.T) {
	w := newWithin(t, false, func(rw http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		n, err := io.Copy(h, r.Body)
		fmt.Fprintf(rw, "%d %v %x", n, err, h.Sum(nil))
	})
	w.grant(operations(w.port)...)
	long := append([]byte(`{"model":"good-1","x":"`), bytes.Repeat([]byte("x"), decide.MaxBody)...)
	long = append(long, `"}`...)
	for _, length := range []int64{int64(len(long)), -1} {
		for path, want := range map[string]string{"/llm/v1/messages": "", "/both": fmt.Sprintf("%d <nil> %x", len(long), sha256.Sum256(long))} {
			w.far.take()
			r := w.request("POST", w.url(path), func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(long)), length
			res, err := w.inside(false).Do(r)
			if err != nil {
				if want == "" {
					continue // it was cut while it was still being sent
				}
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if want == "" && (code(t, string(body)) != task.PolicyModel || len(w.far.take()) != 0) || want != "" && (err != nil || string(body) != want) {
				t.Errorf("%s with the length %d: %.200s, %v", path, length, body, err)
			}
		}
	}
}

// A body that does not come to its end is not sent on.
func TestBodiesThatBreakOff(t *testing.T) {
	w := newWithin(t, false, func(http.ResponseWriter, *http.Request) {})
	w.grant(operations(w.port)...)
	r := w.request("POST", w.url("/llm/v1/messages"), func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
	text := `{"model":"good-1"}`
	r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader(text), broken{})), int64(len(text))+10
	if res, err := w.inside(false).Do(r); err == nil {
		_ = res.Body.Close()
	}
	w.await("a request that broke off", denied(task.PolicyModel))
	if seen := w.far.take(); len(seen) != 0 {
		t.Errorf("the far side saw %v", seen)
	}
}

// broken is a client that goes away.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
