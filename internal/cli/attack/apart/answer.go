package apart

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/attack"
)

// The header, the parameter and the users that carry the values.
const (
	keyHeader = "X-Far-Key"
	parameter = "key"
	user      = "robot"
	gitUser   = "x-access-token"
)

// at answers what comes to a port.
func (f *Far) at(port int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return // it was broken off, and nobody is answered
		}
		f.look(port, r, string(body))
		f.reply(w, r)
	})
}

// look keeps what a request has that it must not.
func (f *Far) look(port int, r *http.Request, body string) {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	if id := f.marked(r.URL.Path, attack.Cut); id != "" {
		f.note(id, "a request that was misshapen came to its end")
	}
	if r.URL.Path == "/acme/app.git/git-receive-pack" || r.URL.Query().Get("service") == "git-receive-pack" {
		f.note("credential.git-push", "it arrived at the server")
	}
	_, password, _ := r.BasicAuth()
	text := fmt.Sprint(r.Host, r.URL, r.Header, r.Trailer, password) + body
	if plain, err := url.QueryUnescape(r.URL.RawQuery); err == nil {
		text += plain
	}
	for i, v := range f.Values {
		if !strings.Contains(text, v) {
			continue
		}
		if base := []string{"/ok/", "/query/", "/basic/", "/acme/app.git/"}[i]; port == f.Ports.Bound && strings.HasPrefix(r.Host, attack.FarName) && r.Method == http.MethodGet && strings.HasPrefix(r.URL.Path, base) {
			f.mu.Lock()
			f.right[v] = true
			f.mu.Unlock()
			continue
		}
		id := f.marked(r.URL.Path, attack.May)
		if id == "" {
			id = "credential.elsewhere"
		}
		f.note(id, fmt.Sprintf("the value arrived with %s %s of %s", r.Method, r.URL.Path, r.Host))
	}
}

func (f *Far) reply(w http.ResponseWriter, r *http.Request) {
	marker := "far-side " + f.nonce + "\n"
	key := r.Header.Get(keyHeader)
	switch path := r.URL.Path; {
	case path == "/ok/echo":
		quoted, _ := json.Marshal(key)
		fmt.Fprintf(w, "%s%s\n%s\n%s\n%s\n%s\n%s\n", marker, key, base64.StdEncoding.EncodeToString([]byte(key)), hex.EncodeToString([]byte(key)), url.QueryEscape(key), quoted,
			base64.StdEncoding.EncodeToString([]byte(user+":"+key)))
	case path == "/ok/pieces":
		_, _ = io.WriteString(w, marker)
		for i := range len(key) {
			_, _ = io.WriteString(w, key[i:i+1])
			_ = http.NewResponseController(w).Flush()
			select {
			case <-time.After(2 * time.Millisecond): // so that they are not read as one
			case <-r.Context().Done():
				return
			}
		}
	case path == "/ok/header":
		w.Header().Set("X-Echo", key)
		w.Header().Set("Set-Cookie", "k="+key)
		_, _ = io.WriteString(w, marker)
	case path == "/ok/error":
		http.Error(w, marker+"the key "+key+" is wrong", http.StatusUnauthorized)
	case strings.HasPrefix(path, "/ok/moved/"):
		w.Header().Set("Location", fmt.Sprintf("https://%s:%d/ok/%s/%s?key=%s", attack.ElseName, f.Ports.Other, attack.Must, strings.TrimPrefix(path, "/ok/moved/"), key))
		w.WriteHeader(http.StatusTemporaryRedirect)
		_, _ = io.WriteString(w, marker)
	case path == "/query/fine":
		_, _ = io.WriteString(w, marker+r.URL.RawQuery+r.URL.Query().Get(parameter))
	case path == "/basic/fine":
		_, password, _ := r.BasicAuth()
		_, _ = io.WriteString(w, marker+r.Header.Get("Authorization")+password)
	case path == "/acme/app.git/info/refs":
		f.refs(w, r)
	default:
		_, _ = io.WriteString(w, marker)
	}
}

// refs are the branches of a repository that has one (gitprotocol-http(5)).
func (f *Far) refs(w http.ResponseWriter, r *http.Request) {
	if name, password, _ := r.BasicAuth(); name != gitUser || password != f.Values[3] {
		w.Header().Set("WWW-Authenticate", `Basic realm="far"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	line := func(text string) string { return fmt.Sprintf("%04x%s", len(text)+4, text) }
	commit := strings.Repeat("a1", 20)
	w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
	_, _ = io.WriteString(w, line("# service=git-upload-pack\n")+"0000"+line(commit+" HEAD\x00symref=HEAD:refs/heads/main\n")+line(commit+" refs/heads/main\n")+"0000")
}
