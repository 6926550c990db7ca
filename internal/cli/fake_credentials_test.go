package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

// addCredential keeps the value where the script can look at it.
func (s *site) addCredential(w http.ResponseWriter, r *http.Request) {
	var req api.CredentialRequest
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&req); err != nil {
		refuse(w, 400, "input.invalid", err.Error())
		return
	}
	if slices.Contains(req.Hosts, "*") {
		refuse(w, 422, "input.invalid", `hosts[0]: "*" would be every host`)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = os.WriteFile(filepath.Join(s.dir, "value-"+req.Name), []byte(req.Value), 0o600)
	_ = os.WriteFile(filepath.Join(s.dir, "credential.json"), must(json.MarshalIndent(req, "", " ")), 0o600)
	s.secrets = append(s.secrets, req)
	answer(w, 201, shownCredential(req))
}

func shownCredential(req api.CredentialRequest) api.Credential {
	return api.Credential{
		Name: req.Name, Owner: "tester", Shared: req.Shared, Kind: "header", Header: "X-Api-Key", Hosts: append([]string{}, req.Hosts...),
		Ports: append([]uint16{}, req.Ports...), Methods: append([]string{}, req.Methods...), Paths: append([]string{}, req.Paths...), Env: req.Env, Created: time.Now(),
	}
}

func (s *site) listCredentials(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := api.CredentialList{Credentials: []api.Credential{}}
	for _, c := range s.secrets {
		list.Credentials = append(list.Credentials, shownCredential(c))
	}
	answer(w, 200, list)
}

func (s *site) endCredential(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.secrets, func(c api.CredentialRequest) bool { return c.Name == r.PathValue("name") })
	if i < 0 {
		refuse(w, 404, "input.not_found", "no credential "+r.PathValue("name"))
		return
	}
	end := api.CredentialEnd{Credential: shownCredential(s.secrets[i]), Leases: 2}
	if r.Method == http.MethodDelete {
		s.secrets = slices.Delete(s.secrets, i, i+1)
	}
	answer(w, 200, end)
}

func (s *site) revokeEverything(w http.ResponseWriter, r *http.Request) {
	var req api.RevokeEverything
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, "input.invalid", err.Error())
		return
	}
	out := api.EverythingRevoked{Credentials: 3, Leases: 5, Minted: 2, Machines: []api.MachineCut{{Worker: "m1", Leases: 4, Cut: true}, {Worker: "m2", Leases: 1}}}
	if req.Keys {
		out.Keys = "rotated"
	}
	answer(w, 200, out)
}
