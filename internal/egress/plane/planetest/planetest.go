// Package planetest is a control plane that a test of the gateway's questions
// makes up. Tests only.
package planetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

// Token is what questions come with.
const Token = "cfd_x"

// Serve serves until the test ends, and gives the address and a file with Token.
func Serve(t testing.TB, h http.HandlerFunc) (url, tokenFile string) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, file
}

// Says answers as the control plane does: whatever is not 200 is a problem.
func Says(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	if status != http.StatusOK {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the other side may be gone
}
