package models

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/agent/modeltest"
)

func headers(more ...string) map[string][]string {
	h := map[string][]string{"Content-Type": {"application/json"}}
	for i := 0; i < len(more); i += 2 {
		h[more[i]] = append(h[more[i]], more[i+1])
	}
	return h
}

func TestCheck(t *testing.T) {
	globs := []string{"claude-haiku-*", "gpt-5-mini", "gemini-2.5-flash"}
	for _, c := range []struct {
		name string
		q    Request
		ok   bool
	}{
		{"Anthropic", Request{Body: []byte(`{"model":"claude-haiku-4-5","max_tokens":1,"messages":[]}`)}, true},
		{"Anthropic, another", Request{Body: []byte(`{"model":"claude-opus-4","messages":[]}`)}, false},
		{"OpenAI", Request{Path: "/v1/chat/completions", Body: []byte(`{"messages":[{"role":"user","content":"\"model\":\"o3\""}],"model":"gpt-5-mini"}`)}, true},
		{"responses", Request{Path: "/v1/responses", Body: []byte(`{"model":"gpt-5-mini","input":"x","tools":[{"type":"function","name":"f","parameters":{"properties":{"model":{"type":"string"}}}}]}`)}, true},
		{"a tool asks another", Request{Path: "/v1/responses", Body: []byte(`{"model":"gpt-5-mini","tools":[{"type":"image_generation","model":"gpt-image-1"}]}`)}, false},
		{"a tool asks one of them", Request{Body: []byte(`{"model":"gpt-5-mini","tools":[{"type":"advisor","model":"claude-haiku-4-5"}]}`)}, true},
		{"Google", Request{Path: "/v1beta/models/gemini-2.5-flash:streamGenerateContent", Query: "alt=sse", Body: []byte(`{"contents":[]}`)}, true},
		{"Google, another", Request{Path: "/v1beta/models/gemini-2.5-pro:generateContent", Body: []byte(`{"contents":[]}`)}, false},
		{"Google, the body's", Request{Path: "/v1beta/models/gemini-2.5-flash:countTokens", Body: []byte(`{"model":"models/gemini-2.5-pro"}`)}, false},
		{"Google, many at once", Request{Path: "/v1beta/models/gemini-2.5-flash:batchGenerateContent", Body: []byte(`{}`)}, false},
		{"Google, tuned", Request{Path: "/v1beta/tunedModels/mine:generateContent", Body: []byte(`{}`)}, false},
		{"Google, escaped", Request{Path: "/v1beta/models/gemini-2.5-flash%3AgenerateContent", Body: []byte(`{"model":"gpt-5-mini"}`)}, false},
		{"a deployment beside the body's", Request{Path: "/openai/deployments/o3/chat/completions", Body: []byte(`{"model":"gpt-5-mini"}`)}, false},
		{"Bedrock's path beside the body's", Request{Path: "/model/opus/invoke", Body: []byte(`{"model":"gpt-5-mini"}`)}, false},
		{"twice", Request{Body: []byte(`{"model":"gpt-5-mini","model":"o3"}`)}, false},
		{"twice, escaped", Request{Body: []byte(`{"model":"gpt-5-mini","mod\u0065l":"o3"}`)}, false},
		{"other case", Request{Body: []byte(`{"model":"gpt-5-mini","Model":"o3"}`)}, false},
		{"other case alone", Request{Body: []byte(`{"MODEL":"gpt-5-mini"}`)}, false},
		{"none", Request{Body: []byte(`{"messages":[]}`)}, false},
		{"no text", Request{Body: []byte(`{"model":["gpt-5-mini"]}`)}, false},
		{"null", Request{Body: []byte(`{"model":null}`)}, false},
		{"others in its place", Request{Body: []byte(`{"model":"gpt-5-mini","models":["o3"]}`)}, false},
		{"fallbacks", Request{Body: []byte(`{"model":"gpt-5-mini","fallbacks":[{"model":"o3"}]}`)}, false},
		{"a batch", Request{Path: "/v1/messages/batches", Body: []byte(`{"requests":[{"params":{"model":"claude-opus-4"}}]}`)}, false},
		{"a list", Request{Body: []byte(`[{"model":"gpt-5-mini"},{"model":"o3"}]`)}, false},
		{"two documents", Request{Body: []byte(`{"model":"gpt-5-mini"}{"model":"o3"}`)}, false},
		{"a byte order mark", Request{Body: []byte("\ufeff{\"model\":\"gpt-5-mini\"}")}, false},
		{"no UTF-8", Request{Body: []byte("{\"model\":\"gpt-5-mini\",\"x\":\"\xff\"}")}, false},
		{"a key that some cut", Request{Body: []byte(`{"model":"gpt-5-mini","model\u0000":"o3"}`)}, false},
		{"cut short", Request{Body: []byte(`{"model":"gpt-5-mini"`)}, false},
		{"empty", Request{}, false},
		{"as a form", Request{Body: []byte(`{"model":"gpt-5-mini","x":"&model=o3&"}`), Header: map[string][]string{"Content-Type": {"application/x-www-form-urlencoded"}}}, false},
		{"no type", Request{Body: []byte(`{"model":"gpt-5-mini"}`), Header: map[string][]string{}}, false},
		{"two types", Request{Body: []byte(`{"model":"gpt-5-mini"}`), Header: headers("Content-Type", "text/plain")}, false},
		{"UTF-16", Request{Body: []byte(`{"model":"gpt-5-mini"}`), Header: map[string][]string{"Content-Type": {"application/json; charset=utf-16"}}}, false},
		{"UTF-8, said", Request{Body: []byte(`{"model":"gpt-5-mini"}`), Header: map[string][]string{"Content-Type": {"application/json; charset=UTF-8"}}}, true},
		{"compressed", Request{Body: []byte(`{"model":"gpt-5-mini"}`), Header: headers("Content-Encoding", "gzip")}, false},
		{"in the query", Request{Query: "mod%65l=o3", Body: []byte(`{"model":"gpt-5-mini"}`)}, false},
		{"a list of models", Request{Method: "GET", Path: "/v1/models"}, true},
		{"a session", Request{Method: "GET", Path: "/v1/responses", Header: headers("Upgrade", "websocket")}, false},
		{"another method", Request{Method: "PUT", Body: []byte(`{"model":"gpt-5-mini"}`)}, false},
	} {
		if c.q.Method == "" {
			c.q.Method = "POST"
		}
		if c.q.Header == nil {
			c.q.Header = headers()
		}
		if c.q.Path == "" {
			c.q.Path = "/v1/messages"
		}
		if err := Check(globs, c.q); (err == nil) != c.ok {
			t.Errorf("%s: %v, want passed %t", c.name, err, c.ok)
		}
	}
	if Check(nil, Request{Method: "GET", Path: "/"}) == nil {
		t.Error("the empty list allows something")
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, name string
		want       bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"a*", "a", true},
		{"a*", "abc", true},
		{"*a", "ba", true},
		{"a*c", "ac", true},
		{"a*c", "abd", false},
		{"a*b*c", "a1b2c", true},
		{"a*b*c", "acb", false},
		{"a*a", "a", false},
		{"*", "", true},
		{"a*bc*c", "abc", false},
		{"A", "a", false},
	} {
		if got := Match([]string{c.glob}, c.name); got != c.want {
			t.Errorf("%q and %q: %t", c.glob, c.name, got)
		}
	}
	if !Within([]string{"a-*", "b"}, []string{"a*", "b*"}) || Within([]string{"*"}, []string{"a*"}) || Within([]string{"a*"}, []string{"a"}) || Within([]string{"a*c"}, []string{"a*b"}) {
		t.Error("within is not what globs mean")
	}
}

