package cli

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

const fakeKeys = `{"keys":[{"kid":"k-one"}]}` + "\n"

func (s *site) identity() api.RunIdentity {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	out := api.RunIdentity{Issuer: "https://issuer.example", Discovery: "https://issuer.example/.well-known/openid-configuration", Keys: []api.IdentityKey{
		{ID: "k-one", Algorithm: "RS256", State: "current", CreatedAt: at, SignsFrom: at},
	}}
	if s.rotated != nil {
		until := at.Add(2 * time.Hour)
		out.Keys[0].PublishedUntil = &until
		out.Keys = append(out.Keys, api.IdentityKey{ID: "k-two", Algorithm: s.rotated.Algorithm, State: "next", CreatedAt: at, SignsFrom: at.Add(time.Hour)})
	}
	return out
}

func (s *site) showIdentity(w http.ResponseWriter, _ *http.Request) { answer(w, 200, s.identity()) }

func (s *site) rotateIdentity(w http.ResponseWriter, r *http.Request) {
	var req api.IdentityRotation
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, "input.invalid", err.Error())
		return
	}
	if s.rotated != nil && !req.Now {
		refuse(w, 409, "input.conflict", "key k-two is new already")
		return
	}
	s.mu.Lock()
	s.rotated = &req
	s.mu.Unlock()
	answer(w, 200, s.identity())
}

func (s *site) publishes(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(text))
	}
}
