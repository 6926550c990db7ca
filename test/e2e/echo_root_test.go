//go:build root

package e2e

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
)

// spellings are forms in which a far side may send a key back.
func spellings(key string) map[string]string {
	var escaped strings.Builder
	for _, c := range []byte(key) {
		fmt.Fprintf(&escaped, "\\u%04x", c)
	}
	text, _ := json.Marshal(key) // a string is always encoded
	return map[string]string{
		"plain": key, "json": string(text), "escaped": escaped.String(), "url": url.QueryEscape(key + "/+"), "hex": hex.EncodeToString([]byte(key)),
		"base64": base64.StdEncoding.EncodeToString([]byte(key)), "basic": base64.StdEncoding.EncodeToString([]byte("user:" + key)),
		"shifted": base64.RawURLEncoding.EncodeToString([]byte("a" + key + "z")),
	}
}

// repeat sends a key back in every spelling, in a header and in the body: whole,
// and a byte at a time.
func repeat(w http.ResponseWriter, key string) {
	w.Header().Set("X-Echo", key)
	flush := http.NewResponseController(w)
	for name, text := range spellings(key) {
		fmt.Fprintf(w, "%s=%s\n", name, text)
	}
	for _, c := range []byte(key) {
		_, _ = w.Write([]byte{c})
		_ = flush.Flush()
	}
	fmt.Fprintln(w, "\nechoed")
}

// cases.md B11: a far side that repeats the key it was sent hands it to nobody.
func TestAFarSideThatRepeatsTheKey(t *testing.T) {
	k, e := serveKeyed(t)
	k.addKey(t, e)
	task := submit(t, e, k.task(bundle(t, e, small(t)), "true", `set -u
curl -s -i -m 60 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/echo | tee echo.txt
curl -s -m 60 --http1.1 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/echo >&2
curl -s -m 60 -H "X-Api-Key: $API_KEY" https://api.test:PORT/ok/echo | base64 -w0 > twice.txt
`))
	got := e.WaitTask(task.ID, patience)
	must(t, e, got, api.Succeeded, "")
	if seen := k.at("/ok/echo"); len(seen) != 3 || seen[0] != keyValue || seen[2] != keyValue {
		t.Errorf("the upstream was sent %q", seen)
	}
	text := log(t, e, task.ID, "agent")
	if strings.Count(text, "echoed") != 2 || !strings.Contains(text, "plain=") {
		t.Errorf("the answers did not arrive:\n%s", text)
	}
	patch, err := e.CLI("output", "get", task.ID, "patch")
	if err != nil || !strings.Contains(patch, "echo.txt") {
		t.Errorf("the patch: %v\n%s", err, patch)
	}
	egress, err := e.CLI("task", "egress", task.ID, "--json")
	if err != nil || !strings.Contains(egress, "/ok/echo") {
		t.Errorf("task egress: %v\n%s", err, egress)
	}
	for what, s := range map[string]string{"log": text, "patch": patch, "egress": egress, "logs": e.Logs()} {
		for name, spelling := range spellings(keyValue) {
			if strings.Contains(s, strings.Trim(spelling, `"`)) {
				t.Errorf("%s has the value as %s", what, name)
			}
		}
	}
	for name, spelling := range spellings(keyValue) {
		t.Run(name, func(t *testing.T) { valueNowhere(t, e.Data, strings.Trim(spelling, `"`)) })
	}
}