// What a scripted server of models understands as a request for one, is one for
// that model here too: of bodies that pass, the server never reads another model.
func FuzzModels(f *testing.F) {
	for _, body := range []string{
		`{"model":"gpt-5-mini","messages":[]}`, `{"model":"o3"}`, `{"model":"gpt-5-mini","model":"o3"}`, `[{"model":"gpt-5-mini"}]`,
		`{"model":"gpt-5-mini","Model":"o3"}`, `{"mod\u0065l":"gpt-5-mini"}`, `{"model":"gpt-5-mini"} x`, `{"tools":[{"model":"o3"}],"model":"gpt-5-mini"}`,
	} {
		f.Add("/v1/messages", body)
	}
	f.Add("/v1beta/models/o3:generateContent", `{"model":"gpt-5-mini"}`)
	f.Fuzz(func(t *testing.T, path, body string) {
		if Check([]string{"gpt-5-mini"}, Request{Method: "POST", Path: path, Header: headers(), Body: []byte(body)}) != nil {
			return
		}
		var any map[string]any
		if err := json.Unmarshal([]byte(body), &any); err != nil {
			t.Fatalf("%q passes and is no JSON", body)
		}
		for k, v := range any {
			if strings.EqualFold(k, "model") && v != "gpt-5-mini" && v != "models/gpt-5-mini" {
				t.Fatalf("%q passes", body)
			}
		}
		if _, said := any["model"]; !said && !strings.Contains(path, "gpt-5-mini") {
			t.Fatalf("%q %q passes and names no model", path, body)
		}
	})
}

// The scripted server takes the requests that agents' clients make: each is asked
// with the model that is allowed, and with another.
func TestShapesOfRequests(t *testing.T) {
	server := httptest.NewServer(modeltest.New(modeltest.Options{Steps: []modeltest.Step{{Text: "done"}}}))
	defer server.Close()
	for path, body := range map[string]string{
		"/v1/messages": `{"model":"MODEL","max_tokens":32000,"stream":true,"system":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}],
			"messages":[{"role":"user","content":[{"type":"text","text":"hello"}]}],"tools":[{"name":"Bash","input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}],"metadata":{"user_id":"u"}}`,
		"/v1/responses": `{"model":"MODEL","instructions":"x","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hello"}]}],
			"tools":[{"type":"function","name":"shell","strict":false,"parameters":{"type":"object","properties":{"command":{"type":"array"}}}}],"tool_choice":"auto","store":false,"stream":true,"include":["reasoning.encrypted_content"]}`,
		"/v1/chat/completions":                       `{"model":"MODEL","messages":[{"role":"user","content":"hello"}],"stream":true}`,
		"/v1beta/models/MODEL:streamGenerateContent": `{"contents":[{"role":"user","parts":[{"text":"hello"}]}],"tools":[{"functionDeclarations":[{"name":"shell"}]}]}`,
	} {
		for _, model := range []string{"good-1", "bad-1"} {
			path, body := strings.ReplaceAll(path, "MODEL", model), strings.ReplaceAll(body, "MODEL", model)
			res, err := http.Post(server.URL+path, "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s: the server says %d", path, res.StatusCode)
			}
			err = Check([]string{"good-*"}, Request{Method: "POST", Path: path, Header: headers(), Body: []byte(body)})
			if (err == nil) != (model == "good-1") {
				t.Errorf("%s with %s: %v", path, model, err)
			}
		}
	}
}
