//go:build root

package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
)

// largeFiles is a small server of Git LFS: its batch API with the basic
// transfer, and no locks. The objects lie beside the repository, since the
// server of this suite reads the bodies of all else itself.
type largeFiles struct {
	at string // its URL, ending before the object's name

	mu      sync.Mutex
	objects map[string][]byte
}

// lfsObject is an object as the batch API names it.
type lfsObject struct {
	OID     string             `json:"oid"`
	Size    int64              `json:"size"`
	Actions map[string]lfsLink `json:"actions,omitempty"`
	Error   *lfsError          `json:"error,omitempty"`
}

type lfsLink struct {
	Href string `json:"href"`
}

type lfsError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// batch says where objects are to be put or got.
func (l *largeFiles) batch(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		Operation string      `json:"operation"`
		Objects   []lfsObject `json:"objects"`
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, o := range ask.Objects {
		_, have := l.objects[o.OID]
		switch {
		case have == (ask.Operation == "download"):
			ask.Objects[i].Actions = map[string]lfsLink{ask.Operation: {l.at + o.OID}}
		case !have:
			ask.Objects[i].Error = &lfsError{http.StatusNotFound, "no such object"}
		}
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	_ = json.NewEncoder(w).Encode(map[string]any{"transfer": "basic", "objects": ask.Objects})
}

// object takes or gives one.
func (l *largeFiles) object(w http.ResponseWriter, r *http.Request) {
	oid := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if sum := sha256.Sum256(body); err != nil || hex.EncodeToString(sum[:]) != oid {
			http.Error(w, "another object", http.StatusBadRequest)
			return
		}
		l.mu.Lock()
		l.objects[oid] = body
		l.mu.Unlock()
		return
	}
	l.mu.Lock()
	body, ok := l.objects[oid]
	l.mu.Unlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(body)
}
